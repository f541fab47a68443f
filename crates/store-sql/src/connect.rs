//! Opens the store at an address.

use std::{sync::Arc, time::Duration};

use rockbot_store::{Clock, MemoryStore, Store, StoreError, StoreUrl};
use tokio::time::sleep;
use tracing::warn;

use crate::{postgres::PostgresStore, sqlite::SqliteStore};

/// Opens the store at an address.
///
/// # Errors
/// See [`SqliteStore::open`] and [`PostgresStore::connect`].
pub async fn connect(url: &StoreUrl, clock: Clock) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match url {
        StoreUrl::Memory => Arc::new(MemoryStore::new(clock)),
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path, clock).await?),
        StoreUrl::Postgres(url) => Arc::new(PostgresStore::connect(url, clock).await?),
    })
}

/// The delay between attempts to reach an unavailable store.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Opens the store at an address, and retries while it is unavailable, without limit: in a cluster the
/// database may start later than its clients. Returns `None` when `stopped` completes first.
///
/// # Errors
/// When the store is unusable.
pub async fn connect_with_retry(
    url: &StoreUrl,
    clock: Clock,
    stopped: impl Future<Output = ()>,
) -> Result<Option<Arc<dyn Store>>, StoreError> {
    let opened = async {
        loop {
            match connect(url, clock.clone()).await {
                Err(error @ StoreError::Unavailable { .. }) => {
                    warn!(%error, %url, "store unavailable; retrying");
                    sleep(RETRY_DELAY).await;
                }
                outcome => break outcome,
            }
        }
    };
    tokio::select! {
        opened = opened => opened.map(Some),
        () = stopped => Ok(None),
    }
}
