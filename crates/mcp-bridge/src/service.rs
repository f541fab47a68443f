//! The process behind `tool.invoke.mcp`, without its main.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Worker};
use rockbot_contracts::{
    InstanceId, QueueSpec,
    topology::{tool_invoke_mcp, tool_invoke_mcp_at},
};
use rockbot_tool_rpc::{
    InvokeOptions, ToolInvokeHandler,
    invoke::InvokeWorkers,
    mcp::{IndexAnnouncer, ManageWorker},
};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::{bridge::Bridge, config::FileWatch};

/// The name of the service on the bus.
pub const SERVICE: &str = "mcp-bridge";

/// A bridge that serves on a bus: it runs tools, tells which servers there are, and answers
/// questions about them.
#[derive(Debug)]
pub struct BridgeService {
    bridge: Arc<Bridge>,
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    /// Calls to this process alone: of servers that no other bridge has.
    own: Worker,
    manage: ManageWorker,
    announcer: IndexAnnouncer,
    following: Option<JoinHandle<()>>,
}

impl BridgeService {
    /// Starts to serve what `bridge` has. With a file of servers, the bridge serves what is in it,
    /// now and after every change.
    ///
    /// # Errors
    /// When a queue can't be consumed.
    pub async fn start(
        bus: Arc<dyn Bus>,
        bridge: Arc<Bridge>,
        file: Option<PathBuf>,
        options: InvokeOptions,
        instance: InstanceId,
    ) -> Result<Self, ConsumeError> {
        let callers = options.callers;
        let options = {
            let bridge = bridge.clone();
            options
                .with_tool_resolver(Arc::new(move |server, tool| bridge.registered(server, tool)))
        };
        let executor = bridge.executor().clone();
        let handler = ToolInvokeHandler::new(executor, bus.clone(), SERVICE, &instance, options);
        let workers = handler.start(&tool_invoke_mcp(), &instance).await?;
        let inbox = QueueSpec::inbox(&tool_invoke_mcp_at(&instance));
        let own = handler.start_worker(inbox).await?;
        let gateway = bridge.clone();
        let manage = ManageWorker::start(&bus, gateway, SERVICE, &instance, callers).await?;
        let following = file.map(|path| tokio::spawn(follow(bridge.clone(), path)));
        // Announced last: whoever hears of a server can call its tools.
        let announcer = IndexAnnouncer::start(bus, bridge.as_ref(), SERVICE, instance).await?;
        Ok(Self { bridge, handler, workers, own, manage, announcer, following })
    }

    /// The handler's counts.
    #[must_use]
    pub fn handler(&self) -> &Arc<ToolInvokeHandler> {
        &self.handler
    }

    /// Says goodbye, stops taking calls, finishes those under way within `grace`, and ends every
    /// server. Whether all calls ended in time.
    pub async fn drain(self, grace: Duration) -> bool {
        if let Some(following) = &self.following {
            following.abort();
        }
        self.announcer.stop().await;
        // All at once: what comes in after the goodbye is another bridge's.
        let (own, managed, drained) = tokio::join!(
            self.own.drain(grace),
            self.manage.drain(grace),
            self.workers.drain(grace)
        );
        self.bridge.stop().await;
        drained && own && managed
    }
}

/// Serves what the file says, whenever it changes. What can't be used changes nothing.
async fn follow(bridge: Arc<Bridge>, path: PathBuf) {
    let mut watch = FileWatch::new(path.clone());
    loop {
        match watch.changed().await {
            Ok(servers) => bridge.apply(servers).await,
            Err(problem) => {
                let file = path.display();
                warn!(%file, %problem, "the file of servers can't be used; nothing changes");
            }
        }
    }
}
