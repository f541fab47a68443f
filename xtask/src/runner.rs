//! The test runner: nextest, or `cargo test` where it is missing.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::services::is_set;
use crate::{process, workspace};

/// The number of tests that run at once, for nextest.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";
/// The folder of the programs that the e2e tests start.
const PROGRAMS: &str = "ROCKBOT_TEST_PROGRAMS";

/// The test runner of this machine with the selection of packages and tests.
pub(crate) struct Runner {
    arguments: Vec<String>,
    nextest: bool,
}

/// Compiled tests and programs. Running them does not start Cargo, which may be busy with something
/// else in the same target folder.
pub(crate) struct Built {
    metadata: PathBuf,
    binaries: PathBuf,
    /// The folder with the programs of the workspace.
    pub(crate) programs: PathBuf,
}

impl Runner {
    /// Finds the runner for these arguments of the command line.
    pub(crate) fn find(arguments: &[String]) -> Self {
        let nextest = process::answer(workspace::cargo().args(["nextest", "--version"])).is_some();
        Self { arguments: selection(arguments), nextest }
    }

    pub(crate) fn is_nextest(&self) -> bool {
        self.nextest
    }

    /// The arguments that leave out the tests that need a cluster.
    pub(crate) fn without_cluster(&self) -> &'static [&'static str] {
        if self.nextest {
            &["-E", "not (package(rockbot-scripts-manager) & binary(it))"]
        } else {
            &["--exclude", "rockbot-scripts-manager"]
        }
    }

    /// Compiles the selected tests.
    pub(crate) fn build(&self) -> Command {
        self.command(&["--no-run"])
    }

    /// Runs the selected tests.
    pub(crate) fn run(&self, options: &[&str]) -> Command {
        let mut command = self.command(options);
        set_threads(&mut command);
        command
    }

    /// Options go before the selection, which may hold a `--` of its own.
    fn command(&self, options: &[&str]) -> Command {
        let mut command = workspace::cargo();
        command.args(if self.nextest { &["nextest", "run"][..] } else { &["test"] });
        command.args(options).args(&self.arguments);
        command
    }
}

impl Built {
    /// Compiles every test, example and program of the workspace, each once.
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
        fs::write(&metadata, process::answer(&mut describe).context("cargo metadata failed")?)?;
        let mut list = workspace::cargo();
        list.args(["nextest", "list", "--workspace", "--locked", "--list-type", "binaries-only"]);
        list.args(["--message-format", "json"]);
        fs::write(&binaries, process::answer(&mut list).context("cargo nextest list failed")?)?;
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let programs = program.parent().context("this program is in no folder")?.to_owned();
        Ok(Self { metadata, binaries, programs })
    }

    /// Runs them.
    pub(crate) fn run(&self) -> Command {
        let mut command = workspace::cargo();
        command.args(["nextest", "run", "--cargo-metadata"]).arg(&self.metadata);
        command.arg("--binaries-metadata").arg(&self.binaries);
        command.env(PROGRAMS, &self.programs);
        set_threads(&mut command);
        command
    }
}

/// Runs two tests for each core: half of them wait for a broker, a pod or a timeout.
fn set_threads(command: &mut Command) {
    if !is_set(TEST_THREADS) {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.env(TEST_THREADS, OsStr::new(&(2 * cores).to_string()));
    }
}

/// Selects the whole workspace, unless the arguments choose packages.
fn selection(arguments: &[String]) -> Vec<String> {
    let chooses = |argument: &String| {
        argument == "-p"
            || argument == "--workspace"
            || argument == "--all"
            || argument.starts_with("--package")
            || (argument.starts_with("-p") && !argument.starts_with("--"))
    };
    let mut selected = Vec::new();
    if !arguments.iter().take_while(|argument| *argument != "--").any(chooses) {
        selected.push("--workspace".to_owned());
    }
    selected.extend_from_slice(arguments);
    selected
}

#[cfg(test)]
mod tests {
    use super::selection;

    fn arguments(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn selection_is_the_workspace_unless_packages_are_chosen() {
        let workspace = "--workspace";
        assert_eq!(selection(&[]), arguments(workspace));
        assert_eq!(selection(&arguments("a_test_name")), arguments("--workspace a_test_name"));
        assert_eq!(selection(&arguments("-p xtask name")), arguments("-p xtask name"));
        assert_eq!(selection(&arguments("--package=xtask")), arguments("--package=xtask"));
        assert_eq!(selection(&arguments("name -- -p")), arguments("--workspace name -- -p"));
    }
}
