//! Folders that go when they are done with, also after a process that had no time for it.

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

/// Held by whoever uses the folder it is in.
const LOCK: &str = "lock";
/// A folder as young as this may not have its lock yet.
const SETTLED: Duration = Duration::from_secs(60);

/// The folder of one script, inside another one that the script can't write to.
#[derive(Debug)]
pub(super) struct ScriptFolder {
    outer: PathBuf,
    path: PathBuf,
}

impl ScriptFolder {
    pub(super) fn make(within: &Path) -> io::Result<Self> {
        let outer = tempfile::tempdir_in(within)?.keep();
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
                tracing::warn!(%error, "the folder of a script could not be removed");
            }
        };
        // A script can leave so much that it takes a while.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Keeps a folder from being swept for as long as the file is open.
pub(super) fn hold(folder: &Path) -> io::Result<File> {
    let lock = File::create(folder.join(LOCK))?;
    lock.lock()?;
    Ok(lock)
}

/// Removes folders of this user whose name begins so and that nobody holds any more.
pub(super) fn sweep(within: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(within) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        if is_left(&entry).unwrap_or(false)
            && let Err(error) = remove(&entry.path())
        {
            tracing::warn!(%error, "a folder that was left behind could not be removed");
        }
    }
}

fn is_left(entry: &fs::DirEntry) -> io::Result<bool> {
    let found = entry.metadata()?;
    let settled = found.modified()?.elapsed().is_ok_and(|age| age >= SETTLED);
    if !found.is_dir() || found.uid() != geteuid().as_raw() || !settled {
        return Ok(false);
    }
    match File::open(entry.path().join(LOCK)) {
        Ok(lock) => Ok(!matches!(lock.try_lock(), Err(TryLockError::WouldBlock))),
        Err(error) => Ok(error.kind() == io::ErrorKind::NotFound),
    }
}

/// Removes a folder with all that is in it, whatever its rights and however deep it is: folders are
/// moved up before they are emptied, so that no path grows and nothing recurses. Links are not followed.
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
            // One that may not be written to can't be moved.
            open(inside.as_fd(), found.as_c_str())?;
            let moved = loop {
                number += 1;
                let moved = CString::new(format!("removing-{number}"))?;
                match renameat(&inside, found.as_c_str(), &top, moved.as_c_str()) {
                    Ok(()) => break moved,
                    // Left by a removal that did not come to its end.
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

/// Opens a folder, after giving ourselves the right to.
fn open(within: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let only = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(within, name, only | OFlags::PATH, Mode::empty())?;
    chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)?;
    Ok(openat(&place, ".", only, Mode::empty())?)
}

/// Removes files, and hands on the names of folders.
fn empty(
    folder: BorrowedFd<'_>,
    mut folder_found: impl FnMut(CString) -> io::Result<()>,
) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => folder_found(name.to_owned())?,
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
    fn a_folder_goes_however_deep_and_closed_it_is_and_links_lead_nowhere() {
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
    fn what_a_killed_process_left_is_swept_and_what_is_held_or_young_stays() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let old = |path: &Path| {
            let then = SystemTime::now() - SETTLED * 2;
            File::open(path).unwrap().set_modified(then).unwrap();
        };
        let (held, left, bare) = (make("x-held"), make("x-left"), make("x-bare"));
        let (young, other) = (make("x-young"), make("other"));
        let lock = hold(&held).unwrap();
        drop(hold(&left).unwrap());
        for path in [&held, &left, &bare, &other] {
            old(path);
        }
        sweep(folder.path(), "x-");
        assert_eq!(
            [&held, &left, &bare, &young, &other].map(|path| path.exists()),
            [true, false, false, true, true]
        );
        drop(lock);
        sweep(folder.path(), "x-");
        assert!(!held.exists());
    }
}
