//! The bridge of the process, and the service that it runs on the bus.

use std::sync::Arc;

use rockbot_fleet::HandlerConnection;
use rockbot_hooks::OperatorHooks;
use rockbot_llm::ChatModel;
use rockbot_mcp_bridge::{Bridge, BridgeOptions, BridgeService};
use rockbot_service::{Health, ServeError};
use rockbot_store::StoreUrl;
use rockbot_tools::{LayerOptions, Redactor};

use super::Settings;

/// Starts the bridge and its service. Readiness depends on the required servers.
pub(crate) async fn start_service(
    settings: &Settings,
    connection: &HandlerConnection,
    hooks: &OperatorHooks,
    model: Option<Arc<dyn ChatModel>>,
    health: &Health,
) -> Result<BridgeService, ServeError> {
    let HandlerConnection { bus, store, journal, instance, namespace, .. } = connection;
    let section = &settings.common.handler;
    // An in-memory store is not shared with other bridges.
    let shared = (!matches!(connection.store_url, StoreUrl::Memory))
        .then(|| (store.clone(), namespace.clone(), instance.clone()));
    let redactor = Redactor::from_environment(settings.secrets());
    let layers = LayerOptions {
        outputs: connection.outputs(&settings.outputs),
        hooks: hooks.hooks(),
        ..section.layers(Some(&connection.fleet_store()), redactor)
    };
    let queues = section.queues();
    let options = BridgeOptions { queues, shared, model, layers, ..settings.mcp.options() };
    let bridge = Bridge::new(options);
    health.refresh_with(bridge.gauges());
    let required = bridge.clone();
    let needs_file = settings.mcp.config.is_some();
    health.needs("required_servers", move || {
        let missing = required.missing_required();
        let status = if needs_file && !required.has_applied_file() {
            Err("mcp.config has not been applied; the log says why".to_owned())
        } else if missing.is_empty() {
            Ok(())
        } else {
            Err(missing.join(", "))
        };
        Box::pin(std::future::ready(status))
    });
    let invoke = section.options().with_journal(journal.clone());
    let servers = settings.mcp.config.clone();
    let started = BridgeService::start(bus.clone(), bridge, servers, invoke, instance.clone());
    started.await.map_err(|error| ServeError::Unavailable(error.to_string()))
}
