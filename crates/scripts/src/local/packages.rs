//! Sets of installed packages, each in a folder of its own, kept for the next script that asks for the
//! same.

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::SystemTime,
};

use rockbot_tools::ToolFailure;
use sha2::{Digest, Sha256};

use super::{
    folders,
    installer::{Installer, unusable},
    interpreter::Interpreter,
    options::PackageOptions,
};
use crate::requirement::Requirements;

/// What a set is called until it is complete.
const UNFINISHED: &str = "unfinished-";
const NAME_BYTES: usize = 16;

/// All sets of a runner.
#[derive(Debug)]
pub(super) struct Packages {
    options: PackageOptions,
    tag: String,
    installer: Installer,
    /// Those in use or in the making, by name.
    sets: Mutex<HashMap<String, Weak<Set>>>,
}

#[derive(Debug)]
struct Set {
    name: String,
    path: PathBuf,
    /// Held while it is made: two that ask for the same make one.
    making: tokio::sync::Mutex<()>,
}

/// A complete set, not removed while this is held.
#[derive(Debug, Clone)]
pub(super) struct PackageSet(Arc<Set>);

impl PackageSet {
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// Where it is.
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
        // What is mounted elsewhere needs a path that means the same there.
        let folder = options.folder.canonicalize()?;
        let left = folder.clone();
        tokio::task::spawn_blocking(move || folders::sweep(&left, UNFINISHED));
        let installer = Installer::new(&interpreter.program, options.timeout);
        let (tag, sets) = (interpreter.tag.clone(), Mutex::default());
        Ok(Self { options: PackageOptions { folder, ..options.clone() }, tag, installer, sets })
    }

    /// The set with these packages, installed unless it is there.
    ///
    /// # Cancellation
    /// Dropping the future ends the installation and removes what it left.
    pub(super) async fn set(&self, packages: &Requirements) -> Result<PackageSet, ToolFailure> {
        let set = self.named(self.name(packages));
        let _making = set.making.lock().await;
        if set.path.is_dir() {
            touch(&set.path);
        } else {
            self.make(packages, &set.path).await?;
            self.forget_the_oldest();
        }
        drop(_making);
        Ok(PackageSet(set))
    }

    fn named(&self, name: String) -> Arc<Set> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|_, set| set.strong_count() > 0);
        if let Some(set) = sets.get(&name).and_then(Weak::upgrade) {
            return set;
        }
        let path = self.options.folder.join(&name);
        let set = Arc::new(Set { name: name.clone(), path, making: tokio::sync::Mutex::default() });
        sets.insert(name, Arc::downgrade(&set));
        set
    }

    async fn make(&self, packages: &Requirements, path: &Path) -> Result<(), ToolFailure> {
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.options.folder)
            .map_err(|error| unusable(&error))?;
        let _held = folders::hold(unfinished.path()).map_err(|error| unusable(&error))?;
        let (list, folder) = (unfinished.path().join("list"), unfinished.path().join("packages"));
        self.installer.install(packages, &list, &folder).await?;
        let installed = folder.clone();
        let opened = tokio::task::spawn_blocking(move || open_to_all(&installed)).await;
        opened.map_err(io::Error::other).flatten().map_err(|error| unusable(&error))?;
        match fs::rename(&folder, path) {
            // Another process with the same folder was faster; its set is as good.
            Err(error) if !path.is_dir() => Err(unusable(&error)),
            _ => Ok(()),
        }
    }

    /// Removes sets that nobody uses until there are no more than may be kept.
    fn forget_the_oldest(&self) {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(folder) = fs::read_dir(&self.options.folder) else { return };
        let mut kept: Vec<(SystemTime, PathBuf, bool)> = folder
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let complete = name.len() == NAME_BYTES * 2 && !name.starts_with(UNFINISHED);
                let used = sets.get(&name).is_some_and(|set| set.strong_count() > 0);
                let time = entry.metadata().ok()?.modified().ok()?;
                complete.then(|| (time, entry.path(), used))
            })
            .collect();
        kept.sort();
        let surplus = kept.len().saturating_sub(self.options.kept);
        for (_, path, _) in kept.into_iter().filter(|(.., used)| !used).take(surplus) {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(%error, "a set of packages could not be removed");
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

/// Lets everybody read what our umask may have kept to us: a script is another user where we are root.
fn open_to_all(folder: &Path) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let runs = entry.metadata()?.permissions().mode() & 0o100 != 0;
                let mode = if runs { 0o755 } else { 0o644 };
                fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

/// Marks a set as used now; when that fails it is only forgotten earlier.
fn touch(path: &Path) {
    if let Err(error) = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(%error, "a set of packages could not be marked as used");
    }
}
