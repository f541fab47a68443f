//! Requests that cannot be read.
//!
//! Such a request may be a copy of a call that another handler can read, or that runs: a copy can be damaged,
//! or be of a newer version. So `executed: no` is a claim about the call here, too, and the journal makes it
//! true; see [`unstarted`](super::unstarted). A record of another delivery leaves the outcome unknown: the
//! request does not show whether it belongs to that call, and its sender must not read another's result.

use rockbot_bus::Settlement;
use rockbot_contracts::{Envelope, ToolCallId, message::DecodeError};
use rockbot_tools::failure::ToolFailure;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{
    ToolInvokeHandler,
    call_description::CallDescription,
    journal::{CallJournal, EarlierEnd, FinishedRecord, JournalDecision},
    quarantine::Inbound,
    reply::Caller,
    unstarted::JOURNAL_TIMEOUT,
};

impl ToolInvokeHandler {
    /// Dead-letters an unreadable request, and replies with the error if a correlation id and a reply
    /// address are known.
    pub(super) async fn reject_unreadable(
        &self,
        inbound: Inbound<'_>,
        caller: &Caller,
        error: &DecodeError,
    ) -> Settlement {
        self.stats.count_unreadable();
        // At debug level: the error quotes the request.
        debug!(correlation_id = &*caller.correlation_id, %error, "unreadable request");
        if inbound.envelope().reply_to.is_some()
            && let Ok(id) = ToolCallId::new(&*caller.correlation_id)
        {
            let reply = self.unreadable_reply(inbound, caller, &id, error).await;
            // A lost reply is acceptable: the dead-letter queue keeps the request.
            let _ = self.replies().publish(caller, reply).await;
        }
        Settlement::dead_letter(error.to_string())
    }

    /// Returns the reply to an unreadable request. If it reports that the call did not run, then no handler
    /// that uses the journal starts it.
    async fn unreadable_reply(
        &self,
        inbound: Inbound<'_>,
        caller: &Caller,
        id: &ToolCallId,
        error: &DecodeError,
    ) -> Envelope {
        let reply = |failure: ToolFailure| Envelope::from_payload(&failure.to_wire(id.clone(), ""));
        let unexecuted = reply(ToolFailure::invalid(error.to_string()));
        let unknown = || reply(ToolFailure::invalid(error.to_string()).into_possibly_executed());
        if self.running.contains(id) {
            return unknown();
        }
        let envelope = inbound.envelope();
        let body = String::from_utf8_lossy(&envelope.body);
        let remaining = envelope.remaining().unwrap_or_default().min(super::MAX_BUDGET);
        let call = CallDescription::of_unreadable(inbound, id, &caller.agent, &body, remaining);
        let is_shared = self.journal.as_deref().is_some_and(CallJournal::is_shared);
        if !is_shared && !call.is_only_start() {
            return unknown();
        }
        let Some(journal) = self.journal.as_deref() else { return unexecuted };
        if call.may_outlive_records(journal.retention()) {
            return unknown();
        }
        let record = FinishedRecord::new(&unexecuted.raw_type, &unexecuted.body);
        let closing = journal.close_unstarted(&call, None, record);
        match timeout(JOURNAL_TIMEOUT, closing).await {
            Ok(Ok(JournalDecision::Written(_))) => unexecuted,
            // Another delivery of this request was rejected before.
            Ok(Ok(JournalDecision::Ended(EarlierEnd::Replied(recorded)))) => {
                Envelope::raw(&recorded.message_type, recorded.body)
            }
            Ok(Ok(JournalDecision::Ended(EarlierEnd::Interrupted(Some(entry))))) => {
                let unknown = unknown();
                journal.finish(entry, &unknown.raw_type, &unknown.body).await;
                unknown
            }
            Ok(Ok(JournalDecision::Ended(_) | JournalDecision::Running)) => unknown(),
            Ok(Err(error)) => {
                warn!(%error, "journal unavailable for an unreadable request");
                unknown()
            }
            Err(_) => {
                warn!(timeout = ?JOURNAL_TIMEOUT, "journal did not respond for an unreadable request");
                unknown()
            }
        }
    }
}
