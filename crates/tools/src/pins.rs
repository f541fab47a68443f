//! Which definitions of tools an agent trusts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rockbot_contracts::{AgentName, ToolHints, ToolRegistration, topology::key_segment};
use rockbot_store::{Entry, Expected, Key, Prefix, Store, StoreError, Write, Written};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::fingerprint::registration_fingerprint;

/// How long a definition that was found to be trusted is not asked about again. So long an old
/// definition may be used after another process approved a new one.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);
/// The most definitions that are remembered so.
const MOST_REMEMBERED: usize = 4096;
/// The most tools that [`ToolPins::quarantined`] tells.
const MOST_TOLD: usize = 1000;

/// Remembers the definition that each tool had when it was first used, so that nobody can change
/// what a tool says and does behind everybody's back.
///
/// The first definition is trusted. A tool whose definition is another one later is neither offered
/// nor called until an operator approves the new one, from any process on the same store. The pins
/// of each agent are its own.
pub struct ToolPins {
    store: Arc<dyn Store>,
    agent: AgentName,
    remembered: Mutex<HashMap<(Key, String), Instant>>,
}

/// What a model and a caller rely on in a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedDefinition {
    /// Its fingerprint.
    pub fingerprint: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// What calling it may do.
    pub hints: ToolHints,
}

/// A tool whose definition is pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The name that models know it by.
    pub name: String,
    /// Where it comes from, as in [`ToolRegistration::source`].
    pub source: String,
    /// The definition that is trusted.
    pub approved: PinnedDefinition,
    /// The definition that it has now, when that waits for an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PinnedDefinition>,
}

/// Which tool it is that has a definition.
#[derive(Debug, Clone, Copy)]
pub struct PinnedTool<'a> {
    /// Where its own name is unique: a server, or [`PinnedTool::HANDLERS`].
    pub place: &'a str,
    /// Its own name there.
    pub tool: &'a str,
    /// Where it says it comes from.
    pub source: &'a str,
    /// The name that models know it by.
    pub name: &'a str,
}

impl PinnedTool<'_> {
    /// The place of all tools that handlers announce. A handler tells the source of a tool itself,
    /// so another source does not make it another tool.
    pub const HANDLERS: &'static str = "handlers";
}

impl PinnedDefinition {
    /// Of a tool as its registry has it.
    #[must_use]
    pub fn of(tool: &ToolRegistration) -> Self {
        Self {
            fingerprint: registration_fingerprint(tool),
            description: tool.model_description().to_owned(),
            parameters: tool.parameters.clone(),
            hints: tool.hints,
        }
    }
}

impl ToolPins {
    /// The pins of `agent` in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, agent: AgentName) -> Self {
        Self { store, agent, remembered: Mutex::default() }
    }

    /// Whether the tool may be used with the definition of this fingerprint, which `definition` makes where it is needed. The first one
    /// that is asked about is trusted from then on.
    ///
    /// # Errors
    /// When the store can't be used; then nobody knows.
    pub async fn trusts(
        &self,
        PinnedTool { place, tool, source, name }: PinnedTool<'_>,
        fingerprint: &str,
        definition: impl Fn() -> PinnedDefinition + Send,
    ) -> Result<bool, StoreError> {
        let key = self.key(place, tool)?;
        let known = (key, fingerprint.to_owned());
        let now = Instant::now();
        if self.remembered().get(&known).is_some_and(|since| now - *since < REMEMBERED_FOR) {
            return Ok(true);
        }
        let trusts = self.look_up(&known, (source, name), definition).await?;
        if trusts {
            let mut remembered = self.remembered();
            if remembered.len() >= MOST_REMEMBERED {
                remembered.clear();
            }
            remembered.insert(known, now);
        }
        Ok(trusts)
    }

    async fn look_up(
        &self,
        (key, fingerprint): &(Key, String),
        (source, name): (&str, &str),
        definition: impl Fn() -> PinnedDefinition + Send,
    ) -> Result<bool, StoreError> {
        let found = match self.store.get(key).await? {
            Some(found) => found,
            None => {
                let (name, source) = (name.to_owned(), source.to_owned());
                let first = Pin { name, source, approved: definition(), pending: None };
                match self.write(key.clone(), &first, Expected::Absent).await? {
                    Written::Done(_) => return Ok(true),
                    Written::Conflict(Some(found)) => found,
                    Written::Conflict(None) => return Ok(false),
                }
            }
        };
        let mut pin = read(&found)?;
        if pin.approved.fingerprint == *fingerprint {
            return Ok(true);
        }
        if pin.pending.as_ref().is_none_or(|pending| pending.fingerprint != *fingerprint) {
            pin.pending = Some(definition());
            // Whoever was faster says the same, or the next look says it again.
            self.write(key.clone(), &pin, Expected::Version(found.version)).await?;
        }
        Ok(false)
    }

    /// The tools that wait for an approval, in the order of their names, at most 1,000.
    ///
    /// # Errors
    /// When the store can't be used.
    pub async fn quarantined(&self) -> Result<Vec<Pin>, StoreError> {
        let prefix = Prefix::new(self.place()).map_err(|error| unusable(&error))?;
        let (mut waiting, mut after) = (Vec::new(), None);
        while waiting.len() < MOST_TOLD {
            let page = self.store.list(&prefix, after.as_ref(), MOST_TOLD).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (_, entry) in &page {
                let pin = read(entry)?;
                if pin.pending.is_some() {
                    waiting.push((pin.name.clone(), pin));
                }
            }
        }
        waiting.sort_by(|(one, _), (other, _)| one.cmp(other));
        waiting.truncate(MOST_TOLD);
        Ok(waiting.into_iter().map(|(_, pin)| pin).collect())
    }

    /// Trusts the pending definition of a tool that [`quarantined`](Self::quarantined) told of, if
    /// it still waits for an approval of just that one. Whether it did: what changed again since the
    /// operator looked is not approved.
    ///
    /// # Errors
    /// When the store can't be used.
    pub async fn approve(&self, seen: &Pin) -> Result<bool, StoreError> {
        let prefix = Prefix::new(self.place()).map_err(|error| unusable(&error))?;
        let mut after = None;
        loop {
            let page = self.store.list(&prefix, after.as_ref(), MOST_TOLD).await?;
            let Some((last, _)) = page.last() else { return Ok(false) };
            after = Some(last.clone());
            for (key, entry) in &page {
                let mut pin = read(entry)?;
                if pin != *seen {
                    continue;
                }
                let Some(pending) = pin.pending.take() else { return Ok(false) };
                pin.approved = pending;
                let expected = Expected::Version(entry.version);
                let written = self.write(key.clone(), &pin, expected).await?;
                return Ok(matches!(written, Written::Done(_)));
            }
        }
    }

    async fn write(&self, key: Key, pin: &Pin, expected: Expected) -> Result<Written, StoreError> {
        let value = serde_json::to_vec(pin).map_err(|error| unusable(&error))?;
        self.store.write(Write::new(key, value).with_expected(expected)).await
    }

    fn place(&self) -> [String; 2] {
        ["tool-pins".to_owned(), key_segment(self.agent.as_str())]
    }

    /// Names of tools may be longer than a key, so their hash is in it.
    fn key(&self, place: &str, tool: &str) -> Result<Key, StoreError> {
        let mut hash = Sha256::new();
        for part in [place, tool] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let [kind, agent] = self.place();
        Key::new([kind, agent, hash]).map_err(|error| unusable(&error))
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<(Key, String), Instant>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
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
    use rockbot_store::{Clock, MemoryStore};

    use super::*;
    use crate::testing::registration;

    fn definition(description: &str) -> PinnedDefinition {
        let description = description.to_owned();
        PinnedDefinition::of(&ToolRegistration { description, ..registration("log") })
    }

    async fn trusts(pins: &ToolPins, tool: &str, description: &str) -> bool {
        let now = definition(description);
        let place = "mcp:git";
        let tool = PinnedTool { place, tool, source: place, name: "git__log" };
        pins.trusts(tool, &now.fingerprint, || now.clone()).await.unwrap()
    }

    #[tokio::test]
    async fn the_first_definition_is_trusted_and_another_waits_for_an_operator() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let pins_of = |agent| ToolPins::new(store.clone(), AgentName::new(agent).unwrap());
        let pins = pins_of("tester");
        assert!(trusts(&pins, "log", "one").await);
        assert!(trusts(&pins, "log", "one").await);
        assert!(!trusts(&pins, "log", "two").await);
        assert!(trusts(&pins, "diff", "two").await, "another tool");
        assert!(trusts(&pins_of("other"), "log", "two").await, "another agent");
        let waiting = pins.quarantined().await.unwrap();
        let [pin] = waiting.as_slice() else { panic!("{waiting:?}") };
        assert_eq!((pin.name.as_str(), pin.source.as_str()), ("git__log", "mcp:git"));
        assert_eq!(pin.approved, definition("one"));
        assert_eq!(pin.pending, Some(definition("two")));

        // It changes again before the operator says yes.
        assert!(!trusts(&pins, "log", "three").await);
        assert!(!pins.approve(pin).await.unwrap(), "nobody saw that one");
        let seen = pins.quarantined().await.unwrap().remove(0);
        assert!(pins.approve(&seen).await.unwrap());
        assert!(pins.quarantined().await.unwrap().is_empty());
        assert!(trusts(&pins, "log", "three").await);
        let elsewhere = pins_of("tester");
        assert!(!trusts(&elsewhere, "log", "one").await, "the old one is not, any more");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_trusted_is_looked_up_again_after_a_while() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let pins = ToolPins::new(store.clone(), AgentName::new("tester").unwrap());
        assert!(trusts(&pins, "log", "one").await);
        let elsewhere = ToolPins::new(store, AgentName::new("tester").unwrap());
        assert!(!trusts(&elsewhere, "log", "two").await);
        let seen = elsewhere.quarantined().await.unwrap().remove(0);
        assert!(elsewhere.approve(&seen).await.unwrap());
        tokio::time::advance(REMEMBERED_FOR).await;
        assert!(!trusts(&pins, "log", "one").await);
        assert!(trusts(&pins, "log", "two").await);
    }
}
