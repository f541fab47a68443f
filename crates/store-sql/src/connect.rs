//! Opens the store that an address names.

use std::{sync::Arc, time::Duration};

use rockbot_store::{Clock, MemoryStore, Store, StoreError, StoreUrl};
use tokio::time::sleep;
use tracing::warn;

use crate::{postgres::PostgresStore, sqlite::SqliteStore};

/// Opens the store at an address.
///
/// # Errors
/// As for [`SqliteStore::open`] and [`PostgresStore::connect`].
pub async fn connect(url: &StoreUrl, clock: Clock) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match url {
        StoreUrl::Memory => Arc::new(MemoryStore::new(clock)),
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path, clock).await?),
        StoreUrl::Postgres(url) => Arc::new(PostgresStore::connect(url, clock).await?),
    })
}

/// The pause between two attempts to reach a store that is not there yet.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Opens the store at an address, and waits for it as long as it takes: in a cluster a database may
/// come up later than its users. None when `stopped` comes first.
///
/// # Errors
/// When it is there and can't be used.
pub async fn connect_patiently(
    url: &StoreUrl,
    clock: Clock,
    stopped: impl Future<Output = ()>,
) -> Result<Option<Arc<dyn Store>>, StoreError> {
    let opened = async {
        loop {
            match connect(url, clock.clone()).await {
                Err(error @ StoreError::Unavailable { .. }) => {
                    warn!(%error, %url, "waiting for the store");
                    sleep(AGAIN_AFTER).await;
                }
                ended => break ended,
            }
        }
    };
    tokio::select! {
        opened = opened => opened.map(Some),
        () = stopped => Ok(None),
    }
}
