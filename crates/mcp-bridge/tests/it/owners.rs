//! Several bridges: a program has one owner, and another one when that is gone.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{Executed, InstanceId, ToolErrorCode};
use rockbot_mcp_bridge::{Bridge, BridgeOptions};
use rockbot_store::{Clock, ManualClock, MemoryStore, Store};
use rockbot_testkit::fixture::wait_until;
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::json;

use crate::bed::{call, file, misbehaving, said};

async fn bridge(store: &Arc<dyn Store>, name: &str) -> Arc<Bridge> {
    let us = InstanceId::new(name).unwrap();
    let shared = Some((store.clone(), "rockbot".to_owned(), us));
    let bridge = Bridge::new(BridgeOptions { shared, ..BridgeOptions::default() });
    bridge.apply(file(&json!({"odd": misbehaving()}))).await;
    bridge
}

fn serves(bridge: &Bridge) -> bool {
    bridge.index().borrow().get("odd").is_some()
}

#[tokio::test]
async fn a_program_has_one_owner_and_moves_when_its_owner_leaves() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    let one = bridge(&store, "one").await;
    wait_until("the first bridge to serve", || serves(&one)).await;
    let two = bridge(&store, "two").await;
    two.wait_until_settled(Duration::from_secs(10)).await;
    let status = two.servers().remove(0);
    assert!(status.ready && status.tools == 0, "{status:?}");
    assert!(status.reason.unwrap().contains("one"));
    assert!(!serves(&two));
    let elsewhere = call(&two, "odd", "echo", json!({})).await.unwrap_err();
    assert_eq!(
        (elsewhere.code(), elsewhere.executed()),
        (ToolErrorCode::Unavailable, Executed::No)
    );
    one.stop().await;
    wait_until("the second bridge to serve", || serves(&two)).await;
    assert_eq!(said(&two, "odd", "echo", json!({})).await, "{}");
    two.stop().await;
}

#[tokio::test]
async fn a_program_moves_when_its_owner_died_without_a_word() {
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::from(&clock)));
    let life = tokio::runtime::Runtime::new().unwrap();
    let one = {
        let store = store.clone();
        life.spawn(async move { bridge(&store, "one").await }).await.unwrap()
    };
    wait_until("the first bridge to serve", || serves(&one)).await;
    let two = bridge(&store, "two").await;
    two.wait_until_settled(Duration::from_secs(10)).await;
    assert!(!serves(&two));
    // With its runtime, everything that the first bridge would have said or done is gone.
    life.shutdown_background();
    clock.advance(Duration::from_secs(16));
    wait_until("the second bridge to serve", || serves(&two)).await;
    assert_eq!(said(&two, "odd", "echo", json!({})).await, "{}");
    two.stop().await;
}
