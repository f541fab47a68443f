//! Installations that are kept between runs.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

/// Runs `install`, which installs `content` (names with versions) into `folder`, unless an earlier run
/// did.
///
/// An incomplete installation, or one of other content, is repeated. Concurrent tasks wait for each
/// other.
pub(crate) fn once(
    folder: &Path,
    content: &str,
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let lock_path = folder.with_extension("lock");
    let lock = File::create(&lock_path)
        .with_context(|| format!("cannot create {}", lock_path.display()))?;
    // The lock is released when the file is closed, also by a crash.
    lock.lock().with_context(|| format!("cannot lock {}", lock_path.display()))?;
    let marker = folder.join("installed");
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == content) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    install()?;
    fs::write(&marker, content).with_context(|| format!("cannot write {}", marker.display()))
}
