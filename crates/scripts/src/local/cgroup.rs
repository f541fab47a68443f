//! A memory cgroup for each script, where a part of the hierarchy of cgroup v2 is delegated to this process.
//!
//! It bounds what the supervisor does not count: the kernel's memory for a script, and what is allocated between two
//! counts. systemd delegates with `Delegate=memory`. A container has a hierarchy of its own, if it may write to it.

use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::{
    fs::{Access, access, getxattr},
    process::geteuid,
};

/// The kernel's memory for a script beside that of its processes and its folder.
const KERNEL_BYTES: u64 = 64 * 1024 * 1024;
/// The cgroup of this process below the delegated one: a cgroup with processes cannot limit others below it.
const OWN_NAME: &str = "rockbot";
const SCRIPT_PREFIX: &str = "script-";
/// systemd marks what it delegates with one of these attributes.
const DELEGATION_MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Why no cgroups can be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum CgroupsUnavailable {
    #[error("this process is in no cgroup v2 with a memory controller")]
    NoController,
    #[error("{} is not delegated to this process; set Delegate=memory in its unit of systemd", .0.display())]
    NotDelegated(PathBuf),
    #[error("other processes are in {}", .0.display())]
    Shared(PathBuf),
    #[error("{}: {error}", .folder.display())]
    Io { folder: PathBuf, error: io::Error },
}

/// The delegated cgroup, in which each script gets one.
#[derive(Debug)]
pub(super) struct MemoryCgroups {
    folder: PathBuf,
    max_bytes: u64,
    created: AtomicU64,
    /// Cgroups of ended scripts whose last processes were still ending.
    ended: Mutex<Vec<PathBuf>>,
}

impl MemoryCgroups {
    /// Finds the delegated cgroup, and moves this process to one of its own below it. `bytes` is the limit of the
    /// processes and the folder of a script.
    pub(super) fn find(bytes: u64) -> Result<Self, CgroupsUnavailable> {
        let (own, mount) = own_cgroup().ok_or(CgroupsUnavailable::NoController)?;
        let candidates = [Some(own.as_path()), own.parent()].into_iter().flatten();
        let mut candidates = candidates.filter(|folder| folder.starts_with(&mount));
        let folder = candidates
            .find(|folder| is_delegated(folder, &mount))
            .ok_or_else(|| CgroupsUnavailable::NotDelegated(own.clone()))?
            .to_owned();
        if !lists(&folder.join("cgroup.controllers"), "memory") {
            return Err(CgroupsUnavailable::NoController);
        }
        let failed = |error| CgroupsUnavailable::Io { folder: folder.clone(), error };
        if folder == own {
            leave(&folder)?;
        }
        let enabled = folder.join("cgroup.subtree_control");
        if !lists(&enabled, "memory") {
            fs::write(enabled, "+memory").map_err(failed)?;
        }
        // Those of a process that was killed. One that has processes is not removed.
        for entry in fs::read_dir(&folder).map_err(failed)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(SCRIPT_PREFIX) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let max_bytes = bytes.saturating_add(KERNEL_BYTES);
        Ok(Self { folder, max_bytes, created: AtomicU64::new(0), ended: Mutex::default() })
    }

    /// Creates the cgroup of a script.
    pub(super) fn create(self: &Arc<Self>) -> io::Result<MemoryCgroup> {
        self.ended.lock().retain(|path| fs::remove_dir(path).is_err());
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{SCRIPT_PREFIX}{}-{number}", process::id()));
        fs::create_dir(&path)?;
        let cgroup = MemoryCgroup { path, all: self.clone() };
        fs::write(cgroup.path.join("memory.max"), self.max_bytes.to_string())?;
        fs::write(cgroup.path.join("memory.oom.group"), "1")?;
        // Missing where the kernel does not count swapped memory.
        match fs::write(cgroup.path.join("memory.swap.max"), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(cgroup),
        }
    }
}

/// The cgroup of one script. Dropping it kills what is left of the script.
#[derive(Debug)]
pub(super) struct MemoryCgroup {
    path: PathBuf,
    all: Arc<MemoryCgroups>,
}

impl MemoryCgroup {
    /// Opens the file to which a process writes `0` in order to enter. The kernel checks the permissions of the
    /// process that opened it.
    pub(super) fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(File::options().write(true).open(self.path.join("cgroup.procs"))?.into())
    }

    /// Returns whether the kernel ended the script at its limit.
    pub(super) fn was_exceeded(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let mut kills = events.lines().filter_map(|line| line.strip_prefix("oom_kill "));
        kills.any(|count| count.trim() != "0")
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // Missing before Linux 5.14; the supervisor ends the script in any case.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        if fs::remove_dir(&self.path).is_err() {
            self.all.ended.lock().push(std::mem::take(&mut self.path));
        }
    }
}

/// Moves this process from a cgroup, in which it must be alone, to one below it.
fn leave(folder: &Path) -> Result<(), CgroupsUnavailable> {
    let failed = |error| CgroupsUnavailable::Io { folder: folder.to_owned(), error };
    let own = process::id().to_string();
    let members = fs::read_to_string(folder.join("cgroup.procs")).map_err(failed)?;
    if members.lines().any(|member| member != own) {
        return Err(CgroupsUnavailable::Shared(folder.to_owned()));
    }
    let target = folder.join(OWN_NAME);
    match fs::create_dir(&target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    fs::write(target.join("cgroup.procs"), own).map_err(failed)
}

/// Returns the cgroup of this process and the mount of its hierarchy.
fn own_cgroup() -> Option<(PathBuf, PathBuf)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    locate(&groups, &mounts)
}

/// Returns the folder of a cgroup and its mount, from the content of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn locate(groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, mount) = (fields.next()?, PathBuf::from(fields.next()?));
        let below = Path::new(own).strip_prefix(root).ok()?;
        kind.starts_with("cgroup2 ").then(|| (mount.join(below), mount))
    })
}

/// Returns whether this process may divide a cgroup: it owns it, systemd marked it, or it is the root of a container.
fn is_delegated(folder: &Path, mount: &Path) -> bool {
    let is_marked = || {
        DELEGATION_MARKS.iter().any(|mark| {
            let mut value = [0; 1];
            getxattr(folder, *mark, &mut value) == Ok(1) && value == *b"1"
        })
    };
    let user = geteuid();
    let is_owned =
        || !user.is_root() && fs::metadata(folder).is_ok_and(|one| one.uid() == user.as_raw());
    // The root of the machine has no type.
    let is_container = || folder == mount && folder.join("cgroup.type").exists();
    access(folder, Access::WRITE_OK).is_ok() && (is_owned() || is_marked() || is_container())
}

fn lists(file: &Path, name: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|one| one == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "25 1 0:23 / /proc rw - proc proc rw\n\
        30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn cgroup_is_found_below_its_mount() {
        let found = |groups, mounts| locate(groups, mounts).map(|(own, _)| own);
        let own = Some(PathBuf::from("/sys/fs/cgroup/a.slice/b.service"));
        assert_eq!(found("0::/a.slice/b.service\n", MOUNTS), own);
        let bound = MOUNTS.replace("0:26 / ", "0:26 /a.slice ");
        let below = Some(PathBuf::from("/sys/fs/cgroup/b.service"));
        assert_eq!(found("1:cpu:/x\n0::/a.slice/b.service\n", &bound), below);
        assert_eq!(found("0::/other.slice\n", &bound), None);
        assert_eq!(found("1:memory:/x\n", MOUNTS), None);
        assert_eq!(found("0::/a\n", "25 1 0:23 / /proc rw - proc proc rw\n"), None);
    }
}
