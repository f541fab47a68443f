//! Calls that do not start in this handler, and the proof that they did not run at all.
//!
//! `executed: no` is a claim about the call, not about one delivery of its request. Copies of the request
//! exist when a publish is retried, when an agent sends it again, when a dead letter is replayed, and when
//! the channel of a delivery is lost: the broker gives the request to another handler then, and this one
//! may learn of it long afterwards. So a handler that did not start a call knows nothing about the call.
//! Neither does the delivery prove anything: a first delivery of a first attempt can have a copy that was
//! sent later and ran earlier, and its own channel can be lost until the reply is sent.
//!
//! **The journal makes the claim true.** Before the reply `no`, the call is recorded as finished with that
//! reply, on the condition that it has no record. Every handler records a start on the same condition, so
//! no copy starts afterwards. If there is a record, it decides: the recorded reply is sent; a running call
//! is awaited; otherwise the outcome is unknown. If the journal cannot be reached, `executed` is `unknown`.
//! This costs one write for each call that does not start.
//!
//! `no` is replied without that write in two cases:
//!
//! - The tool is read-only. Its calls have no record, and a run that the caller does not know of does no
//!   harm.
//! - The handlers do not share a journal, this is a first delivery of a first attempt, no client chose the
//!   id of the call, its tool is not idempotent, and the handler has no journal or cannot reach it. Handlers
//!   without a shared journal refuse every other delivery of such a call with `outcome_unknown`, so this
//!   delivery alone can start it. Arguments that the tool rejects start nothing anywhere. An idempotent call is started by other deliveries too, and a client may
//!   send its call again through another process, which does not mark it.

use std::time::Duration;

use rockbot_contracts::ToolInvokeRequest;
use rockbot_tools::{context::ToolContext, failure::ToolFailure};
use tokio::time::{sleep, sleep_until, timeout};
use tracing::warn;

use super::{
    call_description::{CallDescription, StartId},
    journal::{CallJournal, EarlierEnd, FinishedRecord, JournalDecision, JournalEntry},
    reply::{CallOutcome, failure_reply, id_in_use},
};

/// Time for one query of the journal. Callers wait 3 s beyond the deadline of a call.
pub(super) const JOURNAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time after the deadline or the cancel of a call that another handler has to record the outcome: that
/// handler stops the tool at the same moment, and only it knows the outcome.
const RUNNER_GRACE: Duration = Duration::from_secs(2);

/// A call that does not start in this handler.
pub(super) struct UnstartedCall<'a> {
    /// `None` for a handler without one, and for a read-only tool.
    pub(super) journal: Option<&'a CallJournal>,
    pub(super) request: &'a ToolInvokeRequest,
    pub(super) call: &'a CallDescription<'a>,
    pub(super) context: &'a ToolContext,
    /// Set when this handler has no tool of that name.
    pub(super) is_unknown_tool: bool,
}

impl UnstartedCall<'_> {
    /// Returns the outcome of a call with `failure`, whose `executed` is `no`. `entry` is the record of
    /// the start, if this handler wrote one.
    pub(super) async fn resolve(
        &self,
        failure: ToolFailure,
        mut entry: Option<Box<JournalEntry>>,
    ) -> Box<CallOutcome> {
        let Some(journal) = self.journal else {
            return CallOutcome::failed(self.without_journal(failure));
        };
        let has_proof = journal.is_shared() || self.is_only_start(&failure);
        if !has_proof || self.call.may_outlive_records(journal.retention()) {
            return CallOutcome::failed_with_entry(failure.into_possibly_executed(), entry);
        }
        let mut runner_time = Box::pin(self.runner_time());
        let start = entry.as_ref().and_then(|entry| entry.start());
        loop {
            let reply = failure_reply(self.request, &failure);
            let reply = FinishedRecord::new(&reply.raw_type, &reply.body);
            let closing = journal.close_unstarted(self.call, entry.take(), reply);
            match timeout(JOURNAL_TIMEOUT, closing).await {
                Ok(Ok(JournalDecision::Written(_))) => return CallOutcome::failed(failure),
                Ok(Ok(JournalDecision::Running)) => {
                    let has_ended = tokio::select! {
                        biased;
                        ended = journal.may_run_here(self.call) => ended.is_ok(),
                        () = &mut runner_time => false,
                    };
                    if !has_ended {
                        return CallOutcome::failed(failure.into_possibly_executed());
                    }
                }
                // Only the handler of an MCP server knows the full name of its tool.
                Ok(Ok(JournalDecision::Ended(EarlierEnd::Conflict { .. })))
                    if self.is_unknown_tool =>
                {
                    return CallOutcome::failed(failure.into_possibly_executed());
                }
                Ok(Ok(JournalDecision::Ended(end))) => return end.into(),
                Ok(Err(error)) => {
                    warn!(%error, "journal unavailable for a call that did not start");
                    return self.reply_uncertain(journal, start, self.without_journal(failure));
                }
                Err(_) => {
                    warn!(timeout = ?JOURNAL_TIMEOUT, "journal did not respond for a call that did not start");
                    return self.reply_uncertain(journal, start, self.without_journal(failure));
                }
            }
        }
    }

    /// Returns the outcome of a call whose id another call has that this process runs. That call has no
    /// record if it is read-only or waits for a permit, and must not be denied one. So nothing is recorded
    /// for this call, and a copy of it can start elsewhere.
    pub(super) async fn resolve_conflict(&self) -> Box<CallOutcome> {
        let Some(journal) = self.journal else {
            return CallOutcome::failed(self.without_journal(id_in_use()));
        };
        match timeout(JOURNAL_TIMEOUT, journal.find(self.call)).await {
            Ok(Ok(Some(EarlierEnd::Conflict { .. }))) if self.is_unknown_tool => {
                CallOutcome::failed(id_in_use().into_possibly_executed())
            }
            Ok(Ok(Some(end))) => end.into(),
            Ok(Ok(None)) => CallOutcome::failed(self.without_journal(id_in_use())),
            Ok(Err(_)) | Err(_) => {
                warn!("journal unavailable for a call whose id another call has");
                CallOutcome::failed(self.without_journal(id_in_use()))
            }
        }
    }

    /// Returns whether no other delivery can start the call, if the handlers do not share a journal.
    fn is_only_start(&self, failure: &ToolFailure) -> bool {
        // Each handler rejects these arguments.
        let is_rejected_everywhere = matches!(failure, ToolFailure::InvalidArguments { .. });
        self.call.is_only_start() || (is_rejected_everywhere && self.call.is_first_start())
    }

    /// Returns the failure of a call about which no record says anything.
    fn without_journal(&self, failure: ToolFailure) -> ToolFailure {
        let is_shared = self.journal.is_some_and(CallJournal::is_shared);
        if self.is_only_start(&failure) && !is_shared {
            failure
        } else {
            failure.into_possibly_executed()
        }
    }

    /// Returns the outcome of a call whose record may say that it runs here, and completes the record
    /// once the journal responds.
    fn reply_uncertain(
        &self,
        journal: &CallJournal,
        start: Option<StartId>,
        failure: ToolFailure,
    ) -> Box<CallOutcome> {
        let reply = failure_reply(self.request, &failure);
        let end = FinishedRecord::new(&reply.raw_type, &reply.body);
        journal.complete_uncertain(self.call, start, end);
        CallOutcome::failed(failure)
    }

    /// Waits until another handler that runs the call must have recorded its outcome.
    async fn runner_time(&self) {
        tokio::select! {
            () = self.context.cancellation.cancelled() => {}
            () = sleep_until(self.context.deadline) => {}
        }
        sleep(RUNNER_GRACE).await;
    }
}
