//! A handler process in the directory.

use std::sync::Arc;

use rockbot_contracts::{
    HandlerLoad, HandlerPool, InstanceId, ProviderInstructions, ScriptIsolation, ToolGuide,
    ToolRegistration,
};
use tokio::time::Instant;

/// Last announcement of a handler process.
#[derive(Debug, Clone)]
pub struct KnownHandler {
    /// Name of the service.
    pub handler: String,
    /// Process.
    pub instance: InstanceId,
    /// Pool whose requests it serves.
    pub pool: HandlerPool,
    /// Tools that it runs.
    pub tools: Arc<[ToolRegistration]>,
    /// Instructions on its tools for models, cleaned and bounded.
    pub instructions: Vec<ProviderInstructions>,
    /// Guides on its tools for models, cleaned and bounded.
    pub guides: Arc<[ToolGuide]>,
    /// Isolation of the scripts that it runs, if announced, cleaned and bounded.
    pub script_isolation: Option<ScriptIsolation>,
    /// Version, if announced.
    pub version: Option<String>,
    /// Load at the last announcement, if announced.
    pub load: Option<HandlerLoad>,
    /// Its broker user, if the broker validated one.
    pub user: Option<String>,
    /// Seconds by which its clock was ahead of this process's at the last announcement; negative when it
    /// was behind.
    pub clock_ahead_seconds: i64,
    /// Size of the announcement in bytes.
    pub(super) bytes: usize,
    pub(super) fingerprint: String,
    pub(super) last_seen: Instant,
}

impl KnownHandler {
    /// Returns `service/instance`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.handler, self.instance)
    }
}
