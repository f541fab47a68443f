//! The memory of the embedded agent.

use rockbot_agent::{AgentMemory, MemoryError};
use rockbot_store::{Clock, StoreError};

use crate::{failure::Failure, settings::Settings};

/// Opens the memory of the agent, if it is on.
pub(crate) async fn open_memory(settings: &Settings) -> Result<Option<AgentMemory>, Failure> {
    let connect = |url| async move { rockbot_store_sql::connect(&url, Clock::System).await };
    AgentMemory::open(&settings.memory, connect).await.map_err(memory_failure)
}

/// Returns the failure for a memory store that cannot be opened: unavailable when it cannot be reached,
/// otherwise a configuration error.
fn memory_failure(error: MemoryError) -> Failure {
    match error {
        MemoryError::Store { source: StoreError::Unavailable { .. }, .. } => {
            Failure::unavailable(error)
        }
        _ => Failure::usage(error),
    }
}
