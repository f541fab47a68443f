//! The test runner: nextest, or `cargo test` where it is missing.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::services::is_set;
use crate::{process, workspace};

/// Variable with nextest's number of parallel tests.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";
/// Variable with the folder of the programs that the e2e tests start.
const PROGRAMS: &str = "ROCKBOT_TEST_PROGRAMS";

/// The installed test runner with a selection of packages and tests.
pub(crate) struct Runner {
    arguments: Vec<String>,
    nextest: bool,
}

/// Compiled tests and programs. Running them does not take Cargo's lock of the target folder.
pub(crate) struct Built {
    metadata: PathBuf,
    binaries: PathBuf,
    /// The folder with the programs of the workspace.
    pub(crate) programs: PathBuf,
}

impl Runner {
    /// Finds the installed runner. The arguments select packages and tests.
    pub(crate) fn find(arguments: &[String]) -> Self {
        let nextest = process::stdout(workspace::cargo().args(["nextest", "--version"])).is_some();
        Self { arguments: selection(arguments), nextest }
    }

    pub(crate) fn is_nextest(&self) -> bool {
        self.nextest
    }

    /// Returns the arguments that skip the tests that need a cluster.
    pub(crate) fn without_cluster(&self) -> &'static [&'static str] {
        if self.nextest {
            &["-E", "not (package(rockbot-scripts-manager) & binary(it))"]
        } else {
            &["--exclude", "rockbot-scripts-manager"]
        }
    }

    /// Returns the command that compiles the selected tests.
    pub(crate) fn build(&self) -> Command {
        // These options of nextest exclude `--no-run`.
        let is_for_runs = |argument: &&String| {
            matches!(argument.as_str(), "--no-fail-fast" | "--nff" | "--fail-fast" | "--ff")
        };
        let arguments: Vec<_> =
            self.arguments.iter().filter(|argument| !is_for_runs(argument)).cloned().collect();
        Self { arguments, ..*self }.command(&["--no-run"])
    }

    /// Returns the command that runs the selected tests.
    pub(crate) fn run(&self, options: &[&str]) -> Command {
        let mut command = self.command(options);
        set_threads(&mut command);
        command
    }

    /// Puts options before the selection, which may contain a `--`.
    fn command(&self, options: &[&str]) -> Command {
        let mut command = workspace::cargo();
        command.args(if self.nextest { &["nextest", "run"][..] } else { &["test"] });
        command.args(options).args(&self.arguments);
        command
    }
}

impl Built {
    /// Compiles every test, example and program of the workspace once.
    pub(crate) fn new() -> Result<Self> {
        let mut build = workspace::cargo();
        build.args([
            "build",
            "--workspace",
            "--locked",
            "--lib",
            "--bins",
            "--tests",
            "--examples",
        ]);
        process::run(&mut build)?;
        let folder = workspace::peers_folder()?;
        let (metadata, binaries) = (folder.join("metadata.json"), folder.join("binaries.json"));
        let mut describe = workspace::cargo();
        describe.args(["metadata", "--format-version", "1", "--locked"]);
        fs::write(&metadata, process::stdout(&mut describe).context("cargo metadata failed")?)?;
        let mut list = workspace::cargo();
        list.args(["nextest", "list", "--workspace", "--locked", "--list-type", "binaries-only"]);
        list.args(["--message-format", "json"]);
        fs::write(&binaries, process::stdout(&mut list).context("cargo nextest list failed")?)?;
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let programs = program.parent().context("this program has no folder")?.to_owned();
        Ok(Self { metadata, binaries, programs })
    }

    /// Returns the command that runs the tests.
    pub(crate) fn run(&self) -> Command {
        let mut command = workspace::cargo();
        command.args(["nextest", "run", "--cargo-metadata"]).arg(&self.metadata);
        command.arg("--binaries-metadata").arg(&self.binaries);
        command.env(PROGRAMS, &self.programs);
        set_threads(&mut command);
        command
    }
}

/// Sets two parallel tests per core: half of the tests wait for a broker, a pod or a timeout.
fn set_threads(command: &mut Command) {
    if !is_set(TEST_THREADS) {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.env(TEST_THREADS, OsStr::new(&(2 * cores).to_string()));
    }
}

/// Selects the whole workspace unless the arguments select packages.
fn selection(arguments: &[String]) -> Vec<String> {
    let selects_package = |argument: &String| {
        argument == "-p"
            || argument == "--workspace"
            || argument == "--all"
            || argument.starts_with("--package")
            || (argument.starts_with("-p") && !argument.starts_with("--"))
    };
    let mut selected = Vec::new();
    if !arguments.iter().take_while(|argument| *argument != "--").any(selects_package) {
        selected.push("--workspace".to_owned());
    }
    selected.extend_from_slice(arguments);
    selected
}

#[cfg(test)]
mod tests {
    use super::{Runner, selection};

    fn arguments(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_of_runs_are_not_used_to_compile() {
        let runner =
            Runner { arguments: arguments("--workspace --no-fail-fast -E all()"), nextest: true };
        let of = |command: &std::process::Command| {
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
        };
        let (build, run): (Vec<_>, Vec<_>) = (of(&runner.build()), of(&runner.run(&[])));
        assert_eq!(build, arguments("nextest run --no-run --workspace -E all()"));
        assert_eq!(run, arguments("nextest run --workspace --no-fail-fast -E all()"));
    }

    #[test]
    fn selection_defaults_to_the_workspace() {
        let workspace = "--workspace";
        assert_eq!(selection(&[]), arguments(workspace));
        assert_eq!(selection(&arguments("a_test_name")), arguments("--workspace a_test_name"));
        assert_eq!(selection(&arguments("-p xtask name")), arguments("-p xtask name"));
        assert_eq!(selection(&arguments("--package=xtask")), arguments("--package=xtask"));
        assert_eq!(selection(&arguments("name -- -p")), arguments("--workspace name -- -p"));
    }
}
