//! The program `rockbot`, which writes the secrets of a fleet.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{process, workspace};

/// Writes the secrets of `deploy/compose` into `folder`. Existing passwords are kept.
pub(crate) fn write_compose_secrets(folder: &Path) -> Result<()> {
    write_secrets("compose", folder)
}

/// Writes the secrets of the chart into `folder`. Existing passwords are kept.
pub(crate) fn write_chart_secrets(folder: &Path) -> Result<()> {
    write_secrets("kubernetes", folder)
}

fn write_secrets(layout: &str, folder: &Path) -> Result<()> {
    let mut build = workspace::cargo();
    // The selection of the tests: another would compile dependencies again with other features.
    process::run(build.args(["build", "--quiet", "--locked", "--workspace", "--bin", "rockbot"]))?;
    let mut command = Command::new(workspace::program("rockbot")?);
    command.args(["admin", "secrets", "--agent", "assistant", "--pool", "web", "--layout", layout]);
    process::run(command.arg("--out").arg(folder))
}
