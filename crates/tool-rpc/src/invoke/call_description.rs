//! Description of a call for the journal, and its identity.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rockbot_contracts::{AgentName, ToolCallId, ToolInvokeRequest};
use rockbot_tools::{context::ToolContext, registry::RegisteredTool};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::quarantine::Inbound;

/// Description of a call for the journal.
pub(super) struct CallDescription<'a> {
    pub(super) id: &'a ToolCallId,
    agent: &'a AgentName,
    tool: &'a str,
    arguments: &'a str,
    /// Set when a second run is harmless.
    pub(super) idempotent: bool,
    /// Set when the request may have been delivered before.
    pub(super) maybe_redelivered: bool,
    /// Set when the call may have another request, which has no mark of it.
    pub(super) maybe_repeated: bool,
    /// Time by which the call must finish.
    pub(super) deadline: Instant,
    /// Set once an entry of an earlier start is found.
    seen_started: AtomicBool,
    pub(super) start: StartId,
}

/// Distinguishes the starts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct StartId(Uuid);

impl<'a> CallDescription<'a> {
    pub(super) fn new(
        inbound: Inbound<'_>,
        request: &'a ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        context: &'a ToolContext,
    ) -> Self {
        Self {
            id: &request.tool_call_id,
            agent: &context.agent,
            tool: &context.tool_name,
            arguments: &request.arguments,
            idempotent: tool.is_some_and(|tool| tool.registration().hints.may_retry()),
            maybe_redelivered: inbound.maybe_redelivered(),
            maybe_repeated: inbound.envelope().maybe_repeated,
            deadline: context.deadline,
            seen_started: AtomicBool::new(false),
            start: StartId(Uuid::now_v7()),
        }
    }

    /// Describes the call of a request that cannot be read. Its record is equal to that of no call that can.
    pub(super) fn of_unreadable(
        inbound: Inbound<'_>,
        id: &'a ToolCallId,
        agent: &'a AgentName,
        body: &'a str,
        remaining: Duration,
    ) -> Self {
        Self {
            id,
            agent,
            tool: "",
            arguments: body,
            idempotent: false,
            maybe_redelivered: inbound.maybe_redelivered(),
            maybe_repeated: inbound.envelope().maybe_repeated,
            deadline: Instant::now() + remaining,
            seen_started: AtomicBool::new(false),
            start: StartId(Uuid::now_v7()),
        }
    }

    /// Records that an entry of an earlier start was found.
    pub(super) fn set_seen_started(&self) {
        self.seen_started.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_seen_started(&self) -> bool {
        self.seen_started.load(Ordering::Relaxed)
    }

    /// Returns a hash of the caller, the tool and the arguments.
    pub(super) fn fingerprint(&self) -> String {
        digest([self.agent.as_str(), self.tool, self.arguments])
    }
}

/// Returns a hash of the parts in their order.
pub(super) fn digest<const N: usize>(parts: [&str; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
