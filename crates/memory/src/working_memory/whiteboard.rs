//! Whiteboards: the entries below `subagent/{task}/`, which a conversation shares with its sub-agents.

use std::time::Duration;

use rockbot_contracts::{AgentName, SessionId, TaskId};
use rockbot_store::{DocumentStore, Expected};
use serde::{Deserialize, Serialize};

use super::{
    address::{Access, Address, MemoryOwner, WHITEBOARD},
    error::WorkingMemoryError,
    memory::WorkingMemory,
};

/// Time that the conversation of a whiteboard is kept, which outlasts its entries.
const KEEP: Duration = Duration::from_secs(8 * 24 * 3600);

/// The conversation that shares a whiteboard with a sub-agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Whiteboard {
    root: SessionId,
}

impl WorkingMemory {
    /// Lets the conversation `root` share the entries below `subagent/{task}/` with a sub-agent that it
    /// starts. The first call for a task counts.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn open_whiteboard(
        &self,
        agent: &AgentName,
        task: &TaskId,
        root: &SessionId,
    ) -> Result<(), WorkingMemoryError> {
        let whiteboard = Whiteboard { root: root.clone() };
        let ttl = Some(KEEP.max(self.limits().max_ttl));
        self.whiteboards(agent).put(&[task.as_str()], &whiteboard, ttl, Expected::Absent).await?;
        Ok(())
    }

    /// Returns the keys below `subagent/{task}/`, for the conversation that started the sub-agent.
    ///
    /// # Errors
    /// See [`WorkingMemoryError`].
    pub async fn whiteboard_keys(
        &self,
        root: &MemoryOwner,
        task: &TaskId,
    ) -> Result<Vec<String>, WorkingMemoryError> {
        let entries = self.list(root, Some(&format!("{WHITEBOARD}/{task}"))).await?;
        Ok(entries.into_iter().map(|entry| entry.key).collect())
    }

    /// Returns the conversation whose whiteboards an owner shares.
    pub(super) async fn root(&self, owner: &MemoryOwner) -> Result<SessionId, WorkingMemoryError> {
        let Some(task) = TaskId::from_session(&owner.session) else {
            return Ok(owner.session.clone());
        };
        let root = self.root_of(&owner.agent, task.as_str()).await?;
        Ok(root.unwrap_or_else(|| owner.session.clone()))
    }

    /// Checks that an owner who shares the whiteboards of `root` may use an address of one.
    pub(super) async fn check_access(
        &self,
        owner: &MemoryOwner,
        root: &SessionId,
        address: &Address,
        access: Access,
    ) -> Result<(), WorkingMemoryError> {
        // All whiteboards of `root`.
        let Some(task) = address.segments.first() else { return Ok(()) };
        let own = TaskId::from_session(&owner.session);
        if own.as_ref().is_some_and(|own| own.as_str() == task) {
            return Ok(());
        }
        let is_shared = self.root_of(&owner.agent, task).await?.as_ref() == Some(root);
        if !is_shared || access == Access::Write && own.is_some() {
            return Err(WorkingMemoryError::Foreign);
        }
        Ok(())
    }

    async fn root_of(
        &self,
        agent: &AgentName,
        task: &str,
    ) -> Result<Option<SessionId>, WorkingMemoryError> {
        let found = self.whiteboards(agent).get(&[task]).await?;
        Ok(found.map(|found| found.value.root))
    }

    fn whiteboards(&self, agent: &AgentName) -> DocumentStore<Whiteboard> {
        DocumentStore::new(self.store().clone(), ["whiteboards", agent.as_str()])
    }
}
