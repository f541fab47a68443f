//! The process behind `tool.invoke`: it runs tools and answers whoever asked.
//!
//! [`ToolHandler`] is the process without its main: the `rockbot` command runs it beside an agent
//! on the in-memory bus.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError};
use rockbot_contracts::{InstanceId, topology::tool_invoke};
use rockbot_scripts::{ExecutePythonScript, Scripts};
use rockbot_tool_rpc::{
    CallJournal, CatalogAnnouncer, HandlerSection, ToolInvokeHandler, invoke::InvokeWorkers,
};
use rockbot_toolkit::files::{self, FilesConfig, FilesError};
use rockbot_tools::{LayerOptions, RegisterError, Tool, ToolExecutor, ToolRegistry};

/// The name of the service on the bus.
pub const SERVICE: &str = "tool-handler";

/// The commented defaults.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");

/// Why a handler does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file tools can't be made.
    #[error("[files]: {0}")]
    Files(#[from] FilesError),
    /// Two tools have one name, or a definition is unusable.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The bus refuses a queue.
    #[error(transparent)]
    Consume(#[from] ConsumeError),
}

/// The built-in tools: files and shell, and scripts where somebody runs them.
///
/// # Errors
/// See [`StartError::Files`].
pub fn tools(
    files: &FilesConfig,
    scripts: Option<&Scripts>,
) -> Result<Vec<Arc<dyn Tool>>, StartError> {
    let mut tools = files::tools(files)?;
    if let Some(scripts) = scripts {
        let contained = scripts.isolation().is_complete();
        tools.push(Arc::new(ExecutePythonScript::new(scripts.runner(), contained)));
    }
    Ok(tools)
}

/// A running handler.
#[derive(Debug)]
pub struct ToolHandler {
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    announcer: CatalogAnnouncer,
}

impl ToolHandler {
    /// Starts a handler of these tools, whose calls pass through `layers`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        bus: Arc<dyn Bus>,
        section: &HandlerSection,
        tools: Vec<Arc<dyn Tool>>,
        journal: Arc<CallJournal>,
        layers: LayerOptions,
        instance: InstanceId,
    ) -> Result<Self, StartError> {
        let registry = Arc::new(ToolRegistry::new());
        for tool in tools {
            registry.register(tool)?;
        }
        let executor = ToolExecutor::with_layers(registry.clone(), layers);
        let options = section.options().with_journal(journal);
        let executor = Arc::new(executor);
        let handler = ToolInvokeHandler::new(executor, bus.clone(), SERVICE, &instance, options);
        let workers = handler.start(&tool_invoke(), &instance).await?;
        // Announced last: whoever hears of a tool can call it.
        let observed = handler.clone();
        let load = move || observed.load();
        let announcer = CatalogAnnouncer::start(bus, registry, SERVICE, instance, load).await?;
        Ok(Self { handler, workers, announcer })
    }

    /// The handler's counts.
    #[must_use]
    pub fn handler(&self) -> &Arc<ToolInvokeHandler> {
        &self.handler
    }

    /// Says goodbye, stops taking calls, and finishes those under way within `grace`. Whether all
    /// of them ended in time.
    pub async fn drain(self, grace: Duration) -> bool {
        self.announcer.stop().await;
        self.workers.drain(grace).await
    }
}
