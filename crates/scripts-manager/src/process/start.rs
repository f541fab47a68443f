//! Start of the manager with its runner of pods.

use std::sync::Arc;

use rockbot_fleet::HandlerConnection;
use rockbot_scripts_manager::{KubernetesRunner, PodsSection, ScriptsManager, StartError};
use rockbot_service::ServeError;
use rockbot_tool_rpc::HandlerSection;
use rockbot_tools::{LayerOptions, OutputsSection, Redactor};

use super::{Cluster, configuration_error};

pub(crate) async fn start_manager(
    cluster: Cluster,
    scripts: PodsSection,
    section: &HandlerSection,
    outputs: &OutputsSection,
    connection: &HandlerConnection,
) -> Result<ScriptsManager, ServeError> {
    let Cluster { client, probe_addresses } = cluster;
    let runner = KubernetesRunner::start(client, scripts)
        .map_err(|error| configuration_error(format!("scripts.images: {error}")))?;
    let HandlerConnection { bus, journal, instance, .. } = connection;
    let (bus, journal, instance) = (bus.clone(), journal.clone(), instance.clone());
    let runner = Arc::new(runner);
    let layers = LayerOptions {
        outputs: connection.outputs(outputs),
        ..section.layers(None, Redactor::from_environment([]))
    };
    let started =
        ScriptsManager::start(bus, runner, section, layers, journal, instance, probe_addresses)
            .await;
    started.map_err(|error| match error {
        StartError::Consume(error) => ServeError::Unavailable(error.to_string()),
        other => configuration_error(other),
    })
}
