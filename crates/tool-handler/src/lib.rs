//! The tool handler: a process that serves `tool.invoke` requests by running tools.
//!
//! [`ToolHandler`] is the process without its `main`: the `rockbot` command embeds it next to an agent
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

/// Name of the service on the bus.
pub const SERVICE: &str = "tool-handler";

/// Default configuration with comments, in TOML.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");

/// Error of starting a handler.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file tools cannot be created.
    #[error("[files]: {0}")]
    Files(#[from] FilesError),
    /// Two tools have the same name, or a definition is invalid.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The bus rejected a queue.
    #[error(transparent)]
    Consume(#[from] ConsumeError),
}

/// Creates the built-in tools: files and shell, and scripts if a runner is configured.
///
/// # Errors
/// See [`StartError::Files`].
pub fn tools(
    files: &FilesConfig,
    scripts: Option<&Scripts>,
) -> Result<Vec<Arc<dyn Tool>>, StartError> {
    let mut tools = files::tools(files)?;
    if let Some(scripts) = scripts {
        let is_isolated = scripts.isolation().is_complete();
        tools.push(Arc::new(ExecutePythonScript::new(scripts.runner(), is_isolated)));
    }
    Ok(tools)
}

/// A running tool handler.
#[derive(Debug)]
pub struct ToolHandler {
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    announcer: CatalogAnnouncer,
}

impl ToolHandler {
    /// Starts a handler for these tools. Their calls pass through `layers`.
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
        // Announced last, so that a requester can call a tool as soon as it is announced.
        let observed = handler.clone();
        let load = move || observed.load();
        let announcer = CatalogAnnouncer::start(bus, registry, SERVICE, instance, load).await?;
        Ok(Self { handler, workers, announcer })
    }

    /// Returns the request handler, for its metrics.
    #[must_use]
    pub fn handler(&self) -> &Arc<ToolInvokeHandler> {
        &self.handler
    }

    /// Withdraws the announcement, stops accepting calls, and finishes the running ones within `grace`.
    /// Returns `true` if all of them finished in time.
    pub async fn drain(self, grace: Duration) -> bool {
        self.announcer.stop().await;
        self.workers.drain(grace).await
    }
}
