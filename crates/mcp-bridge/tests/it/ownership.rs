//! Ownership of programs that several bridges configure.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{Executed, InstanceId, ToolErrorCode};
use rockbot_mcp_bridge::{Bridge, BridgeOptions};
use rockbot_store::{Clock, ManualClock, MemoryStore, Store};
use rockbot_testkit::fixture::wait_until;
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::json;

use crate::fixture::{call, call_text, misbehaving_server, servers_file};

async fn bridge(store: &Arc<dyn Store>, name: &str) -> Arc<Bridge> {
    let instance = InstanceId::new(name).unwrap();
    let shared = Some((store.clone(), "rockbot".to_owned(), instance));
    let bridge = Bridge::new(BridgeOptions { shared, ..BridgeOptions::default() });
    bridge.apply(servers_file(&json!({"odd": misbehaving_server()}))).await;
    bridge
}

fn serves(bridge: &Bridge) -> bool {
    bridge.index().borrow().get("odd").is_some()
}

#[tokio::test]
async fn program_moves_when_its_owner_stops() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    let one = bridge(&store, "one").await;
    wait_until("the first bridge serving", || serves(&one)).await;
    let two = bridge(&store, "two").await;
    two.wait_until_settled(Duration::from_secs(10)).await;
    let status = two.servers().remove(0);
    assert!(status.ready && status.tools == 0, "{status:?}");
    assert!(status.reason.unwrap().contains("one"));
    assert!(!serves(&two));
    let failure = call(&two, "odd", "echo", json!({})).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
    one.stop().await;
    wait_until("the second bridge serving", || serves(&two)).await;
    assert_eq!(call_text(&two, "odd", "echo", json!({})).await, "{}");
    two.stop().await;
}

#[tokio::test]
async fn program_moves_when_its_owner_crashes() {
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::from(&clock)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let one = {
        let store = store.clone();
        runtime.spawn(async move { bridge(&store, "one").await }).await.unwrap()
    };
    wait_until("the first bridge serving", || serves(&one)).await;
    let two = bridge(&store, "two").await;
    two.wait_until_settled(Duration::from_secs(10)).await;
    assert!(!serves(&two));
    // Shutting down the runtime stops the first bridge without any cleanup.
    runtime.shutdown_background();
    clock.advance(Duration::from_secs(16));
    wait_until("the second bridge serving", || serves(&two)).await;
    assert_eq!(call_text(&two, "odd", "echo", json!({})).await, "{}");
    two.stop().await;
}
