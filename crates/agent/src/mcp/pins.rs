//! Which definitions of tools an agent trusts.

use std::sync::Arc;

use rockbot_contracts::{AgentName, topology::word};
use rockbot_store::{Entry, Expected, Key, Prefix, Store, StoreError, Write, Written};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Remembers the definition that each tool of an MCP server had when it was first used, so that a
/// server can't change what a tool says and does behind everybody's back.
///
/// The first definition is trusted. A tool whose definition is another one later is neither offered
/// nor called until an operator approves the new one, from any process on the same store.
pub struct McpPins {
    store: Arc<dyn Store>,
    agent: AgentName,
}

/// A tool whose definition changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedTool {
    /// Its server, in lower case.
    pub server: String,
    /// Its name there.
    pub tool: String,
    /// Fingerprint of the definition that is trusted.
    pub approved: String,
    /// Fingerprint of the definition that it has now; see
    /// [`definition_fingerprint`](rockbot_tools::mcp::definition_fingerprint).
    pub pending: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Pin {
    server: String,
    tool: String,
    approved: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
}

impl McpPins {
    /// The pins of `agent` in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, agent: AgentName) -> Self {
        Self { store, agent }
    }

    /// Whether a tool may be used with the definition of this fingerprint. The first one that is
    /// asked about is trusted from then on.
    ///
    /// # Errors
    /// When the store can't be used; then nobody knows.
    pub async fn trusts(
        &self,
        server: &str,
        tool: &str,
        fingerprint: &str,
    ) -> Result<bool, StoreError> {
        let key = self.key(server, tool)?;
        let found = match self.store.get(&key).await? {
            Some(found) => found,
            None => {
                let first = Pin {
                    server: server.to_lowercase(),
                    tool: tool.to_owned(),
                    approved: fingerprint.to_owned(),
                    pending: None,
                };
                match self.write(key.clone(), &first, Expected::Absent).await? {
                    Written::Done(_) => return Ok(true),
                    Written::Conflict(Some(found)) => found,
                    Written::Conflict(None) => return Ok(false),
                }
            }
        };
        let mut pin = read(&found)?;
        if pin.approved == fingerprint {
            return Ok(true);
        }
        if pin.pending.as_deref() != Some(fingerprint) {
            pin.pending = Some(fingerprint.to_owned());
            // Whoever was faster says the same, or the next look says it again.
            self.write(key, &pin, Expected::Version(found.version)).await?;
        }
        Ok(false)
    }

    /// The tools that wait for an approval, at most 1,000.
    ///
    /// # Errors
    /// When the store can't be used.
    pub async fn quarantined(&self) -> Result<Vec<QuarantinedTool>, StoreError> {
        const MOST: usize = 1000;
        let prefix = Prefix::new(self.place()).map_err(|error| unusable(&error))?;
        let (mut waiting, mut after) = (Vec::new(), None);
        while waiting.len() < MOST {
            let page = self.store.list(&prefix, after.as_ref(), MOST).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (_, entry) in &page {
                let Pin { server, tool, approved, pending } = read(entry)?;
                if let Some(pending) = pending {
                    waiting.push(QuarantinedTool { server, tool, approved, pending });
                }
            }
        }
        waiting.truncate(MOST);
        Ok(waiting)
    }

    /// Trusts the definition of this fingerprint, if the tool waits for an approval of just that
    /// one. Whether it did: what changed again since the operator looked is not approved.
    ///
    /// # Errors
    /// When the store can't be used.
    pub async fn approve(
        &self,
        server: &str,
        tool: &str,
        fingerprint: &str,
    ) -> Result<bool, StoreError> {
        let key = self.key(server, tool)?;
        let Some(found) = self.store.get(&key).await? else { return Ok(false) };
        let mut pin = read(&found)?;
        if pin.pending.as_deref() != Some(fingerprint) {
            return Ok(false);
        }
        (pin.approved, pin.pending) = (fingerprint.to_owned(), None);
        let written = self.write(key, &pin, Expected::Version(found.version)).await?;
        Ok(matches!(written, Written::Done(_)))
    }

    async fn write(&self, key: Key, pin: &Pin, expected: Expected) -> Result<Written, StoreError> {
        let value = serde_json::to_vec(pin).map_err(|error| unusable(&error))?;
        self.store.write(Write::new(key, value).expecting(expected)).await
    }

    fn place(&self) -> [String; 2] {
        ["mcp-pins".to_owned(), word(self.agent.as_str())]
    }

    /// Names of tools may be longer than a key, so their hash is in it.
    fn key(&self, server: &str, tool: &str) -> Result<Key, StoreError> {
        let server = server.to_lowercase();
        let mut hash = Sha256::new();
        for part in [&server, tool] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let [kind, agent] = self.place();
        Key::new([kind, agent, hash]).map_err(|error| unusable(&error))
    }
}

fn read(entry: &Entry) -> Result<Pin, StoreError> {
    serde_json::from_slice(&entry.value).map_err(|error| unusable(&error))
}

fn unusable(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable { reason: format!("a pin of an MCP tool: {error}") }
}

impl std::fmt::Debug for McpPins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpPins").field("agent", &self.agent).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rockbot_store::{Clock, MemoryStore};

    use super::*;

    fn pins() -> McpPins {
        let store = Arc::new(MemoryStore::new(Clock::System));
        McpPins::new(store, AgentName::new("tester").unwrap())
    }

    #[tokio::test]
    async fn the_first_definition_is_trusted_and_another_waits_for_an_operator() {
        let pins = pins();
        assert!(pins.trusts("Git", "log", "one").await.unwrap());
        assert!(pins.trusts("git", "log", "one").await.unwrap());
        assert!(!pins.trusts("git", "log", "two").await.unwrap());
        assert!(pins.trusts("git", "diff", "two").await.unwrap(), "another tool");
        let waiting = pins.quarantined().await.unwrap();
        let expected = QuarantinedTool {
            server: "git".to_owned(),
            tool: "log".to_owned(),
            approved: "one".to_owned(),
            pending: "two".to_owned(),
        };
        assert_eq!(waiting, [expected]);
        assert!(!pins.approve("git", "log", "three").await.unwrap(), "nobody saw that one");
        assert!(pins.approve("GIT", "log", "two").await.unwrap());
        assert!(pins.trusts("git", "log", "two").await.unwrap());
        assert!(!pins.trusts("git", "log", "one").await.unwrap(), "the old one is not, any more");
    }
}
