//! Pinned tool definitions, which an agent trusts.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{
    AgentName, RoutingKey, ToolHints, ToolRegistration, topology::key_segment,
};
use rockbot_store::{Entry, Expected, Key, Prefix, Store, StoreError, Write, Written};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::fingerprint::registration_fingerprint;

/// Time for which a trusted definition is not looked up again. After another process approves a new
/// definition, this process may use the old one for that long.
const TRUST_TTL: Duration = Duration::from_secs(30);
/// Maximum number of cached trusted definitions.
const MAX_CACHED: usize = 4096;
/// Maximum number of tools that [`ToolPins::pending`] returns.
const MAX_PENDING: usize = 1000;

/// Records the definition that each tool had when it was first used, so that a server cannot change
/// the description or effects of a tool without notice.
///
/// The first definition is trusted. A tool whose definition changes later, or that another pool of handlers
/// runs, is neither offered nor called until an operator approves the change, from any process on the same
/// store. Each agent has its own pins.
pub struct ToolPins {
    store: Arc<dyn Store>,
    agent: AgentName,
    trusted: Mutex<HashMap<DefinitionKey, Instant>>,
}

/// Identifies a definition of a tool, trusted or not.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DefinitionKey {
    /// Key of the tool's pin.
    pin: Key,
    fingerprint: String,
    invoke_key: Option<RoutingKey>,
}

impl DefinitionKey {
    fn is(&self, known: &PinnedDefinition) -> bool {
        known.fingerprint == self.fingerprint && known.invoke_key == self.invoke_key
    }

    /// Returns whether the definition is the same in a pin of an earlier version, which has no routing key.
    fn lacks_key(&self, known: &PinnedDefinition) -> bool {
        known.fingerprint == self.fingerprint
            && known.invoke_key.is_none()
            && self.invoke_key.is_some()
    }
}

/// The parts of a definition that a model and a caller rely on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedDefinition {
    /// Digest of the definition.
    pub fingerprint: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Side effects of a call.
    pub hints: ToolHints,
    /// Routing key of the calls, which belongs to the pool of handlers that runs the tool. `None` for tools of
    /// MCP servers. A pin of an earlier version has none either; it gets that of the next check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invoke_key: Option<RoutingKey>,
}

/// A tool whose definition is pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// Name for models.
    pub name: String,
    /// Source, as in [`ToolRegistration::source`].
    pub source: String,
    /// Trusted definition.
    pub approved: PinnedDefinition,
    /// Current definition, if it waits for approval by an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PinnedDefinition>,
}

/// Identity of a tool.
#[derive(Debug, Clone, Copy)]
pub struct PinnedTool<'a> {
    /// Namespace in which `tool` is unique: a server, or [`PinnedTool::HANDLERS`].
    pub namespace: &'a str,
    /// Name within the namespace.
    pub tool: &'a str,
    /// Source that the tool claims.
    pub source: &'a str,
    /// Name for models.
    pub name: &'a str,
    /// Routing key of its calls; `None` when it is not part of the definition.
    pub invoke_key: Option<&'a RoutingKey>,
}

impl PinnedTool<'_> {
    /// Namespace of all tools that handlers announce. A handler claims the source of a tool itself, so
    /// another source does not make it another tool.
    pub const HANDLERS: &'static str = "handlers";
}

impl PinnedDefinition {
    /// Returns the definition in a registration, without a routing key.
    #[must_use]
    pub fn from_registration(tool: &ToolRegistration) -> Self {
        Self {
            fingerprint: registration_fingerprint(tool),
            description: tool.model_description().to_owned(),
            parameters: tool.parameters.clone(),
            hints: tool.hints,
            invoke_key: None,
        }
    }
}

impl ToolPins {
    /// Creates the pins of `agent` in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, agent: AgentName) -> Self {
        Self { store, agent, trusted: Mutex::default() }
    }

    /// Returns `true` if the tool may be used with the definition that has this fingerprint, at its routing
    /// key. The first definition of a tool is pinned and trusted. `definition` creates the definition if it
    /// must be stored; the routing key is added.
    ///
    /// # Errors
    /// When the store cannot be used. Trust is then unknown.
    pub async fn is_trusted(
        &self,
        tool: PinnedTool<'_>,
        fingerprint: &str,
        definition: impl Fn() -> PinnedDefinition + Send,
    ) -> Result<bool, StoreError> {
        let current = DefinitionKey {
            pin: self.key(tool.namespace, tool.tool)?,
            fingerprint: fingerprint.to_owned(),
            invoke_key: tool.invoke_key.cloned(),
        };
        let now = Instant::now();
        if self.trusted().get(&current).is_some_and(|since| now - *since < TRUST_TTL) {
            return Ok(true);
        }
        let trusts = self.look_up(&current, &tool, definition).await?;
        if trusts {
            let mut trusted = self.trusted();
            if trusted.len() >= MAX_CACHED {
                trusted.clear();
            }
            trusted.insert(current, now);
        }
        Ok(trusts)
    }

    async fn look_up(
        &self,
        current: &DefinitionKey,
        tool: &PinnedTool<'_>,
        definition: impl Fn() -> PinnedDefinition + Send,
    ) -> Result<bool, StoreError> {
        let invoke_key = current.invoke_key.clone();
        let definition =
            move || PinnedDefinition { invoke_key: invoke_key.clone(), ..definition() };
        let found = match self.store.get(&current.pin).await? {
            Some(found) => found,
            None => {
                let (name, source) = (tool.name.to_owned(), tool.source.to_owned());
                let first = Pin { name, source, approved: definition(), pending: None };
                match self.write(current.pin.clone(), &first, Expected::Absent).await? {
                    Written::Done(_) => return Ok(true),
                    Written::Conflict(Some(found)) => found,
                    Written::Conflict(None) => return Ok(false),
                }
            }
        };
        let mut pin = read(&found)?;
        if current.lacks_key(&pin.approved) {
            pin.approved.invoke_key.clone_from(&current.invoke_key);
            let expected = Expected::Version(found.version);
            return match self.write(current.pin.clone(), &pin, expected).await? {
                Written::Done(_) => Ok(true),
                // Another process adds a key at the same time. Which one counts is in its pin.
                Written::Conflict(Some(found)) => self.check(current, found, definition).await,
                Written::Conflict(None) => Ok(false),
            };
        }
        self.check(current, found, definition).await
    }

    /// Returns whether the pin `found` trusts the definition. If not, records the definition as pending.
    async fn check(
        &self,
        current: &DefinitionKey,
        found: Entry,
        definition: impl Fn() -> PinnedDefinition + Send,
    ) -> Result<bool, StoreError> {
        let mut pin = read(&found)?;
        if current.is(&pin.approved) {
            return Ok(true);
        }
        if !pin.pending.as_ref().is_some_and(|known| current.is(known)) {
            pin.pending = Some(definition());
            // After a conflict the other writer stored the same definition, or the next check stores it.
            self.write(current.pin.clone(), &pin, Expected::Version(found.version)).await?;
        }
        Ok(false)
    }

    /// Returns the tools that wait for approval, sorted by name, at most 1,000.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn pending(&self) -> Result<Vec<Pin>, StoreError> {
        let prefix = Prefix::new(self.prefix()).map_err(|error| unusable(&error))?;
        let (mut waiting, mut after) = (Vec::new(), None);
        while waiting.len() < MAX_PENDING {
            let page = self.store.list(&prefix, after.as_ref(), MAX_PENDING).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (_, entry) in &page {
                let pin = read(entry)?;
                if pin.pending.is_some() {
                    waiting.push((pin.name.clone(), pin));
                }
            }
        }
        waiting.sort_by(|(left, _), (right, _)| left.cmp(right));
        waiting.truncate(MAX_PENDING);
        Ok(waiting.into_iter().map(|(_, pin)| pin).collect())
    }

    /// Approves the pending definition of a tool that [`pending`](Self::pending) returned. Returns
    /// `false` if the pin has changed since: only the definition that the operator saw is approved.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn approve(&self, expected: &Pin) -> Result<bool, StoreError> {
        let prefix = Prefix::new(self.prefix()).map_err(|error| unusable(&error))?;
        let mut after = None;
        loop {
            let page = self.store.list(&prefix, after.as_ref(), MAX_PENDING).await?;
            let Some((last, _)) = page.last() else { return Ok(false) };
            after = Some(last.clone());
            for (key, entry) in &page {
                let mut pin = read(entry)?;
                if pin != *expected {
                    continue;
                }
                let Some(pending) = pin.pending.take() else { return Ok(false) };
                pin.approved = pending;
                let version = Expected::Version(entry.version);
                let written = self.write(key.clone(), &pin, version).await?;
                return Ok(matches!(written, Written::Done(_)));
            }
        }
    }

    async fn write(&self, key: Key, pin: &Pin, expected: Expected) -> Result<Written, StoreError> {
        let value = serde_json::to_vec(pin).map_err(|error| unusable(&error))?;
        self.store.write(Write::new(key, value).with_expected(expected)).await
    }

    fn prefix(&self) -> [String; 2] {
        ["tool-pins".to_owned(), key_segment(self.agent.as_str())]
    }

    /// Returns the key of a tool. It contains a hash, because tool names may be longer than a key.
    fn key(&self, namespace: &str, tool: &str) -> Result<Key, StoreError> {
        let mut hash = Sha256::new();
        for part in [namespace, tool] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let [kind, agent] = self.prefix();
        Key::new([kind, agent, hash]).map_err(|error| unusable(&error))
    }

    fn trusted(&self) -> MutexGuard<'_, HashMap<DefinitionKey, Instant>> {
        self.trusted.lock()
    }
}

fn read(entry: &Entry) -> Result<Pin, StoreError> {
    serde_json::from_slice(&entry.value).map_err(|error| unusable(&error))
}

fn unusable(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable { reason: format!("a pin of a tool: {error}") }
}

impl std::fmt::Debug for ToolPins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolPins").field("agent", &self.agent).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use rockbot_store::{Clock, MemoryStore};
    use rockbot_testkit::{InterceptedStore, StoreInterceptor};

    use super::*;
    use crate::testing::registration;

    fn definition(description: &str) -> PinnedDefinition {
        let description = description.to_owned();
        PinnedDefinition::from_registration(&ToolRegistration {
            description,
            ..registration("log")
        })
    }

    async fn trusts(pins: &ToolPins, tool: &str, description: &str) -> bool {
        let now = definition(description);
        let namespace = "mcp:git";
        let (source, name, invoke_key) = (namespace, "git__log", None);
        let tool = PinnedTool { namespace, tool, source, name, invoke_key };
        pins.is_trusted(tool, &now.fingerprint, || now.clone()).await.unwrap()
    }

    #[tokio::test]
    async fn changed_definition_waits_for_approval() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let pins_for = |agent| ToolPins::new(store.clone(), AgentName::new(agent).unwrap());
        let pins = pins_for("tester");
        assert!(trusts(&pins, "log", "one").await);
        assert!(trusts(&pins, "log", "one").await);
        assert!(!trusts(&pins, "log", "two").await);
        assert!(trusts(&pins, "diff", "two").await, "another tool");
        assert!(trusts(&pins_for("other"), "log", "two").await, "another agent");
        let waiting = pins.pending().await.unwrap();
        let [pin] = waiting.as_slice() else { panic!("{waiting:?}") };
        assert_eq!((pin.name.as_str(), pin.source.as_str()), ("git__log", "mcp:git"));
        assert_eq!(pin.approved, definition("one"));
        assert_eq!(pin.pending, Some(definition("two")));

        // The definition changes again before the operator approves it.
        assert!(!trusts(&pins, "log", "three").await);
        assert!(!pins.approve(pin).await.unwrap(), "changed since the operator saw it");
        let expected = pins.pending().await.unwrap().remove(0);
        assert!(pins.approve(&expected).await.unwrap());
        assert!(pins.pending().await.unwrap().is_empty());
        assert!(trusts(&pins, "log", "three").await);
        let elsewhere = pins_for("tester");
        assert!(!trusts(&elsewhere, "log", "one").await, "the old definition is no longer trusted");
    }

    #[tokio::test(start_paused = true)]
    async fn cached_trust_expires() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let pins = ToolPins::new(store.clone(), AgentName::new("tester").unwrap());
        assert!(trusts(&pins, "log", "one").await);
        let elsewhere = ToolPins::new(store, AgentName::new("tester").unwrap());
        assert!(!trusts(&elsewhere, "log", "two").await);
        let expected = elsewhere.pending().await.unwrap().remove(0);
        assert!(elsewhere.approve(&expected).await.unwrap());
        tokio::time::advance(TRUST_TTL).await;
        assert!(!trusts(&pins, "log", "one").await);
        assert!(trusts(&pins, "log", "two").await);
    }

    /// Returns whether the tool `read` of a pool is trusted with its first definition.
    async fn trusts_pool(pins: &ToolPins, pool: &str) -> bool {
        let now = definition("one");
        let key = RoutingKey::new(format!("tool.invoke.pool.{pool}")).unwrap();
        let (namespace, invoke_key) = (PinnedTool::HANDLERS, Some(&key));
        let tool =
            PinnedTool { namespace, tool: "read", source: "files", name: "read", invoke_key };
        pins.is_trusted(tool, &now.fingerprint, || now.clone()).await.unwrap()
    }

    #[tokio::test]
    async fn same_definition_of_another_pool_waits_for_approval() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let pins = ToolPins::new(store, AgentName::new("tester").unwrap());
        assert!(trusts_pool(&pins, "files").await);
        assert!(!trusts_pool(&pins, "web").await);
        assert!(trusts_pool(&pins, "files").await);
        assert!(!trusts_pool(&pins, "web").await);
        let waiting = pins.pending().await.unwrap();
        let pending = waiting[0].pending.as_ref().unwrap();
        assert_eq!(pending.invoke_key.as_ref().unwrap().as_str(), "tool.invoke.pool.web");
        assert_eq!(pending.fingerprint, waiting[0].approved.fingerprint);
        assert!(pins.approve(&waiting[0]).await.unwrap());
        assert!(trusts_pool(&pins, "web").await);
    }

    #[tokio::test]
    async fn pin_without_pool_gets_that_of_the_next_check() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let pins = ToolPins::new(store.clone(), AgentName::new("tester").unwrap());
        let key = pins.key(PinnedTool::HANDLERS, "read").unwrap();
        let approved = serde_json::to_value(definition("one")).unwrap();
        assert_eq!(approved.get("invokeKey"), None);
        let old = serde_json::json!({"name": "read", "source": "files", "approved": approved});
        store.write(Write::new(key, serde_json::to_vec(&old).unwrap())).await.unwrap();
        assert!(trusts_pool(&pins, "files").await);
        assert!(!trusts_pool(&pins, "web").await);
    }

    /// Reads end before any write of the concurrent tasks begins.
    struct SlowReads;

    impl StoreInterceptor for SlowReads {
        fn get<'a>(
            &'a self,
            store: &'a dyn Store,
            key: &'a Key,
        ) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
            Box::pin(async move {
                let found = store.get(key).await;
                tokio::task::yield_now().await;
                found
            })
        }
    }

    #[tokio::test]
    async fn concurrent_checks_of_old_pin_agree() {
        let store = InterceptedStore::wrap(Arc::new(MemoryStore::new(Clock::System)), SlowReads);
        let [one, two] =
            [(); 2].map(|()| ToolPins::new(store.clone(), AgentName::new("tester").unwrap()));
        let key = one.key(PinnedTool::HANDLERS, "read").unwrap();
        let old = Pin {
            name: "read".to_owned(),
            source: "files".to_owned(),
            approved: definition("one"),
            pending: None,
        };
        for pools in [["files", "files"], ["files", "web"]] {
            one.write(key.clone(), &old, Expected::Anything).await.unwrap();
            for pins in [&one, &two] {
                pins.trusted().clear();
            }
            let trusted = tokio::join!(trusts_pool(&one, pools[0]), trusts_pool(&two, pools[1]));
            // Of two pools, only the one that wrote first.
            let expected = 1 + usize::from(pools[0] == pools[1]);
            let count = usize::from(trusted.0) + usize::from(trusted.1);
            assert_eq!(count, expected, "{pools:?}");
        }
    }
}
