//! A machine with nothing on it: an empty environment, a folder to work in, one for temporary
//! files.

use std::{fs, path::PathBuf, process::Output, time::Duration};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// No command of a test takes longer, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Workshop {
    folder: TempDir,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        for name in ["workplace", "tmp"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        Self { folder }
    }

    /// The current directory of every command, and so what the file tools work in.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("workplace")
    }

    /// Where commands put temporary files.
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

    /// A command without HOME, keys, or anything else in its environment but where programs are.
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

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).timeout(PATIENCE).output().expect("it runs"))
    }

    /// Runs a command that must end with `code`.
    #[track_caller]
    pub(crate) fn check(&self, arguments: &[&str], code: i32) -> Said {
        let said = self.run(arguments);
        said.assert_code(code, arguments);
        said
    }
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Whatever it did, it must not have panicked.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32, what: &[&str]) {
        assert!(!self.err.contains("panicked"), "{what:?}: {}", self.err);
        assert_eq!(self.code, Some(code), "{what:?}\n{}\n{}", self.out, self.err);
    }

    /// Standard output as the one JSON document it must be.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}:\n{}", self.out))
    }
}

/// Fails with what is missing of `words` in `text`.
#[track_caller]
pub(crate) fn assert_says(text: &str, words: &[&str]) {
    let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
    assert!(missing.is_empty(), "missing {missing:?} in:\n{text}");
}
