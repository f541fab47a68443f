//! The command fixture: an empty environment, a working directory, and a directory for temporary files.

use std::{fs, path::PathBuf, process::Output, time::Duration};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// The time limit for one command, long enough for a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Sandbox {
    folder: TempDir,
}

/// The exit code and output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        for name in ["workplace", "tmp"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        Self { folder }
    }

    /// Returns the current directory of every command, which is the root of the file tools.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("workplace")
    }

    /// Returns the directory for temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root().join(name);
        fs::write(&path, text).expect("written");
        path
    }

    pub(crate) fn names_in_root(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root()).expect("the root can be read");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.map(|entry| name(entry.expect("an entry"))).collect()
    }

    /// Returns a command whose environment has only `PATH` and `TMPDIR`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        Command::from_std(self.std_command(arguments))
    }

    pub(crate) fn std_command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rockbot"));
        command
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TMPDIR", self.temporary());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::new(self.command(arguments).timeout(TIMEOUT).output().expect("it runs"))
    }

    /// Runs a command that must exit with `code`.
    #[track_caller]
    pub(crate) fn check(&self, arguments: &[&str], code: i32) -> CommandOutput {
        let output = self.run(arguments);
        output.assert_code(code, arguments);
        output
    }
}

impl CommandOutput {
    pub(crate) fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts the exit code, and that the command did not panic.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32, arguments: &[&str]) {
        assert!(!self.err.contains("panicked"), "{arguments:?}: {}", self.err);
        assert_eq!(self.code, Some(code), "{arguments:?}\n{}\n{}", self.out, self.err);
    }

    /// Parses standard output, which must be one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}:\n{}", self.out))
    }
}

/// Asserts that `text` contains all of `parts`.
#[track_caller]
pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "missing {missing:?} in:\n{text}");
}
