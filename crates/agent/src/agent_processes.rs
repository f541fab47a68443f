//! The processes of an agent that keep its conversations in one store.
//!
//! The broker delivers a message to any process that consumes the agent's inbox. A process with another store does not
//! find the conversation, and begins a new one. Each process therefore registers in its store, and compares the number
//! of registrations there with the number of the inbox's consumers.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, InstanceId};
use rockbot_store::{DocumentError, DocumentStore, Expected, Store};
use serde::{Deserialize, Serialize};

/// Time for which a process counts after its last registration.
const TTL: Duration = Duration::from_secs(45);
/// Maximum number of processes that are counted.
const MAX_PROCESSES: usize = 1000;

/// The registrations of an agent's processes in one store.
#[derive(Debug, Clone)]
pub(crate) struct AgentProcesses(DocumentStore<Registered>);

/// A registration. Its name in the store is the id of the process.
#[derive(Debug, Serialize, Deserialize)]
struct Registered {}

impl AgentProcesses {
    pub(crate) fn new(store: Arc<dyn Store>, agent: &AgentName) -> Self {
        Self(DocumentStore::new(store, ["agent-processes", agent.as_str()]))
    }

    /// Registers a process for 45 s, or renews its registration.
    ///
    /// # Errors
    /// When the store is unavailable.
    pub(crate) async fn register(&self, process: &InstanceId) -> Result<(), DocumentError> {
        let name = [process.as_str()];
        self.0.put(&name, &Registered {}, Some(TTL), Expected::Anything).await.map(drop)
    }

    /// Ends the registration of a process, which would otherwise expire.
    ///
    /// # Errors
    /// When the store is unavailable.
    pub(crate) async fn withdraw(&self, process: &InstanceId) -> Result<(), DocumentError> {
        self.0.remove(&[process.as_str()], Expected::Anything).await.map(drop)
    }

    /// Returns the number of registered processes, up to 1000.
    ///
    /// # Errors
    /// When the store is unavailable.
    pub(crate) async fn count(&self) -> Result<u32, DocumentError> {
        let found = self.0.list::<&str>(&[], MAX_PROCESSES).await?;
        Ok(u32::try_from(found.len()).unwrap_or(u32::MAX))
    }
}
