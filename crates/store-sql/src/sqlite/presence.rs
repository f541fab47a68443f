//! Detection of a database file that was removed or replaced while it is open.
//!
//! An open file stays usable after its removal, and later writes to it are lost with the process. A store
//! that lost its file is therefore unavailable until the process starts again, for reads too: SQLite cannot adopt a file
//! that was moved back under an open connection.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rockbot_store::StoreError;
use tokio::{task::spawn_blocking, time::Instant};
use tracing::error;

/// Minimum time between two checks: each takes a fraction of a commit.
const INTERVAL: Duration = Duration::from_millis(100);

/// The file that a store was opened on. Clones share the result of their checks.
#[derive(Debug, Clone)]
pub(super) struct Presence(Arc<File>);

#[derive(Debug)]
struct File {
    path: PathBuf,
    identity: Identity,
    opened: Instant,
    /// Milliseconds from `opened` to the last check.
    checked: AtomicU64,
    is_lost: AtomicBool,
}

/// Device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    async fn read(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        let metadata =
            spawn_blocking(move || fs::metadata(path)).await.map_err(io::Error::other)??;
        Ok(Self(metadata.dev(), metadata.ino()))
    }
}

impl Presence {
    /// Remembers the file that is at `path` now.
    pub(super) async fn of(path: &Path) -> io::Result<Self> {
        let identity = Identity::read(path).await?;
        Ok(Self(Arc::new(File {
            path: path.to_owned(),
            identity,
            opened: Instant::now(),
            checked: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
        })))
    }

    /// Checks that the file is still at its path, at most every 100 ms.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] from the first check that does not find it.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let now = self.now();
        let elapsed = now.saturating_sub(self.0.checked.load(Ordering::Relaxed));
        if elapsed < INTERVAL.as_millis() as u64 && !self.0.is_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check_now().await
    }

    /// Checks that the file is still at its path.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] from the first check that does not find it.
    pub(super) async fn check_now(&self) -> Result<(), StoreError> {
        let File { path, identity, checked, is_lost, .. } = &*self.0;
        if !is_lost.load(Ordering::Relaxed) {
            // Another error, such as a lack of permission, does not show that the file is gone.
            let is_present = match Identity::read(path).await {
                Ok(found) => found == *identity,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            };
            checked.store(self.now(), Ordering::Relaxed);
            if is_present {
                return Ok(());
            }
            if !is_lost.swap(true, Ordering::Relaxed) {
                error!(path = %path.display(), "database file removed or replaced");
            }
        }
        let reason = "the database file was removed or replaced while it was open; restore it and restart the \
                      process"
            .to_owned();
        Err(StoreError::Unavailable { reason })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
