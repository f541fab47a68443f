//! The program `rockbot`, which writes the secrets of a fleet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{process, workspace};

/// Limit for the command that makes a token.
const TOKEN_LIMIT: Duration = Duration::from_secs(60);

/// Writes the secrets of `deploy/compose` into `folder` with the program `rockbot`. Existing passwords are kept.
pub(crate) fn write_compose_secrets(rockbot: &Path, folder: &Path) -> Result<()> {
    write_secrets(rockbot, "compose", &["web"], folder)
}

/// Writes the secrets of the chart with these handler pools into `folder`. Existing passwords are kept.
pub(crate) fn write_chart_secrets(pools: &[&str], folder: &Path) -> Result<()> {
    write_secrets(&build()?, "kubernetes", pools, folder)
}

/// Writes the file `tokens.toml` with a token for every face and tool of a gateway into `folder`, and the token itself
/// into `token`. Returns both paths.
pub(crate) fn write_gateway_token(rockbot: &Path, folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let (tokens, token) = (folder.join("tokens.toml"), folder.join("token"));
    let mut command = Command::new(rockbot);
    command.args(["gateway", "token", "new", "faces", "--tool", "*", "--file"]).arg(&tokens);
    for face in ["console", "openai", "mcp", "a2a"] {
        command.args(["--face", face]);
    }
    let printed = process::run_captured(&mut command, TOKEN_LIMIT)?;
    fs::write(&token, printed.trim()).context("cannot write the token")?;
    Ok((tokens, token))
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
