//! Data of a conversation beside its log.

use std::{fmt, sync::Arc};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_memory::{MemoryOwner, WorkingMemory};
use rockbot_store::StoreError;
use rockbot_tools::Outputs;

use crate::conversation::ConversationError;

/// Working memory and stored results of conversations, which are deleted with them.
#[derive(Debug, Clone, Default)]
pub struct SessionData {
    /// Working memory, if it is on.
    pub memory: Option<WorkingMemory>,
    /// Stored results of tools, if they are on.
    pub outputs: Option<Arc<Outputs>>,
}

impl SessionData {
    /// Deletes the data of a conversation of an agent.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub(crate) async fn delete(
        &self,
        agent: &AgentName,
        session: &SessionId,
    ) -> Result<(), ConversationError> {
        if let Some(memory) = &self.memory {
            let owner = MemoryOwner { agent: agent.clone(), session: session.clone() };
            memory.clear(&owner).await.map_err(|error| store_error(&error))?;
        }
        if let Some(outputs) = &self.outputs {
            outputs.delete_all(agent, session).await.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }
}

fn store_error(error: &dyn fmt::Display) -> ConversationError {
    ConversationError::Store(StoreError::Unavailable { reason: error.to_string() })
}
