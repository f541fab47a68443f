//! The program `rockbot`, which writes the secrets of a fleet.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{process, workspace};

/// Writes the secrets of `deploy/compose` into `folder` with the program `rockbot`. Existing passwords are kept.
pub(crate) fn write_compose_secrets(rockbot: &Path, folder: &Path) -> Result<()> {
    write_secrets(rockbot, "compose", &["web"], folder)
}

/// Writes the secrets of the chart with these handler pools into `folder`. Existing passwords are kept.
pub(crate) fn write_chart_secrets(pools: &[&str], folder: &Path) -> Result<()> {
    write_secrets(&build()?, "kubernetes", pools, folder)
}

/// Builds the program and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let mut build = workspace::cargo();
    // Dependencies have the features that `cargo build --workspace` selects, those of tests excluded.
    process::run(build.args(["build", "--quiet", "--locked", "--workspace", "--bin", "rockbot"]))?;
    workspace::program("rockbot")
}

fn write_secrets(rockbot: &Path, layout: &str, pools: &[&str], folder: &Path) -> Result<()> {
    let mut command = Command::new(rockbot);
    command.args(["admin", "secrets", "--agent", "assistant", "--layout", layout]);
    command.args(pools.iter().flat_map(|pool| ["--pool", pool]));
    process::run(command.arg("--out").arg(folder))
}
