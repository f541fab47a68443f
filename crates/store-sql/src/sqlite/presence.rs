//! Detection of a database file that was removed or replaced while it is open.
//!
//! An open file stays usable after its removal, and later writes to it are lost with the process. A store
//! that lost its file is therefore unavailable until the process starts again: SQLite cannot adopt a file that was
//! moved back under an open connection.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rockbot_store::StoreError;
use tokio::{task::spawn_blocking, time::Instant};
use tracing::error;

/// Minimum time between two checks: each takes a fraction of a commit.
const INTERVAL: Duration = Duration::from_millis(100);

/// The file that a store was opened on.
#[derive(Debug)]
pub(super) struct Presence {
    path: PathBuf,
    identity: Identity,
    checked: Instant,
    is_present: bool,
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
        Ok(Self { path: path.to_owned(), identity, checked: Instant::now(), is_present: true })
    }

    /// Checks that the file is still at its path, at most every 100 ms.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] from the first check that does not find it.
    pub(super) async fn check(&mut self) -> Result<(), StoreError> {
        if self.is_present && self.checked.elapsed() >= INTERVAL {
            // Another error, such as a lack of permission, does not show that the file is gone.
            self.is_present = match Identity::read(&self.path).await {
                Ok(identity) => identity == self.identity,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            };
            self.checked = Instant::now();
            if !self.is_present {
                error!(path = %self.path.display(), "database file removed or replaced");
            }
        }
        if self.is_present {
            return Ok(());
        }
        let reason = "the database file was removed or replaced while it was open; restore it and restart the \
                      process"
            .to_owned();
        Err(StoreError::Unavailable { reason })
    }
}
