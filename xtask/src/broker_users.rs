//! `cargo xtask broker-users`: the RabbitMQ users of a fleet and their permissions.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{process, workspace};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Arguments of the writer; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    process::run(writer().args(&options.arguments))
}

/// Fails if the files in the repository are stale.
pub(crate) fn check() -> Result<()> {
    process::run(writer().arg("--check"))
}

/// Writes the definitions into `folder` with the passwords of a file. Missing passwords are generated
/// and added to the file.
pub(crate) fn write_with_passwords(passwords: &Path, folder: &Path) -> Result<()> {
    process::run(writer().arg("--passwords").arg(passwords).arg("--out").arg(folder))
}

/// Returns the program that writes the files. It depends on the contracts crate, which the other tasks
/// need not compile.
fn writer() -> Command {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--locked", "-p", "rockbot-contracts"]);
    command.args(["--example", "broker-users", "--"]);
    command
}
