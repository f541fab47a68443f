//! Reading of OpenAPI documents.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use http::Method;
use rockbot_egress::{Fetch, GuardedClient, causes, read_body};
use tokio::time::Instant;
use url::Url;

use crate::{
    config::SpecLocation,
    openapi::{Document, ImportLimits},
};

/// Interval at which a file is checked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for the document at a URL.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Properties of a file that change with its content. Comparing them needs no reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileFingerprint {
    bytes: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: u64,
}

/// Returns the fingerprint of a document; `None` for a URL, and for a file that cannot be read.
pub(crate) fn fingerprint(spec: &SpecLocation) -> Option<FileFingerprint> {
    let SpecLocation::File(path) = spec else { return None };
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileFingerprint {
        bytes: metadata.len(),
        modified: metadata.modified().ok(),
        #[cfg(unix)]
        inode: std::os::unix::fs::MetadataExt::ino(&metadata),
    })
}

/// Follows the document of an API.
#[derive(Debug)]
pub struct DocumentWatch {
    spec: SpecLocation,
    fingerprint: Option<FileFingerprint>,
}

impl DocumentWatch {
    pub(super) fn new(spec: SpecLocation, fingerprint: Option<FileFingerprint>) -> Self {
        Self { spec, fingerprint }
    }

    /// Completes within about a second after the file has changed, once for each change. Never completes
    /// for a document at a URL.
    ///
    /// # Cancellation
    /// Changes are not lost.
    pub async fn changed(&mut self) {
        if let SpecLocation::Url(_) = self.spec {
            return std::future::pending().await;
        }
        loop {
            let now = fingerprint(&self.spec);
            if now != self.fingerprint {
                self.fingerprint = now;
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Reads the bytes of a document.
///
/// # Errors
/// A message for the operator.
pub(super) async fn load(
    spec: &SpecLocation,
    client: &GuardedClient,
    limits: ImportLimits,
) -> Result<Vec<u8>, String> {
    let max_bytes = limits.document_bytes();
    match spec {
        SpecLocation::Url(url) => fetch(url, client, max_bytes).await,
        SpecLocation::File(path) => read_file(path, max_bytes).await,
    }
}

/// Parses a document. Large ones take seconds: call this on a blocking thread.
///
/// # Errors
/// A message for the operator.
pub(super) fn parse(bytes: Vec<u8>, limits: ImportLimits) -> Result<Document, String> {
    let text = String::from_utf8(bytes).map_err(|_| "the document is not UTF-8".to_owned())?;
    Document::read(&text, limits).map_err(|error| error.to_string())
}

async fn read_file(path: &Path, max_bytes: usize) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let shown = path.display().to_string();
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        // One byte more, by which the document is recognized as too large.
        let limit = max_bytes as u64 + 1;
        std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    });
    match read.await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(format!("spec: cannot read {shown}: {error}")),
        Err(_) => Err(format!("spec: cannot read {shown}")),
    }
}

async fn fetch(url: &Url, client: &GuardedClient, max_bytes: usize) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + FETCH_TIMEOUT;
    let failed = |error: rockbot_egress::EgressError| {
        let causes: Vec<_> = causes(&error).map(ToString::to_string).collect();
        format!("spec: {}", causes.join(": "))
    };
    let fetched = Fetch::new(client, Method::GET, url.clone()).with_deadline(deadline);
    let response = fetched.finish().await.map_err(failed)?.response;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("spec: the server replied with {status}"));
    }
    read_body(response, max_bytes, Some(deadline)).await.map_err(failed)
}
