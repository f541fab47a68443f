//! Whether a store answers, for whoever asks how a process is.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{
    key::Key,
    port::{Store, StoreError},
};

/// Looks whether the store can be read, each time it is called.
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
    async fn a_store_is_reachable_until_it_is_closed() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
        let look = reachable(store.clone());
        assert_eq!(look().await, Ok(()));
        store.close().await;
        assert_eq!(look().await, Err(StoreError::Closed.to_string()));
    }
}
