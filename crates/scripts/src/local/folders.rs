//! Temporary folders that are removed after use, including those of killed processes.

use std::{
    ffi::CString,
    fs::{self, File, TryLockError},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};
use tokio::runtime::Handle;

/// The lock file of a folder, locked while the folder is in use.
const LOCK: &str = "lock";
/// A folder younger than this may not have its lock yet.
const MIN_AGE: Duration = Duration::from_secs(60);

/// The folder of one script, inside a folder that the script can't write to.
#[derive(Debug)]
pub(super) struct ScriptFolder {
    outer: PathBuf,
    path: PathBuf,
}

impl ScriptFolder {
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        let outer = tempfile::tempdir_in(parent)?.keep();
        let path = outer.join("script");
        let folder = Self { outer, path };
        fs::create_dir(&folder.path)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScriptFolder {
    fn drop(&mut self) {
        let outer = std::mem::take(&mut self.outer);
        let remove = move || {
            if let Err(error) = remove(&outer) {
                tracing::warn!(%error, "script folder removal failed");
            }
        };
        // In the background: a script can leave many files.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Locks a folder, which is not swept while the file is open.
pub(super) fn lock(folder: &Path) -> io::Result<File> {
    let lock = File::create(folder.join(LOCK))?;
    lock.lock()?;
    Ok(lock)
}

/// Removes unlocked folders of this user whose names have this prefix.
pub(super) fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        if is_abandoned(&entry).unwrap_or(false)
            && let Err(error) = remove(&entry.path())
        {
            tracing::warn!(%error, "abandoned folder removal failed");
        }
    }
}

fn is_abandoned(entry: &fs::DirEntry) -> io::Result<bool> {
    let found = entry.metadata()?;
    let is_old = found.modified()?.elapsed().is_ok_and(|age| age >= MIN_AGE);
    if !found.is_dir() || found.uid() != geteuid().as_raw() || !is_old {
        return Ok(false);
    }
    match File::open(entry.path().join(LOCK)) {
        Ok(lock) => Ok(!matches!(lock.try_lock(), Err(TryLockError::WouldBlock))),
        Err(error) => Ok(error.kind() == io::ErrorKind::NotFound),
    }
}

/// Removes a folder and its content, whatever the permissions and the depth: nested folders are moved up
/// before they are emptied, so that no path grows and nothing recurses. Links are not followed.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    let top = open(CWD, folder)?;
    let (mut pending, mut number) = (Vec::new(), 0_u64);
    empty(top.as_fd(), |name| {
        pending.push(name);
        Ok(())
    })?;
    while let Some(name) = pending.pop() {
        let inside = open(top.as_fd(), name.as_c_str())?;
        empty(inside.as_fd(), |found| {
            // A folder without write permission can't be moved.
            open(inside.as_fd(), found.as_c_str())?;
            let moved = loop {
                number += 1;
                let moved = CString::new(format!("removing-{number}"))?;
                match renameat(&inside, found.as_c_str(), &top, moved.as_c_str()) {
                    Ok(()) => break moved,
                    // Left by an interrupted removal.
                    Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                    Err(error) => return Err(error.into()),
                }
            };
            pending.push(moved);
            Ok(())
        })?;
        unlinkat(&top, name.as_c_str(), AtFlags::REMOVEDIR)?;
    }
    fs::remove_dir(folder)
}

/// Opens a folder after granting ourselves access to it.
fn open(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU)?;
    Ok(openat(&handle, ".", flags, Mode::empty())?)
}

/// Removes the files of a folder and passes the names of its folders on.
fn empty(
    folder: BorrowedFd<'_>,
    mut on_folder: impl FnMut(CString) -> io::Result<()>,
) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => on_folder(name.to_owned())?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt, time::SystemTime};

    use rustix::process::{chdir, fchdir};

    use super::*;

    #[test]
    fn deep_unwritable_folder_is_removed_without_following_links() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "x").unwrap();
        let folder = tempfile::tempdir().unwrap().keep();
        std::os::unix::fs::symlink(outside.path(), folder.join("link")).unwrap();
        fs::create_dir(folder.join("removing-1")).unwrap();
        fs::write(folder.join("removing-1/file"), "x").unwrap();
        let start = open(CWD, ".").unwrap();
        chdir(&folder).unwrap();
        for _ in 0..3000 {
            fs::create_dir("deep").unwrap();
            fs::write("file", "x").unwrap();
            chdir("deep").unwrap();
        }
        fchdir(&start).unwrap();
        fs::set_permissions(folder.join("deep/deep"), Permissions::from_mode(0o000)).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists());
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn sweep_removes_abandoned_folders_only() {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let age = |path: &Path| {
            let then = SystemTime::now() - MIN_AGE * 2;
            File::open(path).unwrap().set_modified(then).unwrap();
        };
        let (locked, unlocked, bare) = (create("x-locked"), create("x-unlocked"), create("x-bare"));
        let (young, other) = (create("x-young"), create("other"));
        let held = lock(&locked).unwrap();
        drop(lock(&unlocked).unwrap());
        for path in [&locked, &unlocked, &bare, &other] {
            age(path);
        }
        sweep(folder.path(), "x-");
        assert_eq!(
            [&locked, &unlocked, &bare, &young, &other].map(|path| path.exists()),
            [true, false, false, true, true]
        );
        drop(held);
        sweep(folder.path(), "x-");
        assert!(!locked.exists());
    }
}
