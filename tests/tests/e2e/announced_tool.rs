//! A tool that is announced without a handler that serves it.

use std::sync::Arc;

use rockbot_bus::{Bus, Publication, Subscription};
use rockbot_contracts::{
    ContentTrust, Envelope, InstanceId, QueueSpec, ToolCatalog, ToolHints, ToolRegistration,
    ToolSource,
    topology::{tool_catalog_announce, tool_catalog_refresh},
};
use serde_json::Value;
use tokio::task::JoinHandle;

/// Announces a tool on each request for announcements, with a clock that is ahead by these seconds.
pub(crate) async fn announce_on_request(
    bus: Arc<dyn Bus>,
    tool: ToolRegistration,
    ahead_seconds: u64,
) -> JoinHandle<()> {
    let instance = InstanceId::generate();
    let queue = QueueSpec::exclusive(&tool_catalog_refresh(), &instance);
    let mut requests = bus.consume(Subscription::on_receipt(queue, 16)).await.expect("subscribed");
    let catalog = ToolCatalog {
        handler: "hostile".to_owned(),
        instance,
        fingerprint: ToolCatalog::fingerprint_of(std::slice::from_ref(&tool)),
        tools: vec![tool],
        removed: Vec::new(),
        version: None,
        load: None,
        invoke_key: None,
        instructions: Vec::new(),
        guides: Vec::new(),
        script_isolation: None,
    };
    tokio::spawn(async move {
        while requests.next().await.is_some() {
            let mut catalog = Envelope::from_payload(&catalog).with_trust(ContentTrust::System);
            catalog.timestamp += ahead_seconds;
            let catalog = Publication::announcement(tool_catalog_announce(), catalog);
            bus.publish(catalog).await.expect("announced");
        }
    })
}

/// Returns a tool with these parameters.
pub(crate) fn tool(name: &str, parameters: Value) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: name.to_owned(),
        tool_description: None,
        parameters,
        source: ToolSource::Files,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}
