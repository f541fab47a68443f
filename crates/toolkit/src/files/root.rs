//! The directory that the tools can't leave.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions, OpenOptionsExt},
};
use rockbot_tools::ToolFailure;
use rustix::fs::OFlags;

use super::{config::FilesError, path::RelativePath};

/// An open directory. Nothing that is opened through it lies outside of it.
#[derive(Debug)]
pub(super) struct Root {
    dir: Dir,
    /// Absolute. Only for what has no descriptor-relative form: the working directory of a command.
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

    /// Held from reading a file to replacing it: calls of one turn run side by side, and an edit
    /// must not undo the one beside it.
    pub(super) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file for reading, through symbolic links that stay inside.
    pub(super) fn open_file(&self, path: &RelativePath) -> Result<fs::File, ToolFailure> {
        // Opening a device may already act on it, so the kind is asked for first; what was opened
        // is checked again, because it may be another file by then.
        let metadata = self.dir.metadata(path.as_path()).map_err(|error| refused(path, error))?;
        if metadata.is_dir() {
            return Err(ToolFailure::failed(format!(
                "{path} is a directory; see what is in it with list_files"
            )));
        }
        if !metadata.is_file() {
            return Err(not_regular(path));
        }
        match open_regular(&self.dir, path.as_path(), OFlags::empty()) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(not_regular(path)),
            Err(error) => Err(refused(path, error)),
        }
    }

    /// The path without symbolic links and `..`, relative to the root; empty for the root.
    pub(super) fn resolve(&self, path: &RelativePath) -> Result<PathBuf, ToolFailure> {
        let resolved =
            self.dir.canonicalize(path.as_path()).map_err(|error| refused(path, error))?;
        Ok(if resolved == Path::new(".") { PathBuf::new() } else { resolved })
    }
}

/// Opens a regular file for reading; none for anything else. Never waits for the other end of a
/// FIFO.
pub(super) fn open_regular(dir: &Dir, path: &Path, more: OFlags) -> io::Result<Option<fs::File>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = dir.open_with(path, &options)?.into_std();
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Opens a directory that is no symbolic link.
pub(super) fn open_directory(dir: &Dir, name: &Path) -> io::Result<Dir> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    Ok(Dir::from_std_file(dir.open_with(name, &options)?.into_std()))
}

pub(super) fn not_regular(path: &RelativePath) -> ToolFailure {
    ToolFailure::failed(format!("{path} is not a regular file but a FIFO, a socket or a device"))
}

/// What the model is told about a path that can't be used.
pub(super) fn refused(path: &RelativePath, error: io::Error) -> ToolFailure {
    // A refusal of the root itself has no errno: no system call said it.
    let escapes = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none();
    let message = match error.kind() {
        _ if escapes => {
            format!("{path} leads outside of the root of the files; use a path inside it")
        }
        io::ErrorKind::NotFound => {
            format!("{path} does not exist; see what is there with list_files")
        }
        io::ErrorKind::PermissionDenied => format!("{path}: permission denied"),
        io::ErrorKind::NotADirectory => {
            format!("a part of {path} before the last is not a directory")
        }
        io::ErrorKind::IsADirectory => format!("{path} is a directory"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{path}: no space is left")
        }
        io::ErrorKind::ReadOnlyFilesystem => format!("{path} is on a read-only file system"),
        io::ErrorKind::InvalidFilename => format!("a name in {path} is too long or not allowed"),
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            format!("{path} leads through too many symbolic links")
        }
        _ => format!("{path} can't be used: input or output failed"),
    };
    ToolFailure::caused(message, error)
}
