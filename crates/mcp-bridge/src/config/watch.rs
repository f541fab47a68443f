//! Change detection for the servers file.

use std::{path::PathBuf, time::Duration};

use rockbot_contracts::topology::stable_hash;

use super::{ServersFile, ServersFileError, file::read_bounded};

/// The polling interval. The content is compared and not the modification time: Kubernetes replaces
/// mounted files behind a link, and timestamps are too coarse for two changes in a row.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Watches a servers file for changes.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    last_hash: Option<u64>,
}

impl FileWatch {
    /// Watches `path`; the first check always reports a change.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, last_hash: None }
    }

    /// Completes when the content of the file has changed.
    ///
    /// # Errors
    /// When the new content is invalid; reported once for each change.
    ///
    /// # Cancellation
    /// No change is lost.
    pub async fn changed(&mut self) -> Result<ServersFile, ServersFileError> {
        loop {
            if let Some(outcome) = self.check() {
                return outcome;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn check(&mut self) -> Option<Result<ServersFile, ServersFileError>> {
        let read = read_bounded(&self.path);
        let hash = match &read {
            Ok(text) => stable_hash(text),
            Err(error) => stable_hash(error.to_string().as_bytes()),
        };
        if self.last_hash.replace(hash) == Some(hash) {
            return None;
        }
        Some(read.and_then(|text| ServersFile::parse(&text, |name| std::env::var(name).ok())))
    }
}
