//! Files that only their owner may read.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use anyhow::{Context, Result};

/// Mode of files that only their owner may read and write.
pub(crate) const PRIVATE: u32 = 0o600;

/// Writes a file that only its owner can ever read.
///
/// # Errors
/// When it can't be written.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
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
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    let shown = folder.display();
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).with_context(|| format!("cannot create {shown}"))?;
    // Also for an existing folder.
    fs::set_permissions(folder, Permissions::from_mode(0o700))
        .with_context(|| format!("cannot set the permissions of {shown}"))
}

/// Creates an empty file that only its owner can read, or limits an existing one to its owner.
///
/// # Errors
/// When it can't be created or belongs to another user.
pub(crate) fn ensure(file: &Path) -> Result<()> {
    let shown = file.display();
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(PRIVATE);
    let open = options.open(file).with_context(|| format!("cannot open {shown}"))?;
    open.set_permissions(Permissions::from_mode(PRIVATE))
        .with_context(|| format!("cannot set the permissions of {shown}"))
}

/// Creates a new file that only its owner can read.
///
/// # Errors
/// When it exists, or can't be created.
pub(crate) fn create_new(file: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE);
    options.open(file).with_context(|| format!("cannot create {}", file.display()))
}

/// Replaces a file by one that only its owner can read, at once: readers see the old or the new text.
///
/// # Errors
/// When it can't be written.
pub(crate) fn replace(file: &Path, text: &str) -> Result<()> {
    let shown = file.display();
    let folder = file.parent().with_context(|| format!("{shown} is in no folder"))?;
    // Temporary files are created with the mode of a private file.
    let mut temporary = tempfile::NamedTempFile::new_in(folder)
        .with_context(|| format!("cannot create a file in {}", folder.display()))?;
    temporary.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    temporary.persist(file).with_context(|| format!("cannot replace {shown}"))?;
    Ok(())
}
