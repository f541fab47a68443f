//! The service behind `tool.invoke.mcp`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rockbot_bus::{Bus, ConsumeError, Worker};
use rockbot_contracts::{
    InstanceId, QueueSpec,
    topology::{tool_invoke_mcp, tool_invoke_mcp_at},
};
use rockbot_service::watch::FileWatch;
use rockbot_tool_rpc::{
    InputRequester, InvokeOptions, ToolInvokeHandler,
    invoke::InvokeWorkers,
    mcp::{IndexAnnouncer, ManageWorker},
};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::{
    bridge::Bridge,
    config::{MAX_FILE_BYTES, ServersFile, ServersFileError},
};

/// The name of the service on the bus.
pub const SERVICE: &str = "mcp-bridge";

/// A bridge on a bus: it runs tools, announces its servers, and serves the management requests.
#[derive(Debug)]
pub struct BridgeService {
    bridge: Arc<Bridge>,
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    /// Calls addressed to this instance: for servers that no other bridge has.
    own: Worker,
    manage: ManageWorker,
    announcer: IndexAnnouncer,
    file_watcher: Option<JoinHandle<()>>,
}

impl BridgeService {
    /// Starts to serve the tools of `bridge`. With a servers file, the bridge applies it now and after
    /// every change.
    ///
    /// # Errors
    /// When a queue cannot be consumed.
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
            let tasks = bridge.clone();
            let options = options.with_tool_resolver(Arc::new(move |server, tool| {
                bridge.registry_name(server, tool)
            }));
            options.with_continuation(Arc::new(move |call| {
                let (bridge, call) = (tasks.clone(), call.clone());
                Box::pin(async move { bridge.has_task(&call).await })
            }))
        };
        let input = InputRequester::new(bus.clone(), SERVICE, &instance);
        let options = options.with_input(input.clone());
        let executor = bridge.executor().clone();
        let handler = ToolInvokeHandler::new(executor, bus.clone(), SERVICE, &instance, options);
        let workers = handler.start(&tool_invoke_mcp(), &instance).await?;
        let inbox = QueueSpec::inbox(&tool_invoke_mcp_at(&instance));
        let own = handler.start_worker(inbox).await?;
        let gateway = bridge.clone();
        let manage = ManageWorker::start(&bus, gateway, SERVICE, &instance, callers, Some(input));
        let manage = manage.await?;
        let file_watcher = file.map(|path| tokio::spawn(watch_file(bridge.clone(), path)));
        // Announced last: the tools of an announced server can be called.
        let announcer = IndexAnnouncer::start(bus, bridge.as_ref(), SERVICE, instance).await?;
        Ok(Self { bridge, handler, workers, own, manage, announcer, file_watcher })
    }

    /// Returns the handler, for its counters.
    #[must_use]
    pub fn handler(&self) -> &Arc<ToolInvokeHandler> {
        &self.handler
    }

    /// Waits until a queue is no longer consumed although nothing stopped its worker. The process must end
    /// then, to be started again.
    pub async fn ended(&self) {
        tokio::select! {
            () = self.workers.ended() => {}
            () = self.own.ended() => {}
            () = self.manage.ended() => {}
        }
    }

    /// Withdraws the announcement, stops taking calls, finishes running ones within `grace`, and stops
    /// every server. Returns whether all calls finished in time.
    pub async fn drain(self, grace: Duration) -> bool {
        if let Some(watcher) = &self.file_watcher {
            watcher.abort();
        }
        self.announcer.stop().await;
        // Concurrently: requests that arrive after the withdrawal belong to another bridge.
        let (own, managed, drained) = tokio::join!(
            self.own.drain(grace),
            self.manage.drain(grace),
            self.workers.drain(grace)
        );
        self.bridge.stop().await;
        drained && own && managed
    }
}

/// Applies the servers file whenever it changes. An invalid file changes nothing.
async fn watch_file(bridge: Arc<Bridge>, path: PathBuf) {
    let mut watch = FileWatch::new(path.clone(), MAX_FILE_BYTES);
    loop {
        let content = watch.changed().await.map_err(ServersFileError::from);
        let folder = path.parent().unwrap_or(Path::new(""));
        let servers = content.and_then(|content| {
            ServersFile::parse_in(folder, &content, |name| std::env::var(name).ok())
        });
        match servers {
            Ok(servers) => bridge.apply(servers).await,
            Err(error) => {
                let file = path.display();
                warn!(%file, %error, "servers file is invalid; keeping the previous servers");
            }
        }
    }
}
