//! Discovery of handlers and their tools by agents.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rockbot_bus::{Bus, Publication, Requester};
use rockbot_contracts::{
    Envelope, HandlerLoad, HandlerPool, InstanceId, PoolName, ProviderInstructions,
    ToolCatalogRefresh, topology::tool_catalog_refresh,
};
use rockbot_testkit::{
    InterceptedBus,
    fixture::{BusFixture, reply_address, wait_until},
};
use rockbot_tool_rpc::{
    AnnouncedHandler, CatalogAnnouncer, CatalogDirectory,
    catalog::{EXPIRE_AFTER, mismatched_tools},
};
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

async fn announce(bus: &BusFixture, registry: &Arc<ToolRegistry>) -> CatalogAnnouncer {
    announce_with(bus, registry, HandlerLoad::default).await
}

async fn announce_with(
    bus: &BusFixture,
    registry: &Arc<ToolRegistry>,
    load: impl Fn() -> HandlerLoad + Send + Sync + 'static,
) -> CatalogAnnouncer {
    let announced = AnnouncedHandler { load: Box::new(load), ..announced(registry) };
    CatalogAnnouncer::start(bus.remote.clone(), announced).await.expect("started")
}

fn announced(registry: &Arc<ToolRegistry>) -> AnnouncedHandler {
    AnnouncedHandler {
        service: "handler".to_owned(),
        instance: InstanceId::generate(),
        pool: HandlerPool::Unnamed,
        registry: registry.clone(),
        load: Box::new(HandlerLoad::default),
        instructions: Box::new(Vec::new),
        guides: Vec::new(),
        script_isolation: None,
    }
}

fn pool(name: &str) -> HandlerPool {
    HandlerPool::Named(PoolName::new(name).expect("a name"))
}

/// Announces the tools of a handler of this pool.
async fn announce_in(
    bus: &BusFixture,
    pool: HandlerPool,
    registry: &Arc<ToolRegistry>,
) -> CatalogAnnouncer {
    let announced = AnnouncedHandler { pool, ..announced(registry) };
    CatalogAnnouncer::start(bus.remote.clone(), announced).await.expect("started")
}

async fn discover(bus: &BusFixture) -> (CatalogDirectory, Arc<ToolRegistry>) {
    let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", "one")));
    let registry = Arc::new(ToolRegistry::new());
    let directory = CatalogDirectory::start(requester, registry.clone()).await.expect("started");
    (directory, registry)
}

fn names(registry: &ToolRegistry) -> Vec<String> {
    registry.list().into_iter().map(|tool| tool.name).collect()
}

#[tokio::test]
async fn tools_are_discovered_in_any_start_order() {
    let bus = BusFixture::memory();
    let (_directory, before) = discover(&bus).await;
    let announcer = announce(&bus, &registry_of(&["read", "write"])).await;
    wait_until("the announcement at the start", || names(&before) == ["read", "write"]).await;
    let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", "two")));
    let after = Arc::new(ToolRegistry::new());
    let directory = CatalogDirectory::start(requester, after.clone()).await.expect("started");
    assert!(directory.wait_for_any(Duration::from_secs(5)).await, "an announcement on request");
    wait_until("the second agent", || names(&after) == ["read", "write"]).await;
    assert_eq!(directory.handlers().len(), 1);
    drop(announcer);
}

#[tokio::test]
async fn changes_and_removal_reach_the_registry() {
    let bus = BusFixture::memory();
    let announced = registry_of(&["read"]);
    let announcer = announce(&bus, &announced).await;
    let (_directory, registry) = discover(&bus).await;
    wait_until("the first tool", || names(&registry) == ["read"]).await;
    let write = tool(registration("write"), async |_, _| Ok(ToolResult::text("")));
    announced.register(write).expect("registered");
    wait_until("the new tool", || names(&registry) == ["read", "write"]).await;
    announced.unregister("read");
    wait_until("the removal", || names(&registry) == ["write"]).await;
    announcer.stop().await;
    wait_until("the removal of the handler", || names(&registry).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn burst_of_refresh_requests_gets_one_announcement() {
    let bus = BusFixture::memory();
    let announcements = Arc::new(AtomicU64::new(0));
    let count = announcements.clone();
    let load = move || {
        count.fetch_add(1, Ordering::Relaxed);
        HandlerLoad::default()
    };
    let _announcer = announce_with(&bus, &registry_of(&["read"]), load).await;
    wait_until("the announcement at the start", || announcements.load(Ordering::Relaxed) == 1)
        .await;
    for _ in 0..2000 {
        let envelope = Envelope::from_payload(&ToolCatalogRefresh {});
        let refresh = Publication::announcement(tool_catalog_refresh(), envelope);
        bus.local.publish(refresh).await.expect("published");
    }
    wait_until("the announcement on request", || announcements.load(Ordering::Relaxed) > 1).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let count = announcements.load(Ordering::Relaxed);
    assert!(count <= 5, "{count} announcements");
}

#[tokio::test]
async fn tool_stays_while_one_handler_runs_it() {
    let bus = BusFixture::memory();
    let one = announce(&bus, &registry_of(&["read"])).await;
    let two = announce(&bus, &registry_of(&["read", "write"])).await;
    let (directory, registry) = discover(&bus).await;
    wait_until("both handlers", || directory.handlers().len() == 2).await;
    two.stop().await;
    wait_until("one handler left", || names(&registry) == ["read"]).await;
    one.stop().await;
    wait_until("no handler left", || names(&registry).is_empty()).await;
}

#[tokio::test]
async fn clock_of_a_handler_is_compared() {
    let BusFixture { local, remote } = BusFixture::memory();
    let remote = InterceptedBus::wrap(remote, |bus: Arc<dyn Bus>, mut publication: Publication| {
        publication.envelope.timestamp += 90;
        async move { bus.publish(publication).await }
    });
    let bus = BusFixture { local, remote };
    let _announcer = announce(&bus, &registry_of(&["read"])).await;
    let (directory, _registry) = discover(&bus).await;
    assert!(directory.wait_for_any(Duration::from_secs(5)).await);
    let ahead = directory.handlers()[0].clock_ahead_seconds;
    assert!((80..=91).contains(&ahead), "{ahead}");
}

#[tokio::test(start_paused = true)]
async fn handler_without_heartbeats_expires() {
    let bus = BusFixture::memory();
    let announcer = announce(&bus, &registry_of(&["read"])).await;
    let (directory, registry) = discover(&bus).await;
    assert!(directory.wait_for_any(Duration::from_secs(5)).await);
    tokio::time::advance(EXPIRE_AFTER * 2).await;
    wait_until("the tool after a heartbeat", || names(&registry) == ["read"]).await;
    // Dropped without an announcement of its removal.
    drop(announcer);
    wait_until("the expiry", || directory.handlers().is_empty() && names(&registry).is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn announcements_contain_current_load() {
    let bus = BusFixture::memory();
    let running = Arc::new(AtomicU64::new(1));
    let count = running.clone();
    let load = move || HandlerLoad {
        running: count.load(Ordering::Relaxed),
        waiting: 2,
        oldest_ms: Some(3),
        capacity: None,
    };
    let _announcer = announce_with(&bus, &registry_of(&["read"]), load).await;
    let (directory, _) = discover(&bus).await;
    assert!(directory.wait_for_any(Duration::from_secs(5)).await);
    let handler = &directory.handlers()[0];
    assert_eq!(handler.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    let capacity = None;
    let first = HandlerLoad { running: 1, waiting: 2, oldest_ms: Some(3), capacity };
    assert_eq!(handler.load, Some(first));
    running.store(7, Ordering::Relaxed);
    let busier = HandlerLoad { running: 7, ..first };
    wait_until("the next heartbeat", || directory.handlers()[0].load == Some(busier)).await;
}

#[tokio::test]
async fn local_tool_keeps_its_name() {
    let bus = BusFixture::memory();
    let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", "one")));
    let registry = registry_of(&["read"]);
    let _directory = CatalogDirectory::start(requester, registry.clone()).await.expect("started");
    let announcer = announce(&bus, &registry_of(&["read", "write"])).await;
    wait_until("the other tool", || names(&registry) == ["read", "write"]).await;
    announcer.stop().await;
    wait_until("only the local tool", || names(&registry) == ["read"]).await;
}

#[tokio::test]
async fn different_tools_of_handlers_are_detected() {
    let bus = BusFixture::memory();
    let own = announce(&bus, &registry_of(&["word_count"])).await;
    let (directory, registry) = discover(&bus).await;
    wait_until("one handler", || directory.handlers().len() == 1).await;
    assert!(mismatched_tools(&directory.handlers()).is_empty());
    let standard = announce(&bus, &registry_of(&["read", "write"])).await;
    wait_until("both handlers", || directory.handlers().len() == 2).await;
    let mismatched = mismatched_tools(&directory.handlers());
    let mut named = mismatched.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>();
    assert_eq!(named, ["read", "word_count", "write"]);
    for tool in &mismatched {
        assert_eq!((tool.handlers.len(), tool.missing_from.len()), (1, 1), "{tool:?}");
        assert!(!tool.definitions_differ && tool.handlers != tool.missing_from, "{tool:?}");
    }
    named.sort_unstable();
    assert_eq!(names(&registry), named, "the registry has the tools of both");
    own.stop().await;
    wait_until("one handler left", || directory.handlers().len() == 1).await;
    assert!(mismatched_tools(&directory.handlers()).is_empty());
    drop(standard);
}

#[tokio::test]
async fn different_definitions_of_a_tool_are_detected() {
    let bus = BusFixture::memory();
    let changed = Arc::new(ToolRegistry::new());
    let mut definition = registration("read");
    definition.description = "another one".to_owned();
    let read = tool(definition, async |_, _| Ok(ToolResult::text("")));
    changed.register(read).expect("registered");
    let _one = announce(&bus, &registry_of(&["read", "write"])).await;
    let (directory, _) = discover(&bus).await;
    let write = tool(registration("write"), async |_, _| Ok(ToolResult::text("")));
    changed.register(write).expect("registered");
    let _two = announce(&bus, &changed).await;
    wait_until("both handlers", || directory.handlers().len() == 2).await;
    let mismatched = mismatched_tools(&directory.handlers());
    assert_eq!(mismatched.len(), 1, "{mismatched:?}");
    let read = &mismatched[0];
    assert!(read.name == "read" && read.definitions_differ, "{read:?}");
    assert!(read.missing_from.is_empty(), "{read:?}");
}

/// Returns the routing key that a registered tool is called with.
fn key_of(registry: &ToolRegistry, tool: &str) -> Option<String> {
    Some(registry.get(tool)?.tool().invoke_key()?.to_string())
}

#[tokio::test(start_paused = true)]
async fn later_pool_cannot_take_a_tool() {
    let bus = BusFixture::memory();
    let web = announce_in(&bus, pool("web"), &registry_of(&["browse", "read"])).await;
    let (directory, registry) = discover(&bus).await;
    wait_until("the pool web", || names(&registry) == ["browse", "read"]).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    let _files = announce_in(&bus, pool("files"), &registry_of(&["read", "write"])).await;
    wait_until("the pool files", || names(&registry) == ["browse", "read", "write"]).await;
    assert_eq!(key_of(&registry, "read").as_deref(), Some("tool.invoke.pool.web"));
    let conflicts = directory.view().snapshot().conflicts();
    assert_eq!(conflicts[0].offered.pool, pool("web"));
    assert_eq!(conflicts[0].refused[0].to_string(), "internal in pool files");
    web.stop().await;
    wait_until("the end of web", || names(&registry) == ["read", "write"]).await;
    assert_eq!(key_of(&registry, "read").as_deref(), Some("tool.invoke.pool.files"));
}

#[tokio::test]
async fn starting_caller_orders_contested_tools_by_pool() {
    let bus = BusFixture::memory();
    let _web = announce_in(&bus, pool("web"), &registry_of(&["browse", "read"])).await;
    let files = announce_in(&bus, pool("files"), &registry_of(&["read", "write"])).await;
    let (directory, registry) = discover(&bus).await;
    wait_until("both pools", || names(&registry) == ["browse", "read", "write"]).await;
    assert_eq!(key_of(&registry, "read").as_deref(), Some("tool.invoke.pool.files"));
    assert_eq!(directory.view().pools(), [pool("files"), pool("web")]);
    assert!(mismatched_tools(&directory.handlers()).is_empty(), "pools are compared separately");
    let conflicts = directory.view().snapshot().conflicts();
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(conflicts[0].name, "read");
    assert_eq!(conflicts[0].offered.pool, pool("files"));
    assert_eq!(conflicts[0].refused[0].to_string(), "internal in pool web");
    files.stop().await;
    wait_until("the tools of web alone", || names(&registry) == ["browse", "read"]).await;
    assert!(directory.view().snapshot().conflicts().is_empty());
}

#[tokio::test]
async fn stored_outputs_are_no_conflict() {
    let bus = BusFixture::memory();
    let tools = registry_of(&[rockbot_tools::outputs::TOOL_OUTPUT]);
    let _files = announce_in(&bus, pool("files"), &tools).await;
    let _web = announce_in(&bus, pool("web"), &tools).await;
    let (directory, _registry) = discover(&bus).await;
    wait_until("both pools", || directory.handlers().len() == 2).await;
    assert!(directory.view().snapshot().conflicts().is_empty());
}

#[tokio::test]
async fn instructions_of_handlers_are_discovered() {
    let bus = BusFixture::memory();
    let source = rockbot_contracts::ToolSource::Web;
    let own = vec![ProviderInstructions { source, text: "Search first.".to_owned() }];
    let instructions = own.clone();
    let announced = AnnouncedHandler {
        instructions: Box::new(move || instructions.clone()),
        ..announced(&registry_of(&["search"]))
    };
    let _handler = CatalogAnnouncer::start(bus.remote.clone(), announced).await.expect("started");
    let (directory, _registry) = discover(&bus).await;
    assert!(directory.wait_for_any(Duration::from_secs(5)).await);
    assert_eq!(directory.handlers()[0].instructions, own);
}
