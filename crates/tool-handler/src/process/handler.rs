//! The handler of the process, with its tools and the layers of their calls.

use std::sync::Arc;

use rockbot_fleet::HandlerConnection;
use rockbot_hooks::OperatorHooks;
use rockbot_scripts::Scripts;
use rockbot_service::ServeError;
use rockbot_tool_handler::{StartError, ToolHandler, tools};
use rockbot_tools::{LayerOptions, Outputs, Redactor, ToolOutput};

use super::{Settings, configuration_error};

pub(crate) async fn start_handler(
    settings: &Settings,
    connection: &HandlerConnection,
    hooks: &OperatorHooks,
    scripts: Option<&Scripts>,
) -> Result<ToolHandler, ServeError> {
    let section = &settings.common.handler;
    let mut tools = tools(&settings.files, scripts).map_err(configuration_error)?;
    let stored = settings.outputs.enabled;
    let outputs = stored.then(|| Outputs::new(connection.store.clone(), settings.outputs.clone()));
    if let Some(outputs) = &outputs {
        tools.push(Arc::new(ToolOutput::new(outputs.clone())));
    }
    let redactor = Redactor::from_environment(settings.common.secrets());
    let layers = LayerOptions {
        outputs,
        hooks: hooks.hooks(),
        ..section.layers(Some(&connection.fleet_store()), redactor)
    };
    let (bus, journal) = (connection.bus.clone(), connection.journal.clone());
    let instance = connection.instance.clone();
    let started = ToolHandler::start(bus, section, tools, journal, layers, instance).await;
    started.map_err(|error| match error {
        StartError::Consume(error) => ServeError::Unavailable(error.to_string()),
        other => configuration_error(other),
    })
}
