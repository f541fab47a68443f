//! Providers whose tools are in a registry.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream};
use rockbot_contracts::{ProviderInstructions, ScriptIsolation, ToolGuide};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tracing::warn;

use crate::{
    provider::{ToolProvider, bounded_instructions},
    registry::ToolRegistry,
    tool::Tool,
};

/// Time limit of the warm-up of each provider.
pub const WARM_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of providers that warm up at once.
const CONCURRENT_WARM_UPS: usize = 16;

/// Keeps the tools of providers in a registry until dropped. The tools stay registered then, and no longer
/// change.
pub struct AttachedProviders {
    providers: Arc<[Arc<dyn ToolProvider>]>,
    task: JoinHandle<()>,
}

impl AttachedProviders {
    /// Warms up all providers, each at most [`WARM_UP_TIMEOUT`] and sixteen at once, registers their tools,
    /// and follows their changes. Of two tools with the same name, the one of the provider that comes first
    /// in the list is registered.
    ///
    /// A failed warm-up, a name that is taken and an invalid definition are logged. The other tools are
    /// registered.
    ///
    /// # Cancellation
    /// No tool is registered when the future is dropped.
    pub async fn attach(
        registry: Arc<ToolRegistry>,
        providers: Vec<Arc<dyn ToolProvider>>,
    ) -> Self {
        stream::iter(providers.clone())
            .for_each_concurrent(CONCURRENT_WARM_UPS, |provider| async move {
                warm_up(provider.as_ref()).await;
            })
            .await;
        let providers: Arc<[_]> = providers.into();
        // Before the first list, so that no change is missed.
        let changes: Vec<_> = providers.iter().filter_map(|provider| provider.changes()).collect();
        let mut sync = ProviderSync::new(registry, providers.clone());
        sync.update();
        let task = tokio::spawn(async move {
            let mut changes = stream::select_all(changes.into_iter().map(notifications));
            while changes.next().await.is_some() {
                sync.update();
            }
        });
        Self { providers, task }
    }

    /// Returns the instructions of the providers for models, at most
    /// [`ProviderInstructions::MAX_ENTRIES`].
    #[must_use]
    pub fn instructions(&self) -> Vec<ProviderInstructions> {
        let instructions = self.providers.iter().filter_map(|provider| {
            let text = bounded_instructions(provider.as_ref())?;
            Some(ProviderInstructions { source: provider.source(), text })
        });
        instructions.take(ProviderInstructions::MAX_ENTRIES).collect()
    }

    /// Returns the guides of the providers, at most [`ToolGuide::MAX_ENTRIES`].
    #[must_use]
    pub fn guides(&self) -> Vec<ToolGuide> {
        let guides = self.providers.iter().flat_map(|provider| {
            let source = provider.source();
            provider.guides().into_iter().map(move |guide| guide.announced(source.clone()))
        });
        guides.take(ToolGuide::MAX_ENTRIES).collect()
    }

    /// Returns the isolation of scripts of the first provider that runs some.
    #[must_use]
    pub fn script_isolation(&self) -> Option<ScriptIsolation> {
        self.providers.iter().find_map(|provider| provider.script_isolation())
    }
}

impl Drop for AttachedProviders {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for AttachedProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources = self.providers.iter().map(|provider| provider.source());
        f.debug_list().entries(sources).finish()
    }
}

async fn warm_up(provider: &dyn ToolProvider) {
    let source = provider.source();
    match timeout(WARM_UP_TIMEOUT, provider.warm_up()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%source, %error, "tool provider warm-up failed"),
        Err(_) => warn!(%source, after = ?WARM_UP_TIMEOUT, "tool provider warm-up timed out"),
    }
}

/// Returns a stream with an item for each change, which ends with the sender.
fn notifications(changes: watch::Receiver<u64>) -> stream::BoxStream<'static, ()> {
    let next = async |mut changes: watch::Receiver<u64>| {
        changes.changed().await.ok()?;
        Some(((), changes))
    };
    Box::pin(stream::unfold(changes, next))
}

/// Updates a registry with the tools of providers. Changes only tools that it registered.
struct ProviderSync {
    registry: Arc<ToolRegistry>,
    providers: Arc<[Arc<dyn ToolProvider>]>,
    registered: BTreeMap<String, Arc<dyn Tool>>,
    /// Reasons why tools are not registered, so that each is logged once.
    refused: BTreeSet<String>,
}

impl ProviderSync {
    fn new(registry: Arc<ToolRegistry>, providers: Arc<[Arc<dyn ToolProvider>]>) -> Self {
        Self { registry, providers, registered: BTreeMap::new(), refused: BTreeSet::new() }
    }

    fn update(&mut self) {
        let mut refused = BTreeSet::new();
        let wanted = self.wanted(&mut refused);
        self.registered.retain(|name, _| {
            let stays = wanted.contains_key(name);
            if !stays {
                self.registry.unregister(name);
            }
            stays
        });
        for (name, tool) in wanted {
            if let Err(reason) = self.register(name, tool) {
                refused.insert(reason);
            }
        }
        for reason in refused.difference(&self.refused) {
            warn!(%reason, "tool of a provider not registered");
        }
        self.refused = refused;
    }

    /// Returns the tools to register, by name, and adds the conflicts between providers to `refused`.
    fn wanted(&self, refused: &mut BTreeSet<String>) -> BTreeMap<String, Arc<dyn Tool>> {
        let mut wanted = BTreeMap::<String, Arc<dyn Tool>>::new();
        for tool in self.providers.iter().flat_map(|provider| provider.list()) {
            let new = tool.registration().source.clone();
            match wanted.entry(tool.registration().name.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(tool);
                }
                Entry::Occupied(entry) => {
                    let (name, existing) = (entry.key(), &entry.get().registration().source);
                    refused.insert(format!(
                        "tool {name} of {new} is already registered by {existing}; rename one of them"
                    ));
                }
            }
        }
        wanted
    }

    /// Registers a tool, or puts it in place of its previous version.
    fn register(&mut self, name: String, tool: Arc<dyn Tool>) -> Result<(), String> {
        let registered = match self.registered.get(&name) {
            Some(current) if Arc::ptr_eq(current, &tool) => return Ok(()),
            Some(_) => self.registry.replace(tool.clone()),
            None => self.registry.register(tool.clone()),
        };
        match registered {
            Ok(()) => {
                self.registered.insert(name, tool);
                Ok(())
            }
            Err(error) => {
                if self.registered.remove(&name).is_some() {
                    self.registry.unregister(&name);
                }
                Err(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use parking_lot::Mutex;
    use rockbot_contracts::{ToolRegistration, ToolSource};
    use serde_json::json;

    use super::*;
    use crate::{
        provider::{MAX_INSTRUCTIONS, WarmUpError},
        testing::{Echo, registration},
    };

    /// A provider whose tools change.
    struct Changing {
        source: ToolSource,
        tools: Mutex<Vec<Arc<dyn Tool>>>,
        changes: watch::Sender<u64>,
        hangs: bool,
        instructions: Option<String>,
    }

    impl Changing {
        fn new(source: ToolSource, names: &[&str]) -> Self {
            let tools = names.iter().map(|name| tool(&source, name)).collect();
            let (tools, changes) = (Mutex::new(tools), watch::Sender::new(0));
            Self { source, tools, changes, hangs: false, instructions: None }
        }

        fn set(&self, tools: Vec<Arc<dyn Tool>>) {
            *self.tools.lock() = tools;
            self.changes.send_modify(|version| *version += 1);
        }
    }

    impl ToolProvider for Changing {
        fn source(&self) -> ToolSource {
            self.source.clone()
        }

        fn list(&self) -> Vec<Arc<dyn Tool>> {
            self.tools.lock().clone()
        }

        fn warm_up(&self) -> BoxFuture<'_, Result<(), WarmUpError>> {
            if self.hangs {
                return Box::pin(std::future::pending());
            }
            let origin = self.source.clone();
            let error = WarmUpError { origin, reason: "no document; add one".to_owned() };
            Box::pin(std::future::ready(Err(error)))
        }

        fn instructions(&self) -> Option<String> {
            self.instructions.clone()
        }

        fn changes(&self) -> Option<watch::Receiver<u64>> {
            Some(self.changes.subscribe())
        }
    }

    fn tool(source: &ToolSource, name: &str) -> Arc<dyn Tool> {
        Arc::new(Echo(ToolRegistration { source: source.clone(), ..registration(name) }))
    }

    fn names(registry: &ToolRegistry) -> Vec<(String, ToolSource)> {
        registry.list().into_iter().map(|tool| (tool.name, tool.source)).collect()
    }

    /// Waits until the registry changes.
    async fn changed(changes: &mut watch::Receiver<u64>) {
        timeout(Duration::from_secs(60), changes.changed()).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_and_failing_warm_up_delay_no_tool_for_longer_than_the_limit() {
        let hanging = Changing { hangs: true, ..Changing::new(ToolSource::Rest, &["call"]) };
        let failing = Changing::new(ToolSource::Web, &["browse"]);
        let registry = Arc::new(ToolRegistry::new());
        let started = tokio::time::Instant::now();
        let providers: Vec<Arc<dyn ToolProvider>> = vec![Arc::new(hanging), Arc::new(failing)];
        let _attached = AttachedProviders::attach(registry.clone(), providers).await;
        assert_eq!(started.elapsed(), WARM_UP_TIMEOUT);
        let registered = names(&registry).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(registered, ["browse", "call"]);
    }

    #[tokio::test]
    async fn registry_follows_the_changes_of_a_provider() {
        let rest = ToolSource::Rest;
        let provider = Arc::new(Changing::new(rest.clone(), &["a", "b"]));
        let registry = Arc::new(ToolRegistry::new());
        let _attached = AttachedProviders::attach(registry.clone(), vec![provider.clone()]).await;
        let mut changes = registry.subscribe();
        provider.set(vec![tool(&rest, "b"), tool(&rest, "c")]);
        let expected = [("b".to_owned(), rest.clone()), ("c".to_owned(), rest.clone())];
        while names(&registry) != expected {
            changed(&mut changes).await;
        }
        let mut described = registration("c");
        described.description = "another one".to_owned();
        provider.set(vec![Arc::new(Echo(described))]);
        let is_new = || registry.list().iter().all(|tool| tool.description == "another one");
        while !is_new() {
            changed(&mut changes).await;
        }
        let mut invalid = registration("c");
        invalid.parameters = json!(true);
        provider.set(vec![Arc::new(Echo(invalid))]);
        while registry.get("c").is_some() {
            changed(&mut changes).await;
        }
    }

    #[tokio::test]
    async fn taken_name_is_refused_until_it_is_free() {
        let (web, rest) = (ToolSource::Web, ToolSource::Rest);
        let first = Arc::new(Changing::new(web.clone(), &["search"]));
        let second = Arc::new(Changing::new(rest.clone(), &["own", "search"]));
        let registry = Arc::new(ToolRegistry::new());
        registry.register(Arc::new(Echo(registration("own")))).unwrap();
        let providers: Vec<Arc<dyn ToolProvider>> = vec![first.clone(), second.clone()];
        let _attached = AttachedProviders::attach(registry.clone(), providers).await;
        let own = ("own".to_owned(), ToolSource::Internal);
        assert_eq!(names(&registry), [own.clone(), ("search".to_owned(), web)]);
        let mut changes = registry.subscribe();
        first.set(Vec::new());
        while names(&registry) != [own.clone(), ("search".to_owned(), rest.clone())] {
            changed(&mut changes).await;
        }
        second.set(Vec::new());
        while names(&registry) != [own.clone()] {
            changed(&mut changes).await;
        }
    }

    #[tokio::test]
    async fn instructions_are_cleaned_and_bounded() {
        let with = |text: &str| {
            let provider = Changing::new(ToolSource::Web, &[]);
            let provider = Changing { instructions: Some(text.to_owned()), ..provider };
            Arc::new(provider) as Arc<dyn ToolProvider>
        };
        let long = "x".repeat(MAX_INSTRUCTIONS + 1);
        let texts = ["search \u{1b}[31mfirst\u{202e}", " ", long.as_str()];
        let mut providers: Vec<_> = texts.iter().map(|text| with(text)).collect();
        providers.extend((0..10).map(|_| with("more")));
        let attached = AttachedProviders::attach(Arc::default(), providers).await;
        let instructions = attached.instructions();
        assert_eq!(instructions.len(), ProviderInstructions::MAX_ENTRIES);
        assert_eq!(instructions[0].text, "search first");
        assert_eq!(instructions[1].text.len(), ProviderInstructions::MAX_TEXT);
    }
}
