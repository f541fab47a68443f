//! Agents discover what handlers run, and forget a handler that is gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rockbot_bus::Requester;
use rockbot_contracts::{HandlerLoad, InstanceId};
use rockbot_testkit::fixture::{BusFixture, reply_address, wait_until};
use rockbot_tool_rpc::{CatalogAnnouncer, CatalogDirectory, catalog::EXPIRE_AFTER};
use rockbot_tools::{ToolRegistry, ToolResult};

use crate::fleet::{registration, tool};

fn registry_of(names: &[&str]) -> Arc<ToolRegistry> {
    let registry = Arc::new(ToolRegistry::new());
    for name in names {
        let echo = tool(registration(name), async |_, _| Ok(ToolResult::text("")));
        registry.register(echo).expect("registered");
    }
    registry
}

async fn announce(bed: &BusFixture, registry: &Arc<ToolRegistry>) -> CatalogAnnouncer {
    announce_with(bed, registry, HandlerLoad::default).await
}

async fn announce_with(
    bed: &BusFixture,
    registry: &Arc<ToolRegistry>,
    load: impl Fn() -> HandlerLoad + Send + 'static,
) -> CatalogAnnouncer {
    let (bus, instance) = (bed.remote.clone(), InstanceId::generate());
    let announcer = CatalogAnnouncer::start(bus, registry.clone(), "handler", instance, load);
    announcer.await.expect("announcing")
}

async fn discover(bed: &BusFixture) -> (CatalogDirectory, Arc<ToolRegistry>) {
    let requester = Arc::new(Requester::new(bed.local.clone(), reply_address("agent", "one")));
    let registry = Arc::new(ToolRegistry::new());
    let directory = CatalogDirectory::start(requester, registry.clone()).await.expect("listening");
    (directory, registry)
}

fn names(registry: &ToolRegistry) -> Vec<String> {
    registry.list().into_iter().map(|tool| tool.name).collect()
}

#[tokio::test]
async fn tools_are_discovered_whoever_starts_first() {
    let bed = BusFixture::memory();
    let (_directory, before) = discover(&bed).await;
    let announcer = announce(&bed, &registry_of(&["read", "write"])).await;
    wait_until("told on start", || names(&before) == ["read", "write"]).await;
    let requester = Arc::new(Requester::new(bed.local.clone(), reply_address("agent", "two")));
    let after = Arc::new(ToolRegistry::new());
    let directory = CatalogDirectory::start(requester, after.clone()).await.expect("listening");
    assert!(directory.wait_for_any(Duration::from_secs(5)).await, "told when asked");
    wait_until("the second agent knows", || names(&after) == ["read", "write"]).await;
    assert_eq!(directory.handlers().len(), 1);
    drop(announcer);
}

#[tokio::test]
async fn changes_are_followed_and_a_goodbye_is_believed() {
    let bed = BusFixture::memory();
    let served = registry_of(&["read"]);
    let announcer = announce(&bed, &served).await;
    let (_directory, known) = discover(&bed).await;
    wait_until("the first tool", || names(&known) == ["read"]).await;
    let write = tool(registration("write"), async |_, _| Ok(ToolResult::text("")));
    served.register(write).expect("registered");
    wait_until("the new tool", || names(&known) == ["read", "write"]).await;
    served.unregister("read");
    wait_until("the removal", || names(&known) == ["write"]).await;
    announcer.stop().await;
    wait_until("the goodbye", || names(&known).is_empty()).await;
}

#[tokio::test]
async fn a_tool_stays_as_long_as_one_handler_runs_it() {
    let bed = BusFixture::memory();
    let one = announce(&bed, &registry_of(&["read"])).await;
    let two = announce(&bed, &registry_of(&["read", "write"])).await;
    let (directory, known) = discover(&bed).await;
    wait_until("both handlers", || directory.handlers().len() == 2).await;
    two.stop().await;
    wait_until("one is gone", || names(&known) == ["read"]).await;
    one.stop().await;
    wait_until("both are gone", || names(&known).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_falls_silent_is_forgotten() {
    let bed = BusFixture::memory();
    let announcer = announce(&bed, &registry_of(&["read"])).await;
    let (directory, known) = discover(&bed).await;
    assert!(directory.wait_for_any(Duration::from_secs(5)).await);
    tokio::time::advance(EXPIRE_AFTER * 2).await;
    wait_until("a heartbeat keeps it", || names(&known) == ["read"]).await;
    // Killed, not stopped: it says nothing.
    drop(announcer);
    wait_until("it is forgotten", || directory.handlers().is_empty() && names(&known).is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn each_announcement_says_how_busy_the_handler_is() {
    let bed = BusFixture::memory();
    let running = Arc::new(AtomicU64::new(1));
    let count = running.clone();
    let load = move || HandlerLoad {
        running: count.load(Ordering::Relaxed),
        waiting: 2,
        oldest_ms: Some(3),
    };
    let _announcer = announce_with(&bed, &registry_of(&["read"]), load).await;
    let (directory, _) = discover(&bed).await;
    assert!(directory.wait_for_any(Duration::from_secs(5)).await);
    let handler = &directory.handlers()[0];
    assert_eq!(handler.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    let first = HandlerLoad { running: 1, waiting: 2, oldest_ms: Some(3) };
    assert_eq!(handler.load, Some(first));
    running.store(7, Ordering::Relaxed);
    let busier = HandlerLoad { running: 7, ..first };
    wait_until("the next heartbeat", || directory.handlers()[0].load == Some(busier)).await;
}

#[tokio::test]
async fn a_local_tool_keeps_its_name() {
    let bed = BusFixture::memory();
    let requester = Arc::new(Requester::new(bed.local.clone(), reply_address("agent", "one")));
    let registry = registry_of(&["read"]);
    let _directory = CatalogDirectory::start(requester, registry.clone()).await.expect("listening");
    let announcer = announce(&bed, &registry_of(&["read", "write"])).await;
    wait_until("the other tool", || names(&registry) == ["read", "write"]).await;
    announcer.stop().await;
    wait_until("only the local one stays", || names(&registry) == ["read"]).await;
}
