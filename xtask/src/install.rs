//! Things installed once and kept between runs.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

/// Has `fill` put `content` (names with versions) into `folder`, unless an earlier run did.
///
/// A run that was interrupted half way, or that installed something else, is started over; two
/// chores at once do it one after the other.
pub(crate) fn once(folder: &Path, content: &str, fill: impl FnOnce() -> Result<()>) -> Result<()> {
    let lock_path = folder.with_extension("lock");
    let lock = File::create(&lock_path)
        .with_context(|| format!("cannot create {}", lock_path.display()))?;
    // Released when the file is closed, also by a crash.
    lock.lock().with_context(|| format!("cannot lock {}", lock_path.display()))?;
    let mark = folder.join("installed");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == content) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fill()?;
    fs::write(&mark, content).with_context(|| format!("cannot write {}", mark.display()))
}
