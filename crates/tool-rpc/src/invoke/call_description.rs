//! Description of a call for the journal, and its identity.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use rockbot_contracts::{AgentName, Envelope, ToolCallId, ToolInvokeRequest, envelope::unix_ms};
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
    /// Set when the id comes from a client's key: another process may have sent the call before.
    has_client_key: bool,
    /// Set for a tool without effects.
    read_only: bool,
    /// Time by which the call must finish.
    pub(super) deadline: Instant,
    /// Time since the call was first sent.
    age: Duration,
    /// Set once an entry of an earlier start is found.
    seen_started: AtomicBool,
    /// Set before this process records a start.
    start_attempted: AtomicBool,
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
            tool: &context.tool_name,
            idempotent: tool.is_some_and(|tool| tool.registration().hints.may_retry()),
            read_only: tool.is_some_and(|tool| tool.registration().hints.read_only),
            deadline: context.deadline,
            // The rest does not depend on the tool.
            ..Self::of_unreadable(
                inbound,
                &request.tool_call_id,
                &context.agent,
                &request.arguments,
                Duration::ZERO,
            )
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
            has_client_key: inbound.envelope().has_client_key,
            read_only: false,
            deadline: Instant::now() + remaining,
            age: age_of(inbound.envelope()),
            seen_started: AtomicBool::new(false),
            start_attempted: AtomicBool::new(false),
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

    /// Records that this process is about to record a start.
    pub(super) fn set_start_attempted(&self) {
        self.start_attempted.store(true, Ordering::Relaxed);
    }

    /// Returns whether a start by this process may be recorded.
    pub(super) fn was_start_attempted(&self) -> bool {
        self.start_attempted.load(Ordering::Relaxed)
    }

    /// Returns whether no other delivery can start the call, if the handlers do not share a journal.
    pub(super) fn is_only_start(&self) -> bool {
        let starts_once = self.read_only || (!self.idempotent && !self.has_client_key);
        starts_once && self.is_first_start()
    }

    /// Returns whether no earlier delivery of the call is known.
    pub(super) fn is_first_start(&self) -> bool {
        !self.maybe_redelivered && !self.was_seen_started()
    }

    /// Returns whether a record of the call may have expired, if records are kept for `retention`.
    pub(super) fn may_outlive_records(&self, retention: Duration) -> bool {
        self.age + MAX_CLOCK_DIFFERENCE >= retention
    }

    /// Returns a hash of the caller, the tool and the arguments.
    pub(super) fn fingerprint(&self) -> String {
        digest([self.agent.as_str(), self.tool, self.arguments])
    }
}

/// Clock difference between a sender and a handler up to which the age of a call is right.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(300);

/// Returns the time since a call was first sent: a message that is sent again keeps its timestamp. Zero if the message
/// does not say it.
pub(super) fn age_of(envelope: &Envelope) -> Duration {
    let stamped = envelope.timestamp.checked_mul(1000).filter(|sent| *sent > 0);
    let budgeted = envelope.budget.and_then(|budget| {
        let timeout = u64::try_from(budget.timeout.as_millis()).ok()?;
        budget.deadline_unix_ms.checked_sub(timeout)
    });
    let sent = stamped.into_iter().chain(budgeted).min().unwrap_or(u64::MAX);
    Duration::from_millis(unix_ms(SystemTime::now()).saturating_sub(sent))
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
