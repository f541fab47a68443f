//! `cargo xtask broker-users`: the users of a fleet on RabbitMQ, and what each may do.

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

/// Runs the program that writes them. It is built of the names on the bus, and other chores need not
/// wait for those to compile.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--locked", "-p", "rockbot-contracts"]);
    process::run(command.args(["--example", "broker-users", "--"]).args(&options.arguments))
}

/// Fails when the files in the repository are not what would be written.
pub(crate) fn check() -> Result<()> {
    run(&Options { arguments: vec!["--check".to_owned()] })
}
