//! Atomic replacement of a file: a reader sees the old or the new content, never a mix.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use rockbot_tools::{Executed, ToolFailure};

use super::{
    path::RelativePath,
    root::{Root, access_failure, not_regular},
    stop::StopCondition,
};

/// The location to write a file to: symbolic links are resolved, directories exist.
#[derive(Debug)]
pub(super) struct Target {
    directory: Dir,
    name: OsString,
    existing: Option<Permissions>,
}

impl Target {
    /// Resolves the location of a file and creates its parent directories.
    pub(super) fn prepare(root: &Root, path: &RelativePath) -> Result<Self, ToolFailure> {
        let resolved = resolve(root, path)?;
        let Some(name) = resolved.file_name().map(OsStr::to_owned) else {
            return Err(ToolFailure::failed(format!("{path} is a directory; name a file in it")));
        };
        let parent = resolved.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = root.dir().open_dir(parent.unwrap_or(Path::new(".")));
        let directory = directory.map_err(|error| access_failure(path, error))?;
        let existing = match directory.symlink_metadata(&name) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(ToolFailure::failed(format!(
                    "{path} is a directory; name a file in it"
                )));
            }
            Ok(metadata) if !metadata.is_file() => return Err(not_regular(path)),
            Ok(metadata) if metadata.permissions().readonly() => {
                return Err(ToolFailure::failed(format!(
                    "{path} is read-only and was not changed"
                )));
            }
            Ok(metadata) => Some(metadata.permissions()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(access_failure(path, error)),
        };
        Ok(Self { directory, name, existing })
    }

    /// Returns whether the file already exists.
    pub(super) fn exists(&self) -> bool {
        self.existing.is_some()
    }

    /// Writes the content and replaces the file, unless the call was cancelled or timed out.
    pub(super) fn replace(
        &self,
        path: &RelativePath,
        content: &[u8],
        stop: &StopCondition,
    ) -> Result<(), ToolFailure> {
        let (mut file, draft) = self.create_draft().map_err(|error| access_failure(path, error))?;
        self.fill(&mut file, content).map_err(|error| access_failure(path, error))?;
        stop.check(Executed::No)?;
        draft.replace(&self.name).map_err(|error| access_failure(path, error))
    }

    fn fill(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)?;
        if let Some(permissions) = &self.existing {
            // Setuid and setgid bits are dropped: changing a program must not grant its owner's rights.
            file.set_permissions(Permissions::from_mode(permissions.mode() & 0o777))?;
        }
        file.sync_data()
    }

    fn create_draft(&self) -> io::Result<(File, Draft<'_>)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        const ATTEMPTS: usize = 16;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if self.existing.is_some() {
            options.mode(0o600);
        }
        for _ in 0..ATTEMPTS {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let name = format!(".rockbot-{:x}-{number:x}.tmp", now.as_nanos());
            match self.directory.open_with(&name, &options) {
                Ok(file) => {
                    let name = Some(PathBuf::from(name));
                    return Ok((file, Draft { directory: &self.directory, name }));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// A temporary file beside the target. It is removed unless it replaces the target.
struct Draft<'a> {
    directory: &'a Dir,
    name: Option<PathBuf>,
}

impl Draft<'_> {
    fn replace(mut self, target: &OsStr) -> io::Result<()> {
        if let Some(name) = &self.name {
            self.directory.rename(name, self.directory, target)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = self.directory.remove_file(name)
        {
            tracing::debug!(%error, "temporary file removal failed");
        }
    }
}

/// Resolves the path to write to. A symbolic link is followed; a dangling one is rejected, because its
/// target may be outside the root.
fn resolve(root: &Root, path: &RelativePath) -> Result<PathBuf, ToolFailure> {
    let given = path.as_path();
    match root.dir().canonicalize(given) {
        Ok(resolved) => return Ok(resolved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(access_failure(path, error)),
    }
    if root.dir().symlink_metadata(given).is_ok() {
        return Err(ToolFailure::failed(format!(
            "{path} is a dangling symbolic link; write to another path"
        )));
    }
    let (Some(name), Some(parent)) = (given.file_name(), given.parent()) else {
        return Err(ToolFailure::failed(format!("{path} is not a file name")));
    };
    if parent.as_os_str().is_empty() {
        return Ok(PathBuf::from(name));
    }
    root.dir().create_dir_all(parent).map_err(|error| access_failure(path, error))?;
    let parent = root.dir().canonicalize(parent).map_err(|error| access_failure(path, error))?;
    Ok(parent.join(name))
}
