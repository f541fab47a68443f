//! Where the tokens of one server are kept: a file that only this user reads.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use rmcp::transport::auth::AuthError;
use rmcp::transport::{CredentialRefreshGuard, CredentialStore, StoredCredentials};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

/// More than any token.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The file of one server. It is named by the server's URL and our id there, so that tokens are not
/// found for another one, even if that has taken over its name in the configuration.
#[derive(Debug, Clone)]
pub(super) struct TokenFile {
    path: PathBuf,
    refreshing: Arc<Mutex<()>>,
}

impl TokenFile {
    pub(super) fn new(folder: &Path, resource: &Url, client_id: &str) -> Self {
        let digest = Sha256::digest(format!("{resource}\n{client_id}"));
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(name).with_extension("json");
        Self { path, refreshing: Arc::default() }
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuthError> {
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|error| AuthError::CredentialStoreError(error.to_string()))
    }
}

#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.with(read).await
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.with(move |path| write(path, &credentials)).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.with(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let guard = self.refreshing.clone().lock_owned().await;
        Ok(Some(CredentialRefreshGuard::new(guard)))
    }
}

fn read(path: &Path) -> io::Result<Option<StoredCredentials>> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        about => about?,
    };
    if about.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("others may read the file of tokens: make its mode 0600"));
    }
    if about.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("the file of tokens is too large to be one"));
    }
    Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
}

/// Writes beside the file and moves that into its place, so that it is never half written.
fn write(path: &Path, credentials: &StoredCredentials) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    // What a process of the same number left when it was killed.
    if let Err(error) = fs::remove_file(&beside)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(&serde_json::to_vec(credentials)?)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
