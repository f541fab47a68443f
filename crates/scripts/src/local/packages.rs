//! Sets of installed packages, each in a folder of its own and reused by later scripts.

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use rockbot_tools::ToolFailure;
use sha2::{Digest, Sha256};

use super::{
    folders,
    installer::{Installer, unavailable},
    interpreter::Interpreter,
    options::PackageOptions,
};
use crate::{requirement::Requirements, runner::MAX_TIMEOUT};

/// The prefix of a set's folder until the set is complete.
const UNFINISHED: &str = "unfinished-";
const NAME_BYTES: usize = 16;
/// The time after its last use in which a set is not removed: other processes may share the folder, and
/// no script runs longer.
const IN_USE: Duration = MAX_TIMEOUT.saturating_mul(2);

/// The package sets of a runner.
#[derive(Debug)]
pub(super) struct Packages {
    options: PackageOptions,
    tag: String,
    installer: Installer,
    /// Sets in use or being installed, by name.
    sets: Mutex<HashMap<String, Weak<Set>>>,
}

#[derive(Debug)]
struct Set {
    name: String,
    path: PathBuf,
    /// Locked during installation, so that concurrent requests for a set install it once.
    installing: tokio::sync::Mutex<()>,
}

/// A complete set, which is not removed while this exists.
#[derive(Debug, Clone)]
pub(super) struct PackageSet(Arc<Set>);

impl PackageSet {
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the folder of the set.
    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }
}

impl Packages {
    pub(super) fn open(options: &PackageOptions, interpreter: &Interpreter) -> io::Result<Self> {
        if !options.folder.is_dir() {
            fs::create_dir_all(&options.folder)?;
            fs::set_permissions(&options.folder, Permissions::from_mode(0o755))?;
        }
        // Canonical, because the folder is also mounted elsewhere.
        let folder = options.folder.canonicalize()?;
        let parent = folder.clone();
        tokio::task::spawn_blocking(move || folders::sweep(&parent, UNFINISHED));
        let installer = Installer::new(&interpreter.program, options.timeout);
        let (tag, sets) = (interpreter.tag.clone(), Mutex::default());
        Ok(Self { options: PackageOptions { folder, ..options.clone() }, tag, installer, sets })
    }

    /// Returns the set with these packages and installs it if necessary.
    ///
    /// # Cancellation
    /// Dropping the future stops the installation and removes its files.
    pub(super) async fn set(&self, packages: &Requirements) -> Result<PackageSet, ToolFailure> {
        let set = self.entry(self.name(packages));
        let installing = set.installing.lock().await;
        if set.path.is_dir() {
            touch(&set.path);
        } else {
            self.install(packages, &set.path).await?;
            self.remove_oldest();
        }
        drop(installing);
        Ok(PackageSet(set))
    }

    fn entry(&self, name: String) -> Arc<Set> {
        let mut sets = self.sets.lock();
        sets.retain(|_, set| set.strong_count() > 0);
        if let Some(set) = sets.get(&name).and_then(Weak::upgrade) {
            return set;
        }
        let path = self.options.folder.join(&name);
        let installing = tokio::sync::Mutex::default();
        let set = Arc::new(Set { name: name.clone(), path, installing });
        sets.insert(name, Arc::downgrade(&set));
        set
    }

    async fn install(&self, packages: &Requirements, path: &Path) -> Result<(), ToolFailure> {
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.options.folder)
            .map_err(|error| unavailable(&error))?;
        let _lock = folders::lock(unfinished.path()).map_err(|error| unavailable(&error))?;
        let (list, folder) = (unfinished.path().join("list"), unfinished.path().join("packages"));
        self.installer.install(packages, &list, &folder).await?;
        let installed = folder.clone();
        let opened = tokio::task::spawn_blocking(move || make_readable(&installed)).await;
        opened.map_err(io::Error::other).flatten().map_err(|error| unavailable(&error))?;
        match fs::rename(&folder, path) {
            // Another process with the same folder was faster; its set is equal.
            Err(error) if !path.is_dir() => Err(unavailable(&error)),
            _ => Ok(()),
        }
    }

    /// Removes the least recently used sets beyond the limit, except those in use here, and those that
    /// another process may use.
    fn remove_oldest(&self) {
        let sets = self.sets.lock();
        let Ok(folder) = fs::read_dir(&self.options.folder) else { return };
        let mut found: Vec<(SystemTime, PathBuf, bool)> = folder
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let complete = name.len() == NAME_BYTES * 2 && !name.starts_with(UNFINISHED);
                let time = entry.metadata().ok()?.modified().ok()?;
                let used = sets.get(&name).is_some_and(|set| set.strong_count() > 0)
                    || time.elapsed().is_ok_and(|age| age < IN_USE);
                complete.then(|| (time, entry.path(), used))
            })
            .collect();
        found.sort();
        let surplus = found.len().saturating_sub(self.options.max_sets);
        for (_, path, _) in found.into_iter().filter(|(.., used)| !used).take(surplus) {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(%error, "package set removal failed");
            }
        }
    }

    fn name(&self, packages: &Requirements) -> String {
        let mut hash = Sha256::new();
        for part in [&*self.tag].into_iter().chain(packages.iter()) {
            hash.update(part);
            hash.update([0]);
        }
        hash.finalize()[..NAME_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Makes a folder readable for all users regardless of the umask: under root, scripts run as another user.
fn make_readable(folder: &Path) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let is_executable = entry.metadata()?.permissions().mode() & 0o100 != 0;
                let mode = if is_executable { 0o755 } else { 0o644 };
                fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

/// Marks a set as used now. A failure only makes its removal more likely.
fn touch(path: &Path) {
    if let Err(error) = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(%error, "package set timestamp update failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_beyond_limit_are_removed_unless_recently_used() {
        let folder = tempfile::tempdir().unwrap();
        let packages = Packages {
            options: PackageOptions { max_sets: 1, ..PackageOptions::new(folder.path()) },
            tag: String::new(),
            installer: Installer::new(Path::new("python3"), Duration::from_secs(1)),
            sets: Mutex::default(),
        };
        let day = Duration::from_secs(24 * 60 * 60);
        let set = |name: char, age: Duration| {
            let path = folder.path().join(name.to_string().repeat(NAME_BYTES * 2));
            fs::create_dir(&path).unwrap();
            fs::File::open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let (old, held) = (set('a', 2 * day), set('b', 3 * day));
        let (recent, current) = (set('c', IN_USE / 2), set('d', Duration::ZERO));
        let _in_use = packages.entry("b".repeat(NAME_BYTES * 2));
        packages.remove_oldest();
        assert!(!old.exists());
        assert!(held.exists() && recent.exists() && current.exists());
    }
}
