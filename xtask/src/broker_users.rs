//! `cargo xtask broker-users`: the users of a fleet on RabbitMQ, and what each may do.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{process, workspace};

/// What to write, and where.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// `--help` tells of them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    process::run(writer().args(&options.arguments))
}

/// Fails when the files in the repository are not what would be written.
pub(crate) fn check() -> Result<()> {
    process::run(writer().arg("--check"))
}

/// Writes them into `folder` for users with the passwords of a file, which gets those that it lacks.
pub(crate) fn write_with_passwords(passwords: &Path, folder: &Path) -> Result<()> {
    process::run(writer().arg("--passwords").arg(passwords).arg("--out").arg(folder))
}

/// The program that writes them. It is built of the names on the bus, and other chores need not wait
/// for those to compile.
fn writer() -> Command {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--locked", "-p", "rockbot-contracts"]);
    command.args(["--example", "broker-users", "--"]);
    command
}
