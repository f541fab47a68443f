//! The tools of MCP servers in the registry of a fleet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use rockbot_contracts::{
    mcp::{McpServerDetails, McpServerDetailsRequest, McpServerSummary, McpToolDefinition},
    outside_text::{is_name, plain},
};
use rockbot_tool_rpc::mcp::{McpGateway, McpIndex, McpServerTools};
use rockbot_tools::{
    ToolProvider, ToolRegistry,
    names::{DEFAULT_NAME_BYTES, sanitize, with_hash},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

/// Number of servers whose definitions are fetched concurrently.
const CONCURRENT_FETCHES: usize = 8;
/// Time limit for the definitions of a server.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before the definitions of a server that did not return them are requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of tools of one server.
const MAX_TOOLS: usize = 2048;
/// Longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 4000;

/// Keeps the tools of all servers of a gateway registered, until it is dropped.
#[derive(Debug)]
pub(crate) struct ServerTools {
    /// Fingerprint of the last index whose servers were all requested.
    loaded: watch::Receiver<Option<String>>,
    index: watch::Receiver<McpIndex>,
    task: JoinHandle<()>,
}

/// The registered tools of a server.
#[derive(Debug, Default)]
struct Loaded {
    fingerprint: String,
    names: Vec<String>,
}

impl ServerTools {
    /// Registers the tools in `registry`. Tools of `handlers` keep their names.
    pub(crate) fn start(
        gateway: Arc<dyn McpGateway>,
        registry: Arc<ToolRegistry>,
        handlers: Arc<ToolRegistry>,
    ) -> Self {
        let (sender, loaded) = watch::channel(None);
        let index = gateway.index();
        let mut changes = index.clone();
        let mut servers = Servers { gateway, registry, handlers, loaded: BTreeMap::new() };
        let task = tokio::spawn(async move {
            loop {
                let current = changes.borrow_and_update().clone();
                let is_complete = servers.update(&current).await;
                sender.send_replace(Some(current.fingerprint()));
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { break },
                    () = sleep(RETRY_PAUSE), if !is_complete => {}
                }
            }
        });
        Self { loaded, index, task }
    }

    /// Waits until the definitions of all servers in the current index were requested once.
    pub(crate) fn loaded(&self) -> impl Future<Output = ()> + Send + 'static {
        let (mut loaded, index) = (self.loaded.clone(), self.index.clone());
        async move {
            let is_current =
                |loaded: &Option<String>| *loaded == Some(index.borrow().fingerprint());
            // An error means that the task has ended, so that nothing changes any more.
            let _ = loaded.wait_for(is_current).await;
        }
    }
}

impl Drop for ServerTools {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Servers {
    gateway: Arc<dyn McpGateway>,
    registry: Arc<ToolRegistry>,
    handlers: Arc<ToolRegistry>,
    /// By name in lower case.
    loaded: BTreeMap<String, Loaded>,
}

impl Servers {
    /// Registers the tools of new and changed servers, and removes those of others. Returns whether every
    /// server returned its definitions.
    async fn update(&mut self, index: &McpIndex) -> bool {
        let gone = self.loaded.keys().filter(|name| index.get(name).is_none());
        for name in gone.cloned().collect::<Vec<_>>() {
            let names = self.loaded.remove(&name).unwrap_or_default().names;
            names.iter().for_each(|tool| _ = self.registry.unregister(tool));
        }
        let is_changed = |server: &&McpServerSummary| {
            let known = self.loaded.get(&server.name.to_lowercase());
            known.is_none_or(|known| known.fingerprint != server.fingerprint)
        };
        let changed: Vec<_> = index.servers().filter(is_changed).cloned().collect();
        let gateway = self.gateway.clone();
        let mut fetched = stream::iter(changed)
            .map(move |server| fetch(gateway.clone(), server.name))
            .buffer_unordered(CONCURRENT_FETCHES);
        let mut is_complete = true;
        while let Some(details) = fetched.next().await {
            match details {
                Some(details) => self.register(details),
                None => is_complete = false,
            }
        }
        is_complete
    }

    fn register(&mut self, mut details: McpServerDetails) {
        let (server, fingerprint) =
            (details.server.name.clone(), details.server.fingerprint.clone());
        details.tools.retain(|tool| is_name(&tool.name));
        details.tools.truncate(MAX_TOOLS);
        let known = self.loaded.remove(&server.to_lowercase()).unwrap_or_default();
        let mut taken = Vec::with_capacity(details.tools.len());
        for definition in &mut details.tools {
            let name = self.name_of(&server, definition, &known.names, &taken);
            describe(&server, definition);
            definition.model_name.clone_from(&name);
            taken.push(name);
        }
        let mut names = Vec::with_capacity(taken.len());
        for tool in McpServerTools::new(details, &self.gateway).list() {
            let name = tool.registration().name.clone();
            match self.registry.replace(tool) {
                Ok(()) => names.push(name),
                Err(error) => warn!(%server, %error, "MCP tool rejected"),
            }
        }
        let gone = known.names.iter().filter(|name| !names.contains(name));
        gone.for_each(|tool| _ = self.registry.unregister(tool));
        self.loaded.insert(server.to_lowercase(), Loaded { fingerprint, names });
    }

    /// Returns the name of a tool: the wanted one, or one with a hash if another tool has it.
    fn name_of(
        &self,
        server: &str,
        definition: &McpToolDefinition,
        own: &[String],
        taken: &[String],
    ) -> String {
        let wanted = sanitize(&definition.model_name, DEFAULT_NAME_BYTES);
        let is_other = self.registry.get(&wanted).is_some() && !own.contains(&wanted);
        if !is_other && self.handlers.get(&wanted).is_none() && !taken.contains(&wanted) {
            return wanted;
        }
        with_hash(&wanted, &format!("{server}\n{}", definition.name), DEFAULT_NAME_BYTES)
    }
}

/// Names the author of the description, which is text from outside.
fn describe(server: &str, definition: &mut McpToolDefinition) {
    let description = plain(&definition.description, MAX_DESCRIPTION_CHARS);
    definition.description = format!(
        "Tool {} of the MCP server {server}. Description by the server: {description}",
        definition.name
    );
    definition.title = definition.title.take().map(|title| plain(&title, 128));
}

async fn fetch(gateway: Arc<dyn McpGateway>, server: String) -> Option<McpServerDetails> {
    let request =
        McpServerDetailsRequest { server_name: server.clone(), tool_name: None, after: None };
    match timeout(FETCH_TIMEOUT, gateway.details(request)).await {
        Ok(Ok(details)) => Some(details),
        Ok(Err(error)) => {
            debug!(%server, code = ?error.code, "definitions of MCP server unavailable");
            None
        }
        Err(_) => {
            warn!(%server, timeout = ?FETCH_TIMEOUT, "definitions of MCP server timed out");
            None
        }
    }
}
