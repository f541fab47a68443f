//! Discovery of a tool that several pools announce, on the in-memory bus.

use rockbot_bus::{Publication, Settlement, Subscription};
use rockbot_contracts::{
    PoolName, ToolCatalog, ToolHints, ToolRegistration, ToolSource,
    topology::{tool_catalog_announce, tool_catalog_refresh},
};
use serde_json::json;
use tokio::task::JoinSet;

use super::*;

fn pool(name: &str) -> HandlerPool {
    HandlerPool::Named(PoolName::new(name).unwrap())
}

/// Returns the announcement of a pool with the tool `read`.
fn announcement(pool: &HandlerPool) -> Publication {
    let tools = vec![ToolRegistration {
        name: "read".to_owned(),
        label: None,
        description: "Reads.".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Files,
        hints: ToolHints::default(),
        timeout_ms: None,
    }];
    let catalog = ToolCatalog {
        handler: "tool-handler".to_owned(),
        instance: InstanceId::new("h-1").unwrap(),
        fingerprint: ToolCatalog::fingerprint_of(&tools),
        tools,
        removed: Vec::new(),
        version: None,
        load: None,
        invoke_key: Some(pool.invoke_key()),
        instructions: Vec::new(),
        guides: Vec::new(),
        script_isolation: None,
    };
    Publication::announcement(tool_catalog_announce(), Envelope::from_payload(&catalog))
}

/// Announces these pools 100 ms apart when announcements are requested.
async fn announce_on_request(bus: &MemoryBus, pools: [HandlerPool; 2]) -> JoinSet<()> {
    let instance = InstanceId::new("h-1").unwrap();
    let queue = QueueSpec::exclusive(&tool_catalog_refresh(), &instance);
    let mut requests = bus.consume(Subscription::new(queue, 1)).await.unwrap();
    let bus = bus.clone();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let request = requests.next().await.unwrap();
        request.settle(Settlement::Ack).await.unwrap();
        let mut period = tokio::time::interval(Duration::from_millis(100));
        for pool in pools {
            period.tick().await;
            bus.publish(announcement(&pool)).await.unwrap();
        }
    });
    task
}

#[tokio::test(start_paused = true)]
async fn discovered_tool_is_that_of_the_owning_pool() {
    let bus = MemoryBus::new();
    let _handlers = announce_on_request(&bus, [pool("web"), pool("files")]).await;
    let fleet = Fleet {
        bus: Arc::new(bus),
        instance: InstanceId::generate(),
        redactor: Redactor::from_patterns(),
        user: None,
        embedded: None,
        work_queue: QueueSpec::work(&pool("files").invoke_key()).name,
        drain: Duration::ZERO,
    };
    let discovered = fleet.discover_tool("cli", "read").await.unwrap();
    let read = discovered.registry.get("read").unwrap();
    assert_eq!(read.tool().invoke_key(), Some(&pool("files").invoke_key()));
}
