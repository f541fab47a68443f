//! The process behind `tool.invoke`: it runs tools and answers whoever asked.
//!
//! [`ToolHandler`] is the process without its main: the `rockbot` command runs it beside an agent
//! on the in-memory bus.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError};
use rockbot_contracts::{InstanceId, topology::tool_invoke};
use rockbot_toolkit::files::{self, FilesConfig, FilesError};
use rockbot_tools::{
    CatalogAnnouncer, InvokeOptions, RegisterError, Tool, ToolExecutor, ToolInvokeHandler,
    ToolRegistry, executor::DEFAULT_MAX_RESULT_BYTES, invoke::InvokeWorkers,
};
use serde::Deserialize;

/// The name of the service on the bus.
pub const SERVICE: &str = "tool-handler";

/// The commented defaults.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");

/// `[handler]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSection {
    /// Calls that run at once. Default 64, at least 1.
    pub concurrency: u16,
    /// The largest result, in bytes of content. Default 1 MiB.
    pub max_result_bytes: usize,
}

impl Default for HandlerSection {
    fn default() -> Self {
        Self { concurrency: 64, max_result_bytes: DEFAULT_MAX_RESULT_BYTES }
    }
}

impl HandlerSection {
    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.concurrency == 0 {
            problems.push("handler.concurrency: must be at least 1".to_owned());
        }
        let most = 3 * 1024 * 1024;
        if !(1024..=most).contains(&self.max_result_bytes) {
            problems.push(format!("handler.max_result_bytes: must be 1024 to {most}"));
        }
        problems
    }
}

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

/// A running handler.
#[derive(Debug)]
pub struct ToolHandler {
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    announcer: CatalogAnnouncer,
}

impl ToolHandler {
    /// Starts a handler of the built-in tools.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        bus: Arc<dyn Bus>,
        section: HandlerSection,
        files: &FilesConfig,
        instance: InstanceId,
    ) -> Result<Self, StartError> {
        Self::start_with(bus, section, files::tools(files)?, instance).await
    }

    /// Starts a handler of other tools.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_with(
        bus: Arc<dyn Bus>,
        section: HandlerSection,
        tools: Vec<Arc<dyn Tool>>,
        instance: InstanceId,
    ) -> Result<Self, StartError> {
        let registry = Arc::new(ToolRegistry::new());
        for tool in tools {
            registry.register(tool)?;
        }
        let executor = ToolExecutor::with_max_result(registry.clone(), section.max_result_bytes);
        let options = InvokeOptions::running(section.concurrency);
        let handler =
            ToolInvokeHandler::new(Arc::new(executor), bus.clone(), SERVICE, &instance, options);
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
