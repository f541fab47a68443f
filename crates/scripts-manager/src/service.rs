//! The service behind `script.invoke`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError};
use rockbot_contracts::{InstanceId, topology::script_invoke};
use rockbot_scripts::{RunScript, ScriptProtocol};
use rockbot_tool_rpc::{CallJournal, HandlerSection, ToolInvokeHandler, invoke::InvokeWorkers};
use rockbot_tools::{Redactor, RegisterError, ToolExecutor, ToolRegistry};
use tracing::warn;

use crate::runner::KubernetesRunner;

/// The name of the service on the bus.
pub const SERVICE: &str = "scripts-manager";
/// Time limit for pod deletions at shutdown. Others are left to the sweep of another manager.
const DELETION_TIMEOUT: Duration = Duration::from_secs(5);

/// An error that keeps the manager from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The tool can't be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The bus rejects a queue.
    #[error(transparent)]
    Consume(#[from] ConsumeError),
}

/// A scripts manager that consumes requests from a bus.
#[derive(Debug)]
pub struct ScriptsManager {
    runner: Arc<KubernetesRunner>,
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
}

impl ScriptsManager {
    /// Probes whether scripts can reach `probe_addresses`, for at most 90 s, and then starts to consume
    /// requests: no script runs before its isolation is known. Without addresses the network counts as a
    /// gap.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        bus: Arc<dyn Bus>,
        runner: Arc<KubernetesRunner>,
        section: &HandlerSection,
        journal: Arc<CallJournal>,
        instance: InstanceId,
        probe_addresses: Vec<SocketAddr>,
    ) -> Result<Self, StartError> {
        let isolation = runner.probe(&probe_addresses).await;
        if !isolation.is_complete() {
            warn!(%isolation, "script isolation incomplete; every result reports it");
        }
        let registry = Arc::new(ToolRegistry::new());
        // A lost script is adopted where it runs; if it may have had effects, the runner does not run it
        // twice.
        registry.register(Arc::new(RunScript::new(runner.clone(), true)))?;
        let layers = section.layers(None, Redactor::from_environment([]));
        let executor = ToolExecutor::with_layers(registry, layers);
        // There is only one tool, which may use all of the concurrency.
        let per_tool = Some(section.per_tool.unwrap_or(section.concurrency));
        let options = HandlerSection { per_tool, ..section.clone() }.options();
        let options = options.with_journal(journal).with_protocol(ScriptProtocol);
        let handler = ToolInvokeHandler::new(Arc::new(executor), bus, SERVICE, &instance, options);
        let workers = handler.start(&script_invoke(), &instance).await?;
        Ok(Self { runner, handler, workers })
    }

    /// Returns the handler.
    #[must_use]
    pub fn handler(&self) -> &Arc<ToolInvokeHandler> {
        &self.handler
    }

    /// Waits until a queue is no longer consumed although nothing stopped its worker. The process must end
    /// then, to be started again.
    pub async fn ended(&self) {
        self.workers.ended().await;
    }

    /// Stops consuming requests and finishes running scripts within `grace`. Others go on in their pods,
    /// and the manager that gets the request next replies. Returns whether all finished in time.
    pub async fn drain(self, grace: Duration) -> bool {
        self.runner.detach();
        let drained = self.workers.drain(grace).await;
        self.runner.stop(DELETION_TIMEOUT).await;
        drained
    }
}
