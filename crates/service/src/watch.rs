//! Configuration files that are read again when they change.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rockbot_contracts::topology::stable_hash;
use rustix::fs::OFlags;

/// The polling interval. The content is compared and not the modification time: Kubernetes replaces
/// mounted files behind a link, and timestamps are too coarse for two changes in a row.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It does not exist, or cannot be opened or read.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It is a directory, a named pipe, a socket or a device.
    #[error("it is not a regular file; copy its content into one")]
    NotRegular,
    /// It is too large.
    #[error("it exceeds {max_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        max_bytes: u64,
    },
}

/// Reads a regular file of at most `max_bytes`. Does not wait for the writer of a named pipe.
///
/// # Errors
/// See [`FileError`].
pub fn read_bounded(path: &Path, max_bytes: u64) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::NotRegular);
    }
    file.take(max_bytes + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max_bytes {
        Err(FileError::TooLarge { max_bytes })
    } else {
        Ok(content)
    }
}

/// Watches a file for changes of its content, once a second.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    max_bytes: u64,
    last_hash: Option<u64>,
}

impl FileWatch {
    /// Watches `path`, of which at most `max_bytes` are read. The first check always reports a change.
    #[must_use]
    pub fn new(path: PathBuf, max_bytes: u64) -> Self {
        Self { path, max_bytes, last_hash: None }
    }

    /// Completes with the content of the file when it has changed.
    ///
    /// # Errors
    /// When the file cannot be read; reported once for each change.
    ///
    /// # Cancellation
    /// No change is lost.
    pub async fn changed(&mut self) -> Result<Vec<u8>, FileError> {
        loop {
            if let Some(outcome) = self.check() {
                return outcome;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn check(&mut self) -> Option<Result<Vec<u8>, FileError>> {
        let read = read_bounded(&self.path, self.max_bytes);
        let hash = match &read {
            Ok(content) => stable_hash(content),
            Err(error) => stable_hash(error.to_string().as_bytes()),
        };
        (self.last_hash.replace(hash) != Some(hash)).then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[test]
    fn other_than_regular_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero"), Path::new("/dev/null")]
        {
            let read = read_bounded(path, 10);
            assert!(matches!(read, Err(FileError::NotRegular)), "{}: {read:?}", path.display());
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_bounded(&link, 10).unwrap(), b"text");
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        let mut watch = FileWatch::new(path.clone(), 10);
        let unchanged = async |watch: &mut FileWatch| {
            timeout(3 * POLL_INTERVAL, watch.changed()).await.expect_err("no change");
        };
        assert!(matches!(watch.changed().await, Err(FileError::Io(_))));
        unchanged(&mut watch).await;
        std::fs::write(&path, "first").unwrap();
        assert_eq!(watch.changed().await.unwrap(), b"first");
        unchanged(&mut watch).await;
        std::fs::write(&path, "first").unwrap();
        unchanged(&mut watch).await;
        std::fs::write(&path, "more than ten").unwrap();
        assert!(matches!(watch.changed().await, Err(FileError::TooLarge { max_bytes: 10 })));
        std::fs::write(&path, "ten bytes!").unwrap();
        let start = Instant::now();
        assert_eq!(watch.changed().await.unwrap(), b"ten bytes!");
        assert!(start.elapsed() <= POLL_INTERVAL);
    }
}
