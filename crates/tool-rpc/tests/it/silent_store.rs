//! A store that executes writes without a response, and calls whose records it leaves behind.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{Executed, ToolErrorCode, topology::tool_invoke};
use rockbot_store::{Store, StoreError, Write, Written};
use rockbot_testkit::{InterceptedStore, StoreInterceptor, fixture::wait_until};

use crate::{
    journal_fixture::{Call, Fixture, call, elsewhere},
    lossy_bus::LossyBus,
};

/// While silent, writes of calls are executed and never return.
struct SilentWrites {
    silent: AtomicBool,
    unanswered: AtomicU32,
}

impl StoreInterceptor for SilentWrites {
    fn write<'a>(
        &'a self,
        store: &'a dyn Store,
        write: Write,
    ) -> BoxFuture<'a, Result<Written, StoreError>> {
        let is_call = write.key.as_str().starts_with("calls/");
        Box::pin(async move {
            let written = store.write(write).await;
            if is_call && self.silent.load(Ordering::SeqCst) {
                self.unanswered.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            written
        })
    }
}

#[tokio::test]
async fn start_without_response_is_completed_later() {
    let mut fixture = Fixture::new().await;
    let writes = SilentWrites { silent: AtomicBool::new(true), unanswered: AtomicU32::new(0) };
    let store = InterceptedStore::wrap(fixture.store.clone(), writes);
    fixture.store = store.clone();
    let writes = &store.interceptor;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    wait_until("the start", || writes.unanswered.load(Ordering::SeqCst) > 0).await;
    fixture.cancel(&call).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Cancelled, Executed::Unknown));
    writes.silent.store(false, Ordering::SeqCst);
    // Another handler would wait for a call that is recorded as running.
    let _there = fixture.handler(&elsewhere(), true).await;
    fixture.send(&elsewhere(), &Call { maybe_redelivered: true, ..call }).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Cancelled, Executed::Unknown));
    assert_eq!(fixture.runs(), 0);
}

#[tokio::test]
async fn start_without_response_is_completed_although_the_channel_was_lost() {
    let mut fixture = Fixture::new().await;
    let writes = SilentWrites { silent: AtomicBool::new(true), unanswered: AtomicU32::new(0) };
    let store = InterceptedStore::wrap(fixture.store.clone(), writes);
    fixture.store = store.clone();
    let writes = &store.interceptor;
    let (bus, connection) = LossyBus::wrap(fixture.bus.remote.clone());
    let _here = fixture.handler_on(&bus, &tool_invoke(), true).await;
    let call = call("write");
    fixture.send_within(&tool_invoke(), &call, Duration::from_secs(1)).await;
    wait_until("the start", || writes.unanswered.load(Ordering::SeqCst) > 0).await;
    connection.lose();
    let outcome = (ToolErrorCode::Timeout, Executed::Unknown);
    assert_eq!(fixture.error().await, outcome);
    writes.silent.store(false, Ordering::SeqCst);
    // Another handler would wait for a call that is recorded as running.
    let _there = fixture.handler(&elsewhere(), true).await;
    fixture.send(&elsewhere(), &Call { maybe_redelivered: true, ..call }).await;
    assert_eq!(fixture.error().await, outcome);
    assert_eq!(fixture.runs(), 0);
}
