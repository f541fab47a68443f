//! A store that executes writes without a response, and calls whose records it leaves behind.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{Executed, ToolErrorCode, topology::tool_invoke};
use rockbot_store::{Entry, Expected, Key, Prefix, Store, StoreError, Timestamp, Write, Written};
use rockbot_testkit::fixture::wait_until;

use crate::journal_fixture::{Call, Fixture, call, elsewhere};

/// Delegates to a store. While silent, writes of calls are executed and never return.
struct SilentStore {
    store: Arc<dyn Store>,
    silent: AtomicBool,
    unanswered: AtomicU32,
}

impl Store for SilentStore {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.store.get(key)
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        let is_call = write.key.as_str().starts_with("calls/");
        Box::pin(async move {
            let written = self.store.write(write).await;
            if is_call && self.silent.load(Ordering::SeqCst) {
                self.unanswered.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            written
        })
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.store.remove(key, expected)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
        self.store.list(prefix, after, limit)
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.store.sweep(limit)
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.store.now()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}

#[tokio::test]
async fn start_without_response_is_completed_later() {
    let mut fixture = Fixture::new().await;
    let store = Arc::new(SilentStore {
        store: fixture.store.clone(),
        silent: AtomicBool::new(true),
        unanswered: AtomicU32::new(0),
    });
    fixture.store = store.clone();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    wait_until("the start", || store.unanswered.load(Ordering::SeqCst) > 0).await;
    fixture.cancel(&call).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Cancelled, Executed::Unknown));
    store.silent.store(false, Ordering::SeqCst);
    // Another handler would wait for a call that is recorded as running.
    let _there = fixture.handler(&elsewhere(), true).await;
    fixture.send(&elsewhere(), &Call { maybe_redelivered: true, ..call }).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Cancelled, Executed::Unknown));
    assert_eq!(fixture.runs(), 0);
}
