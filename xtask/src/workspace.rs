//! Paths of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Returns the path of a file in `xtask/peers`.
pub(crate) fn peer_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// Returns the folder for servers that the tests use. `cargo clean` removes it.
pub(crate) fn peers_folder() -> Result<PathBuf> {
    folder("rockbot-peers")
}

/// Returns the folder for tools of the tasks. `cargo clean` removes it.
pub(crate) fn tools_folder() -> Result<PathBuf> {
    folder("rockbot-tools")
}

/// Returns the path of a program of the workspace in the profile of this one, which may not be built.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    Ok(program.with_file_name(name))
}

/// Returns a folder in the target folder. This program is in `<target>/<profile>/`, also with a
/// configured target folder.
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let target = program.ancestors().nth(2).context("this program is not in a target folder")?;
    let folder = target.join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Returns the running Cargo with the root of the repository as working directory.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
