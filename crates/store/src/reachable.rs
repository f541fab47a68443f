//! A readiness check for stores.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{
    key::Key,
    port::{Store, StoreError},
};

/// Returns a check that reads from the store on each call.
pub fn reachable(
    store: Arc<dyn Store>,
) -> impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
    move || {
        let store = store.clone();
        Box::pin(async move {
            let key = Key::new(["health"]).map_err(|error| error.to_string())?;
            store.get(&key).await.map(drop).map_err(|error: StoreError| error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, MemoryStore};

    #[tokio::test]
    async fn store_is_reachable_until_closed() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
        let check = reachable(store.clone());
        assert_eq!(check().await, Ok(()));
        store.close().await;
        assert_eq!(check().await, Err(StoreError::Closed.to_string()));
    }
}
