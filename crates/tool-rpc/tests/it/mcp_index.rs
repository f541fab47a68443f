//! Agents know which MCP servers the bridges serve, whoever starts first and whatever is lost.

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

use crate::mcp_stage::{Bridge, PATIENCE, ScriptedGateway, agent, names, server};

/// Takes an announcement off its queue.
async fn index_in(delivery: Delivery) -> McpServersIndexed {
    let said = delivery.envelope().decode(Limits::default()).expect("an index");
    delivery.settle(Settlement::Ack).await.expect("settled");
    said
}

#[tokio::test]
async fn servers_are_known_whoever_starts_first() {
    let bed = BusFixture::memory();
    let before = agent(&bed, "one").await;
    let _bridge = Bridge::start(&bed, "b", ScriptedGateway::of([server("Git", &["log"])])).await;
    assert!(before.wait_for_any(PATIENCE).await, "told on start");
    let after = agent(&bed, "two").await;
    assert!(after.wait_for_any(PATIENCE).await, "told when asked");
    for known in [before, after] {
        assert_eq!(names(known.as_ref()), ["Git"]);
    }
}

#[tokio::test]
async fn changes_are_followed_and_a_goodbye_is_believed() {
    let bed = BusFixture::memory();
    let bridge = Bridge::start(&bed, "b", ScriptedGateway::of([server("git", &["log"])])).await;
    let known = agent(&bed, "one").await;
    wait_until("the first server", || names(known.as_ref()) == ["git"]).await;
    bridge.gateway.change(|index| index.insert(server("time", &["now"])));
    wait_until("the new server", || names(known.as_ref()) == ["git", "time"]).await;
    bridge.gateway.change(|index| {
        index.remove("git");
        index.insert(server("time", &["now", "later"]));
    });
    wait_until("the removal", || names(known.as_ref()) == ["time"]).await;
    bridge.announcer.stop().await;
    wait_until("the goodbye", || names(known.as_ref()).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_died_is_forgotten_and_its_servers_stay_while_another_has_them() {
    let bed = BusFixture::memory();
    let known = agent(&bed, "one").await;
    let dies = Bridge::start(&bed, "a", ScriptedGateway::of([server("git", &[])])).await;
    let _lives = Bridge::start(&bed, "b", ScriptedGateway::of([server("time", &[])])).await;
    wait_until("both", || names(known.as_ref()) == ["git", "time"]).await;
    drop(dies);
    advance(EXPIRE_AFTER / 2).await;
    wait_until("still believed", || names(known.as_ref()) == ["git", "time"]).await;
    advance(EXPIRE_AFTER / 2).await;
    wait_until("forgotten", || names(known.as_ref()) == ["time"]).await;
}

#[tokio::test]
async fn what_an_agent_missed_is_asked_for_again() {
    let bed = BusFixture::memory();
    let known = agent(&bed, "one").await;
    let instance = InstanceId::new("b").unwrap();
    // A bridge of which only a delta is heard: what it adds to was lost.
    let delta = McpServersIndexed {
        instance,
        servers: vec![server("late", &[])],
        removed: Vec::new(),
        is_complete: false,
        since: Some("lost".to_owned()),
        fingerprint: "now".to_owned(),
    };
    let queue = QueueSpec::exclusive(&tool_meta_mcp_refresh(), &InstanceId::generate());
    let mut refreshes = bed.consume(queue, 1).await;
    let said = Publication::announcement(tool_meta_mcp(), Envelope::from_payload(&delta));
    // Its first request is a moment ago, and it does not ask twice in a second.
    let mut beat = tokio::time::interval(Duration::from_millis(200));
    let refresh = loop {
        tokio::select! {
            refresh = next_delivery(&mut refreshes) => break refresh,
            _ = beat.tick() => bed.remote.publish(said.clone()).await.expect("said"),
        }
    };
    let asked: McpMetadataRefreshRequest =
        refresh.envelope().decode(Limits::default()).expect("a request");
    assert_eq!(asked.server_name, None);
    assert!(names(known.as_ref()).is_empty());
    let whole = McpServersIndexed { is_complete: true, since: None, ..delta };
    let said = Publication::announcement(tool_meta_mcp(), Envelope::from_payload(&whole));
    bed.remote.publish(said).await.expect("said");
    wait_until("what was missed", || names(known.as_ref()) == ["late"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_changes_at_once_are_one_announcement_and_silence_is_broken_in_time() {
    let bed = BusFixture::memory();
    let queue = QueueSpec::exclusive(&tool_meta_mcp(), &InstanceId::generate());
    let mut heard = bed.consume(queue, 64).await;
    let gateway = ScriptedGateway::of([]);
    let instance = InstanceId::new("b").unwrap();
    let _announcer =
        IndexAnnouncer::start(bed.remote.clone(), gateway.as_ref(), "mcp-bridge", instance)
            .await
            .expect("announcing");
    let mut said = async || index_in(next_delivery(&mut heard).await).await;
    assert!(said().await.is_complete);
    for number in 0..100 {
        gateway.change(|index| index.insert(server(&format!("s{number}"), &[])));
        tokio::task::yield_now().await;
    }
    let delta = said().await;
    assert_eq!((delta.servers.len(), delta.is_complete), (100, false));
    let began = tokio::time::Instant::now();
    let beat = said().await;
    assert!(beat.servers.is_empty() && beat.removed.is_empty() && !beat.is_complete);
    assert_eq!(beat.since.as_ref(), Some(&beat.fingerprint));
    assert_eq!(beat.fingerprint, delta.fingerprint);
    assert!(began.elapsed() <= HEARTBEAT);
}

#[tokio::test]
async fn whoever_asks_for_one_server_is_told_of_that_one() {
    let bed = BusFixture::memory();
    let bridge = ScriptedGateway::of([server("Git", &["log"]), server("time", &["now"])]);
    let _bridge = Bridge::start(&bed, "b", bridge).await;
    let queue = QueueSpec::exclusive(&tool_meta_mcp(), &InstanceId::generate());
    let mut heard = bed.consume(queue, 64).await;
    let ask = McpMetadataRefreshRequest { server_name: Some("GIT".to_owned()) };
    let ask = Publication::announcement(tool_meta_mcp_refresh(), Envelope::from_payload(&ask));
    bed.local.publish(ask).await.expect("asked");
    loop {
        let said = index_in(next_delivery(&mut heard).await).await;
        if !said.is_complete {
            let names: Vec<_> = said.servers.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, ["Git"]);
            break;
        }
    }
}

#[tokio::test]
async fn an_announcement_too_large_for_the_bus_goes_out_without_the_names_of_tools() {
    let bed = BusFixture::memory();
    let name = "n".repeat(100);
    let tools: Vec<_> = (0..60_000).map(|number| format!("{name}{number}")).collect();
    let mut large = server("large", &["x"]);
    large.tool_names = tools;
    let _bridge = Bridge::start(&bed, "b", ScriptedGateway::of([large])).await;
    let known = agent(&bed, "one").await;
    assert!(known.wait_for_any(PATIENCE).await);
    let index = rockbot_tool_rpc::mcp::McpGateway::index(Arc::as_ref(&known)).borrow().clone();
    let large = index.get("large").expect("known");
    assert_eq!((large.tool_names.len(), large.tool_count), (0, 1));
}
