//! The e2e tests as a program, with the programs that they start.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// The programs that the tests start.
const PROGRAMS: [&str; 2] = ["rockbot-tool-handler", "rockbot-agent"];

/// The compiled suite and the folder of the programs.
#[derive(Debug)]
pub(crate) struct Suite {
    program: PathBuf,
    programs: PathBuf,
}

impl Suite {
    /// Compiles suite and programs with the features of a test run, so that dependencies are not rebuilt.
    pub(crate) fn build(profile: &str) -> Result<Self> {
        let mut command = workspace::cargo();
        command
            .args(["build", "--workspace", "--locked", "--profile", profile, "--test", "e2e"])
            .args(PROGRAMS.iter().flat_map(|name| ["--bin", name]))
            .args(["--message-format", "json-render-diagnostics"]);
        let output = command.stderr(Stdio::inherit()).output().context("cargo did not start")?;
        ensure!(output.status.success(), "cargo could not build the suite");
        let messages = String::from_utf8_lossy(&output.stdout).into_owned();
        let executable = |name: &str| {
            messages.lines().find_map(|line| {
                let message: Value = serde_json::from_str(line).ok()?;
                let is_wanted = message["target"]["name"] == name;
                message["executable"].as_str().filter(|_| is_wanted).map(PathBuf::from)
            })
        };
        let program = executable("e2e").context("cargo printed no path for the suite")?;
        let handler =
            executable(PROGRAMS[0]).context("cargo printed no path for the tool handler")?;
        let programs = handler.parent().context("a program has a folder")?.to_owned();
        Ok(Self { program, programs })
    }

    /// Returns the command that runs the tests whose path contains `tests`, and prints their output.
    pub(crate) fn command(&self, tests: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([tests, "--nocapture"])
            .current_dir(workspace::root())
            .env("ROCKBOT_TEST_PROGRAMS", &self.programs);
        command
    }
}
