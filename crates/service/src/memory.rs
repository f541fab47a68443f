//! Memory that the process may use.

use std::{
    fs,
    path::{Component, Path},
};

/// Maximum size of a file of the kernel that is read, in bytes.
const MAX_FILE_BYTES: usize = 64 * 1024;

/// Returns the memory that this process may use, in bytes: the lowest limit of its control groups, or
/// the memory of the machine if that is less. `None` where neither is known, as outside of Linux.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let group = group_limit(&groups, Path::new("/sys/fs/cgroup"));
    let machine = read(Path::new("/proc/meminfo")).as_deref().and_then(machine_memory);
    group.into_iter().chain(machine).min()
}

/// Returns the lowest limit of the control groups of a process and of the groups around them.
///
/// In a container the paths may be those of the host, which do not exist there; the limit of the
/// container is then at the mount itself.
fn group_limit(groups: &str, mount: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let path = if is_plain { path } else { Path::new("") };
        // The last ancestor is the mount.
        path.ancestors().filter_map(|group| limit(&root.join(group).join(file))).min()
    });
    limits.min()
}

/// Returns the limit in a file; `None` if there is no file or no limit.
fn limit(file: &Path) -> Option<u64> {
    read(file)?.trim().parse().ok()
}

fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn read(file: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(file).ok()?.take(MAX_FILE_BYTES as u64).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        mount
    }

    #[test]
    fn lowest_limit_of_all_groups_applies() {
        let mount = with(&[
            ("a/memory.max", "1000\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/c/memory.max", "2000\n"),
        ]);
        assert_eq!(group_limit("0::/a/b/c\n", mount.path()), Some(1_000));
        assert_eq!(group_limit("0::/a/b/c/d\n", mount.path()), Some(1_000));
        assert_eq!(group_limit("0::/other\n", mount.path()), None);
    }

    #[test]
    fn container_without_its_own_path_has_the_limit_of_the_mount() {
        let mount = with(&[
            ("memory.max", "3000\n"),
            ("memory/memory.limit_in_bytes", "536870912\n"),
            ("secret", "1\n"),
        ]);
        assert_eq!(group_limit("0::/../x\n", mount.path()), Some(3_000));
        let groups = "12:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n";
        assert_eq!(group_limit(groups, mount.path()), Some(512 << 20));
        assert_eq!(group_limit("1:cpu:/\nx\n", mount.path()), None);
    }

    #[test]
    fn memory_of_the_machine_is_read() {
        assert_eq!(machine_memory("MemTotal:  2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(machine_memory("MemFree: 1 kB\n"), None);
    }
}
