//! The handler of the process, with its tools and the layers of their calls.

use rockbot_fleet::HandlerConnection;
use rockbot_hooks::OperatorHooks;
use rockbot_scripts::Scripts;
use rockbot_service::ServeError;
use rockbot_tool_handler::{
    ToolHandler,
    families::{self, FamilyParts, providers},
};
use rockbot_tools::{LayerOptions, Outputs, Redactor};

use super::{Settings, configuration_error};

pub(crate) async fn start_handler(
    settings: &Settings,
    connection: &HandlerConnection,
    hooks: &OperatorHooks,
    scripts: Option<&Scripts>,
) -> Result<ToolHandler, ServeError> {
    let section = &settings.common.handler;
    let stored = settings.outputs.enabled;
    let outputs = stored.then(|| Outputs::new(connection.store.clone(), settings.outputs.clone()));
    let parts = FamilyParts {
        files: &settings.files,
        scripts: scripts.map(Into::into),
        web: Some(&settings.web),
        #[cfg(feature = "pdf")]
        pdf: families::pdf_reader(),
        #[cfg(not(feature = "pdf"))]
        pdf: None,
        rest: Some(&settings.rest),
        queues: section.queues(),
        outputs: outputs.clone(),
    };
    let providers = providers(section.families(), parts).map_err(configuration_error)?;
    let redactor = Redactor::from_environment(settings.common.secrets());
    let layers = LayerOptions {
        outputs,
        hooks: hooks.hooks(),
        ..section.layers(Some(&connection.fleet_store()), redactor)
    };
    let (bus, journal) = (connection.bus.clone(), connection.journal.clone());
    let instance = connection.instance.clone();
    let started = ToolHandler::start(bus, section, providers, journal, layers, instance).await;
    started.map_err(|error| ServeError::Unavailable(error.to_string()))
}
