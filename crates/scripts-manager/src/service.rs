//! The process behind `script.invoke`, without its main.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError};
use rockbot_contracts::{InstanceId, topology::script_invoke};
use rockbot_scripts::{RunScript, ScriptConversation};
use rockbot_tool_rpc::{CallJournal, HandlerSection, ToolInvokeHandler, invoke::InvokeWorkers};
use rockbot_tools::{Redactor, RegisterError, ToolExecutor, ToolRegistry};
use tracing::warn;

use crate::runner::KubernetesRunner;

/// The name of the service on the bus.
pub const SERVICE: &str = "scripts-manager";
/// How long pods may take to be deleted when the process stops. The sweep of another one, or of the
/// next, deletes the others.
const LAST_DELETIONS: Duration = Duration::from_secs(5);

/// Why a manager does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The one tool can't be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The bus refuses a queue.
    #[error(transparent)]
    Consume(#[from] ConsumeError),
}

/// A manager of scripts that serves on a bus.
#[derive(Debug)]
pub struct ScriptsManager {
    runner: Arc<KubernetesRunner>,
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
}

impl ScriptsManager {
    /// Has a script try to reach `probed`, for 90 s at most, and then starts to run what is asked
    /// for: nothing runs before it is known what it is kept from. Without addresses the network counts
    /// as open.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        bus: Arc<dyn Bus>,
        runner: Arc<KubernetesRunner>,
        section: &HandlerSection,
        journal: Arc<CallJournal>,
        instance: InstanceId,
        probed: Vec<SocketAddr>,
    ) -> Result<Self, StartError> {
        let isolation = runner.probed(&probed).await;
        if !isolation.is_complete() {
            warn!(%isolation, "scripts are not kept from everything, as every result says");
        }
        let registry = Arc::new(ToolRegistry::new());
        // A lost script is taken on where it runs; the runner does not run one twice that may have
        // reached something.
        registry.register(Arc::new(RunScript::new(runner.clone(), true)))?;
        let layers = section.layers(None, Redactor::of_process([]));
        let executor = ToolExecutor::with_layers(registry, layers);
        // There is one tool: it need not leave room for others.
        let per_tool = Some(section.per_tool.unwrap_or(section.concurrency));
        let options = HandlerSection { per_tool, ..section.clone() }.options();
        let options = options.journaled(journal).in_words_of(ScriptConversation);
        let handler = ToolInvokeHandler::new(Arc::new(executor), bus, SERVICE, &instance, options);
        let workers = handler.start(&script_invoke(), &instance).await?;
        Ok(Self { runner, handler, workers })
    }

    /// The handler's counts.
    #[must_use]
    pub fn handler(&self) -> &Arc<ToolInvokeHandler> {
        &self.handler
    }

    /// Stops taking scripts, and answers those under way within `grace`. What does not end in time
    /// goes on in its pod, and is answered by the manager that gets the request next. Whether all
    /// ended in time.
    pub async fn drain(self, grace: Duration) -> bool {
        self.runner.leave();
        let drained = self.workers.drain(grace).await;
        self.runner.stop(LAST_DELETIONS).await;
        drained
    }
}
