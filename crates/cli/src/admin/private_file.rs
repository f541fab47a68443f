//! Files that only their owner may read.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use anyhow::{Context, Result};

/// Mode of files that only their owner may read and write.
pub(super) const PRIVATE: u32 = 0o600;

/// Writes a file that only its owner can ever read.
///
/// # Errors
/// When it can't be written.
pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    let shown = file.display();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE);
    let mut open = options.open(file).with_context(|| format!("cannot write {shown}"))?;
    open.set_permissions(Permissions::from_mode(PRIVATE))?;
    open.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))
}

/// Creates a folder that only its owner can enter.
///
/// # Errors
/// When it can't be created, or belongs to another user.
pub(super) fn create_folder(folder: &Path) -> Result<()> {
    let shown = folder.display();
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).with_context(|| format!("cannot create {shown}"))?;
    // Also for an existing folder.
    fs::set_permissions(folder, Permissions::from_mode(0o700))
        .with_context(|| format!("cannot set the permissions of {shown}"))
}
