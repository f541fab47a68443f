//! Where things are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Our own files for the servers that the tests talk to.
pub(crate) fn peer_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// A folder for the servers that the tests talk to; `cargo clean` removes it.
pub(crate) fn peers_folder() -> Result<PathBuf> {
    folder("rockbot-peers")
}

/// A folder for the tools of the chores; `cargo clean` removes it.
pub(crate) fn tools_folder() -> Result<PathBuf> {
    folder("rockbot-tools")
}

/// Cargo put this program into `<target>/<profile>/`, wherever it was told to keep its target.
fn folder(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let target = program.ancestors().nth(2).context("this program is not in a target folder")?;
    let folder = target.join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// The cargo that runs this chore, in the root of the repository.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
