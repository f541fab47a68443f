//! Discovery of MCP servers by agents.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Delivery, Publication, Settlement};
use rockbot_contracts::{
    Envelope, InstanceId, QueueSpec,
    json::Limits,
    mcp::{McpMetadataRefreshRequest, McpServersIndexed},
    topology::{tool_meta_mcp, tool_meta_mcp_refresh},
};
use rockbot_testkit::fixture::{BusFixture, next_delivery, wait_until};
use rockbot_tool_rpc::{
    catalog::{EXPIRE_AFTER, HEARTBEAT},
    mcp::IndexAnnouncer,
};
use tokio::time::advance;

use crate::mcp_fixture::{Bridge, ScriptedGateway, WAIT_TIMEOUT, agent, names, server};

/// Settles and decodes an announcement.
async fn decode_index(delivery: Delivery) -> McpServersIndexed {
    let index = delivery.envelope().decode(Limits::default()).expect("an index");
    delivery.settle(Settlement::Ack).await.expect("settled");
    index
}

#[tokio::test]
async fn servers_are_discovered_in_any_start_order() {
    let bus = BusFixture::memory();
    let before = agent(&bus, "one").await;
    let _bridge = Bridge::start(&bus, "b", ScriptedGateway::new([server("Git", &["log"])])).await;
    assert!(before.wait_for_any(WAIT_TIMEOUT).await, "announced at the start");
    let after = agent(&bus, "two").await;
    assert!(after.wait_for_any(WAIT_TIMEOUT).await, "announced on request");
    for agent in [before, after] {
        assert_eq!(names(agent.as_ref()), ["Git"]);
    }
}

#[tokio::test]
async fn changes_and_removal_reach_the_index() {
    let bus = BusFixture::memory();
    let bridge = Bridge::start(&bus, "b", ScriptedGateway::new([server("git", &["log"])])).await;
    let agent = agent(&bus, "one").await;
    wait_until("the first server", || names(agent.as_ref()) == ["git"]).await;
    bridge.gateway.change(|index| index.insert(server("time", &["now"])));
    wait_until("the new server", || names(agent.as_ref()) == ["git", "time"]).await;
    bridge.gateway.change(|index| {
        index.remove("git");
        index.insert(server("time", &["now", "later"]));
    });
    wait_until("the removal", || names(agent.as_ref()) == ["time"]).await;
    bridge.announcer.stop().await;
    wait_until("the removal of the bridge", || names(agent.as_ref()).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn servers_of_a_dead_bridge_expire() {
    let bus = BusFixture::memory();
    let agent = agent(&bus, "one").await;
    let dead = Bridge::start(&bus, "a", ScriptedGateway::new([server("git", &[])])).await;
    let _live = Bridge::start(&bus, "b", ScriptedGateway::new([server("time", &[])])).await;
    wait_until("both servers", || names(agent.as_ref()) == ["git", "time"]).await;
    drop(dead);
    advance(EXPIRE_AFTER / 2).await;
    wait_until("both before the expiry", || names(agent.as_ref()) == ["git", "time"]).await;
    advance(EXPIRE_AFTER / 2).await;
    wait_until("the expiry", || names(agent.as_ref()) == ["time"]).await;
}

#[tokio::test]
async fn missed_announcement_triggers_refresh_request() {
    let bus = BusFixture::memory();
    let agent = agent(&bus, "one").await;
    let instance = InstanceId::new("b").unwrap();
    // The announcement that the delta is relative to was lost.
    let delta = McpServersIndexed {
        instance,
        servers: vec![server("late", &[])],
        removed: Vec::new(),
        states: None,
        is_complete: false,
        since: Some("lost".to_owned()),
        fingerprint: "now".to_owned(),
    };
    let queue = QueueSpec::exclusive(&tool_meta_mcp_refresh(), &InstanceId::generate());
    let mut refreshes = bus.consume(queue, 1).await;
    let announcement = Publication::announcement(tool_meta_mcp(), Envelope::from_payload(&delta));
    // Repeated, since the agent sent a refresh request at its start and sends at most one per second.
    let mut beat = tokio::time::interval(Duration::from_millis(200));
    let refresh = loop {
        tokio::select! {
            refresh = next_delivery(&mut refreshes) => break refresh,
            _ = beat.tick() => bus.remote.publish(announcement.clone()).await.expect("published"),
        }
    };
    let request: McpMetadataRefreshRequest =
        refresh.envelope().decode(Limits::default()).expect("a request");
    assert_eq!(request.server_name, None);
    assert!(names(agent.as_ref()).is_empty());
    let complete = McpServersIndexed { is_complete: true, since: None, ..delta };
    let announcement =
        Publication::announcement(tool_meta_mcp(), Envelope::from_payload(&complete));
    bus.remote.publish(announcement).await.expect("published");
    wait_until("the missed server", || names(agent.as_ref()) == ["late"]).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_changes_are_batched_and_heartbeats_follow() {
    let bus = BusFixture::memory();
    let queue = QueueSpec::exclusive(&tool_meta_mcp(), &InstanceId::generate());
    let mut announcements = bus.consume(queue, 64).await;
    let gateway = ScriptedGateway::new([]);
    let instance = InstanceId::new("b").unwrap();
    let _announcer =
        IndexAnnouncer::start(bus.remote.clone(), gateway.as_ref(), "mcp-bridge", instance)
            .await
            .expect("started");
    let mut next = async || decode_index(next_delivery(&mut announcements).await).await;
    assert!(next().await.is_complete);
    for number in 0..100 {
        gateway.change(|index| index.insert(server(&format!("s{number}"), &[])));
        tokio::task::yield_now().await;
    }
    let delta = next().await;
    assert_eq!((delta.servers.len(), delta.is_complete), (100, false));
    let began = tokio::time::Instant::now();
    let heartbeat = next().await;
    assert!(heartbeat.servers.is_empty() && heartbeat.removed.is_empty() && !heartbeat.is_complete);
    assert_eq!(heartbeat.since.as_ref(), Some(&heartbeat.fingerprint));
    assert_eq!(heartbeat.fingerprint, delta.fingerprint);
    assert!(began.elapsed() <= HEARTBEAT);
}

#[tokio::test]
async fn refresh_request_for_one_server_announces_only_it() {
    let bus = BusFixture::memory();
    let bridge = ScriptedGateway::new([server("Git", &["log"]), server("time", &["now"])]);
    let _bridge = Bridge::start(&bus, "b", bridge).await;
    let queue = QueueSpec::exclusive(&tool_meta_mcp(), &InstanceId::generate());
    let mut announcements = bus.consume(queue, 64).await;
    let request = McpMetadataRefreshRequest { server_name: Some("GIT".to_owned()) };
    let envelope = Envelope::from_payload(&request);
    let publication = Publication::announcement(tool_meta_mcp_refresh(), envelope);
    bus.local.publish(publication).await.expect("published");
    loop {
        let index = decode_index(next_delivery(&mut announcements).await).await;
        if !index.is_complete {
            let names: Vec<_> = index.servers.iter().map(|server| server.name.as_str()).collect();
            assert_eq!(names, ["Git"]);
            break;
        }
    }
}

#[tokio::test]
async fn oversized_announcement_omits_tool_names() {
    let bus = BusFixture::memory();
    let name = "n".repeat(100);
    let tools: Vec<_> = (0..60_000).map(|number| format!("{name}{number}")).collect();
    let mut large = server("large", &["x"]);
    large.tool_names = tools;
    let _bridge = Bridge::start(&bus, "b", ScriptedGateway::new([large])).await;
    let agent = agent(&bus, "one").await;
    assert!(agent.wait_for_any(WAIT_TIMEOUT).await);
    let index = rockbot_tool_rpc::mcp::McpGateway::index(Arc::as_ref(&agent)).borrow().clone();
    let large = index.get("large").expect("a server");
    assert_eq!((large.tool_names.len(), large.tool_count), (0, 1));
}
