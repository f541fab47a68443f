//! Opens the store at an address.

use std::{sync::Arc, time::Duration};

use rockbot_store::{Clock, Log, Store, StoreError, StoreUrl, Stores};
use tokio::time::sleep;
use tracing::warn;

use crate::{postgres::PostgresStore, sqlite::SqliteStore};

/// Opens the store at an address.
///
/// # Errors
/// See [`SqliteStore::open`] and [`PostgresStore::connect`].
pub async fn connect(url: &StoreUrl, clock: Clock) -> Result<Arc<dyn Store>, StoreError> {
    Ok(connect_stores(url, clock).await?.store)
}

/// Opens the store at an address, with the logs beside it on the same connections.
///
/// # Errors
/// See [`SqliteStore::open`] and [`PostgresStore::connect`].
pub async fn connect_stores(url: &StoreUrl, clock: Clock) -> Result<Stores, StoreError> {
    Ok(match url {
        StoreUrl::Memory => Stores::memory(clock),
        StoreUrl::Sqlite(path) => stores(SqliteStore::open(path, clock).await?),
        StoreUrl::Postgres(url) => stores(PostgresStore::connect(url, clock).await?),
    })
}

fn stores(database: impl Store + Log) -> Stores {
    let database = Arc::new(database);
    Stores { store: database.clone(), log: database }
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
    let opened = connect_stores_with_retry(url, clock, stopped).await?;
    Ok(opened.map(|stores| stores.store))
}

/// Opens the store at an address and the logs beside it, and retries like [`connect_with_retry`].
///
/// # Errors
/// When the store is unusable.
pub async fn connect_stores_with_retry(
    url: &StoreUrl,
    clock: Clock,
    stopped: impl Future<Output = ()>,
) -> Result<Option<Stores>, StoreError> {
    let opened = async {
        loop {
            match connect_stores(url, clock.clone()).await {
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
