//! Handles of calls that servers run as tasks, in the store that the bridges share.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, ToolCallId};
use rockbot_store::{Expected, Key, Store, StoreError, Write};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tracing::{debug, warn};

/// Time beyond the deadline of a call that its handle is kept.
const GRACE: Duration = Duration::from_secs(60);
/// The time limit for an operation of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest id of a task, in bytes.
pub(crate) const MAX_TASK_ID_BYTES: usize = 1024;

/// A task of a server that runs a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskHandle {
    /// The server, in lower case.
    pub(crate) server: String,
    /// The tool's name on the server.
    pub(crate) tool: String,
    /// The caller.
    pub(crate) agent: AgentName,
    /// The server's id of the task.
    pub(crate) task: String,
}

/// The handles of running tasks, `mcp-tasks/<namespace>/<call>` in the store.
#[derive(Clone)]
pub(crate) struct TaskHandles {
    store: Arc<dyn Store>,
    namespace: Arc<str>,
}

impl TaskHandles {
    pub(crate) fn new(store: Arc<dyn Store>, namespace: &str) -> Self {
        Self { store, namespace: namespace.into() }
    }

    /// Keeps the handle of a call whose deadline is in `remaining`. Returns whether it is kept: without it,
    /// no other bridge can continue the call.
    pub(crate) async fn keep(
        &self,
        call: &ToolCallId,
        handle: &TaskHandle,
        remaining: Duration,
    ) -> bool {
        let written = async {
            let value = serde_json::to_vec(handle)
                .map_err(|error| StoreError::Unusable { reason: error.to_string() })?;
            self.store.write(Write::new(self.key(call)?, value).with_ttl(remaining + GRACE)).await
        };
        match timeout(STORE_TIMEOUT, written).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                warn!(%error, "task handle not recorded; no other bridge can continue the call");
                false
            }
            Err(_) => {
                warn!("task handle not recorded in time; no other bridge can continue the call");
                false
            }
        }
    }

    /// Returns the handle of a call; `None` also when the store does not respond.
    pub(crate) async fn find(&self, call: &ToolCallId) -> Option<TaskHandle> {
        let found = async { self.store.get(&self.key(call)?).await };
        let found = timeout(STORE_TIMEOUT, found).await.ok()?;
        let entry = found.inspect_err(|error| warn!(%error, "task handle not read")).ok()??;
        serde_json::from_slice(&entry.value).ok()
    }

    /// Removes the handle of a call that has ended.
    pub(crate) async fn remove(&self, call: &ToolCallId) {
        let removed = async { self.store.remove(&self.key(call)?, Expected::Anything).await };
        if !matches!(timeout(STORE_TIMEOUT, removed).await, Ok(Ok(_))) {
            debug!("task handle not removed; it expires");
        }
    }

    fn key(&self, call: &ToolCallId) -> Result<Key, StoreError> {
        // Hashed because an id from outside can be longer than a key may be.
        let hash = Sha256::digest(call.as_str());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Key::new(["mcp-tasks", &*self.namespace, &hash])
            .map_err(|error| StoreError::Unusable { reason: error.to_string() })
    }
}
