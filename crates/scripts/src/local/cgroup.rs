//! A memory cgroup for each script, where a part of the hierarchy of cgroup v2 is delegated to this process.
//!
//! It bounds memory that the supervisor does not count: the kernel's for a script, and allocations between two counts.
//! systemd delegates with `Delegate=memory`. A container has a hierarchy of its own, if it may write to it.

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
/// Ends of the names of cgroups that systemd manages.
const UNIT_KINDS: [&str; 3] = ["service", "scope", "slice"];
/// systemd marks what it delegates with one of these attributes.
const DELEGATION_MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Why no cgroups can be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum CgroupsUnavailable {
    #[error("this process is in no cgroup v2 with a memory controller")]
    NoController,
    #[error("{} is not delegated to this process; set Delegate=memory in its unit of systemd", .0.display())]
    NotDelegated(PathBuf),
    #[error(
        "other processes are in {}, which a process must be alone in to divide it; start it without a wrapper, or in a \
         subgroup of its own", .0.display()
    )]
    Shared(PathBuf),
    #[error("{}: {error}", .folder.display())]
    Io { folder: PathBuf, error: io::Error },
}

impl CgroupsUnavailable {
    /// Returns whether a delegated cgroup was found that cannot be used.
    pub(super) fn is_unexpected(&self) -> bool {
        matches!(self, Self::Shared(_) | Self::Io { .. })
    }
}

/// The delegated cgroup, in which each script gets one.
#[derive(Debug)]
pub(super) struct MemoryCgroups {
    folder: PathBuf,
    max_bytes: u64,
    /// Cgroups of ended scripts whose last processes were still ending.
    ended: Mutex<Vec<PathBuf>>,
}

impl MemoryCgroups {
    /// Finds the delegated cgroup, and moves this process to one of its own below it. `bytes` is the limit of the
    /// processes and the folder of a script.
    pub(super) fn find(bytes: u64) -> Result<Self, CgroupsUnavailable> {
        let (own, mount) = own_cgroup().ok_or(CgroupsUnavailable::NoController)?;
        // systemd divides the cgroup above that of a unit. The one above a subgroup of this process is its own.
        let is_unit =
            own.extension().is_some_and(|kind| UNIT_KINDS.iter().any(|unit| kind == *unit));
        let above = own.parent().filter(|_| !is_unit);
        let candidates = [Some(own.as_path()), above].into_iter().flatten();
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
        for entry in fs::read_dir(&folder).map_err(failed)?.flatten() {
            if is_left_over(&entry.file_name().to_string_lossy()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let max_bytes = bytes.saturating_add(KERNEL_BYTES);
        Ok(Self { folder, max_bytes, ended: Mutex::default() })
    }

    /// Creates the cgroup of a script.
    pub(super) fn create(self: &Arc<Self>) -> io::Result<MemoryCgroup> {
        self.ended.lock().retain(|path| fs::remove_dir(path).is_err());
        let path = self.create_folder()?;
        let cgroup = MemoryCgroup { path, all: self.clone() };
        fs::write(cgroup.path.join("memory.max"), self.max_bytes.to_string())?;
        fs::write(cgroup.path.join("memory.oom.group"), "1")?;
        // Missing where the kernel does not count swapped memory.
        match fs::write(cgroup.path.join("memory.swap.max"), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(cgroup),
        }
    }

    fn create_folder(&self) -> io::Result<PathBuf> {
        // Of all runners of this process.
        static CREATED: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.join(format!("{SCRIPT_PREFIX}{}-{number}", process::id()));
            match fs::create_dir(&path) {
                // Of an earlier process with the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created.map(|()| path),
            }
        }
    }
}

/// Returns whether a name is that of the cgroup of a script whose runner has exited. Another runner creates cgroups
/// before their scripts enter.
fn is_left_over(name: &str) -> bool {
    let runner = name.strip_prefix(SCRIPT_PREFIX).and_then(|rest| rest.split_once('-'));
    runner.is_some_and(|(runner, _)| !Path::new("/proc").join(runner).exists())
}

/// The cgroup of one script. Dropping it kills the rest of the script.
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

/// Returns whether this process may divide a cgroup: systemd marked it, it is the root of a container, or it is the first
/// one that this user owns. systemd manages those that its user owns below that.
fn is_delegated(folder: &Path, mount: &Path) -> bool {
    let is_marked = || {
        DELEGATION_MARKS.iter().any(|mark| {
            let mut value = [0; 1];
            getxattr(folder, *mark, &mut value) == Ok(1) && value == *b"1"
        })
    };
    let user = geteuid();
    let is_own = |path: &Path| fs::metadata(path).is_ok_and(|one| one.uid() == user.as_raw());
    let is_first = || {
        let parent = folder.parent().filter(|parent| parent.starts_with(mount));
        !user.is_root() && is_own(folder) && !parent.is_some_and(is_own)
    };
    // The root of the machine has no type.
    let is_container = || folder == mount && folder.join("cgroup.type").exists();
    access(folder, Access::WRITE_OK).is_ok() && (is_first() || is_marked() || is_container())
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
    fn cgroups_of_running_runners_are_kept() {
        assert!(!is_left_over(&format!("script-{}-0", process::id())));
        // Above the highest process id.
        assert!(is_left_over("script-99999999-0"));
        assert!(!is_left_over("rockbot"));
    }

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
