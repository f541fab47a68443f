//! Notices that the file of servers changed.

use std::{path::PathBuf, time::Duration};

use rockbot_contracts::topology::stable_hash;

use super::{FileProblem, ServersFile, file::read_bounded};

/// How often the file is looked at. It is read and not only its date: a file that Kubernetes mounts
/// is exchanged behind a link, and dates are too coarse for two changes in a row.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks at a file of servers until it changes.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    seen: Option<u64>,
}

impl FileWatch {
    /// Watches `path`; the first look always finds a change.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    /// Returns when the file differs from the last time.
    ///
    /// # Errors
    /// When what is there now can't be used; told once for each change.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn changed(&mut self) -> Result<ServersFile, FileProblem> {
        loop {
            if let Some(outcome) = self.look() {
                return outcome;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn look(&mut self) -> Option<Result<ServersFile, FileProblem>> {
        let read = read_bounded(&self.path);
        let seen = match &read {
            Ok(text) => stable_hash(text),
            Err(problem) => stable_hash(problem.to_string().as_bytes()),
        };
        if self.seen.replace(seen) == Some(seen) {
            return None;
        }
        Some(read.and_then(|text| ServersFile::parse(&text, |name| std::env::var(name).ok())))
    }
}
