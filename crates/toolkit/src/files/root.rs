//! The root directory, which confined tools cannot leave.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions, OpenOptionsExt},
};
use parking_lot::{Mutex, MutexGuard};
use rockbot_tools::ToolFailure;
use rustix::fs::OFlags;

use super::{config::FilesError, path::RelativePath};

/// An open directory. Nothing opened through it is outside it.
#[derive(Debug)]
pub(super) struct Root {
    dir: Dir,
    /// The absolute path, only for the working directory of commands, which has no descriptor-relative form.
    path: PathBuf,
    writing: Mutex<()>,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, FilesError> {
        let failed = |source| FilesError::Root { path: path.to_owned(), source };
        let absolute = fs::canonicalize(path).map_err(failed)?;
        if !absolute.is_dir() {
            return Err(FilesError::NotADirectory { path: path.to_owned() });
        }
        let dir = Dir::open_ambient_dir(&absolute, ambient_authority()).map_err(failed)?;
        Ok(Self { dir, path: absolute, writing: Mutex::new(()) })
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the root for a write, from reading a file to replacing it: calls of one turn run
    /// concurrently, and an edit must not undo another one.
    pub(super) fn lock_writes(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Opens a file for reading, through symbolic links that stay inside.
    pub(super) fn open_file(&self, path: &RelativePath) -> Result<fs::File, ToolFailure> {
        // Opening a device may have an effect, so the kind is checked first. The opened file is checked
        // again, because it may have been replaced in between.
        let metadata =
            self.dir.metadata(path.as_path()).map_err(|error| access_failure(path, error))?;
        if metadata.is_dir() {
            return Err(ToolFailure::failed(format!(
                "{path} is a directory; list its content with list_files"
            )));
        }
        if !metadata.is_file() {
            return Err(not_regular(path));
        }
        match open_regular(&self.dir, path.as_path(), OFlags::empty()) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(not_regular(path)),
            Err(error) => Err(access_failure(path, error)),
        }
    }

    /// Resolves symbolic links and `..`; the result is relative to the root, and empty for the root.
    pub(super) fn resolve(&self, path: &RelativePath) -> Result<PathBuf, ToolFailure> {
        let resolved =
            self.dir.canonicalize(path.as_path()).map_err(|error| access_failure(path, error))?;
        Ok(if resolved == Path::new(".") { PathBuf::new() } else { resolved })
    }
}

/// Opens a regular file for reading; returns `None` for anything else. Does not block on a FIFO.
pub(super) fn open_regular(dir: &Dir, path: &Path, more: OFlags) -> io::Result<Option<fs::File>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = dir.open_with(path, &options)?.into_std();
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Opens a directory; fails for a symbolic link.
pub(super) fn open_directory(dir: &Dir, name: &Path) -> io::Result<Dir> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    Ok(Dir::from_std_file(dir.open_with(name, &options)?.into_std()))
}

pub(super) fn not_regular(path: &RelativePath) -> ToolFailure {
    ToolFailure::failed(format!("{path} is not a regular file but a FIFO, a socket or a device"))
}

/// Returns the failure for a path that cannot be used, with a message for the model.
pub(super) fn access_failure(path: &RelativePath, error: io::Error) -> ToolFailure {
    // cap-std's own rejection of a path outside the root has no errno.
    let escapes = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none();
    let message = match error.kind() {
        _ if escapes => {
            format!("{path} is outside the root of the files; use a path inside it")
        }
        io::ErrorKind::NotFound => {
            format!("{path} does not exist; list existing files with list_files")
        }
        io::ErrorKind::PermissionDenied => format!("{path}: permission denied"),
        io::ErrorKind::NotADirectory => {
            format!("a part of {path} before the last is not a directory")
        }
        io::ErrorKind::IsADirectory => format!("{path} is a directory"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{path}: no space left")
        }
        io::ErrorKind::ReadOnlyFilesystem => format!("{path} is on a read-only file system"),
        io::ErrorKind::InvalidFilename => format!("a name in {path} is too long or not allowed"),
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            format!("{path} leads through too many symbolic links")
        }
        _ => format!("{path} cannot be accessed: I/O error"),
    };
    ToolFailure::failed_with_source(message, error)
}
