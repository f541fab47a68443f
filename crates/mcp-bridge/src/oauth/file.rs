//! Token files, readable by this user only.

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

/// The largest token file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The token file of one server. Its name is derived from the server's URL and the client id, so that
/// tokens are not used for another server that takes over a name in the configuration.
#[derive(Debug, Clone)]
pub(super) struct TokenFile {
    path: PathBuf,
    refresh_lock: Arc<Mutex<()>>,
}

impl TokenFile {
    pub(super) fn new(folder: &Path, resource: &Url, client_id: &str) -> Self {
        let digest = Sha256::digest(format!("{resource}\n{client_id}"));
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(name).with_extension("json");
        Self { path, refresh_lock: Arc::default() }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuthError> {
        let path = self.path.clone();
        let result = tokio::task::spawn_blocking(move || work(&path)).await;
        let result = result.unwrap_or_else(|error| Err(io::Error::other(error)));
        result.map_err(|error| AuthError::CredentialStoreError(error.to_string()))
    }
}

#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.blocking(read).await
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.blocking(move |path| write(path, &credentials)).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.blocking(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let guard = self.refresh_lock.clone().lock_owned().await;
        Ok(Some(CredentialRefreshGuard::new(guard)))
    }
}

fn read(path: &Path) -> io::Result<Option<StoredCredentials>> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("other users can read the token file; set its mode to 0600"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("the token file is too large; delete it and log in again"));
    }
    Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
}

/// Writes a temporary file and renames it, so that the file is never incomplete.
fn write(path: &Path, credentials: &StoredCredentials) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    // Left behind by a killed process with the same id.
    if let Err(error) = fs::remove_file(&temporary)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(credentials)?)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
