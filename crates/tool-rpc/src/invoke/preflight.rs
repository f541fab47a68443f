//! Checks before a tool runs: time is left, a permit is free, and the journal allows the run.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use metrics::histogram;
use rockbot_contracts::{Executed, ToolHints, ToolInvokeRequest};
use rockbot_store::StoreError;
use rockbot_tools::{context::ToolContext, failure::ToolFailure, registry::RegisteredTool};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::{
    admission::{Admission, Permit, Rejection},
    journal::{CallDescription, CallJournal, JournalDecision, JournalEntry},
    quarantine::{Inbound, QuarantineTransfers},
    reply::CallOutcome,
};

/// Parts of a handler that the checks use.
#[derive(Clone, Copy)]
pub(super) struct PreflightDeps<'a> {
    pub(super) admission: &'a Arc<Admission>,
    pub(super) transfers: &'a QuarantineTransfers,
    /// Journal of the call; `None` for a read-only tool.
    pub(super) journal: Option<&'a CallJournal>,
}

/// Preflight checks of one call.
pub(super) struct Preflight<'a> {
    deps: PreflightDeps<'a>,
    tool: Option<&'a RegisteredTool>,
    context: &'a ToolContext,
    /// Time that the caller allows for the call.
    budget: Duration,
    /// Set when the broker delivered the request before.
    was_delivered: bool,
    call: CallDescription<'a>,
}

/// A call that passed the checks.
pub(super) struct ReadyCall {
    /// Permit to hold while the tool runs. `None` for a tool that is not registered here.
    pub(super) permit: Option<Permit>,
    pub(super) entry: Option<Box<JournalEntry>>,
    /// Set when the call may have run before.
    pub(super) may_have_run: bool,
}

impl<'a> Preflight<'a> {
    pub(super) fn new(
        inbound: Inbound<'_>,
        deps: PreflightDeps<'a>,
        tool: Option<&'a RegisteredTool>,
        request: &'a ToolInvokeRequest,
        context: &'a ToolContext,
    ) -> Self {
        let budget = inbound.envelope().budget.map(|budget| budget.timeout).unwrap_or_default();
        let hints = tool.map(|tool| tool.registration().hints);
        let call = CallDescription {
            id: &request.tool_call_id,
            agent: &context.agent,
            tool: &context.tool_name,
            arguments: &request.arguments,
            idempotent: hints.is_some_and(ToolHints::may_retry),
            maybe_redelivered: inbound.maybe_redelivered(),
            seen_started: AtomicBool::new(false),
        };
        let read_only = hints.is_none_or(|hints| hints.read_only);
        let journal = deps.journal.filter(|_| !read_only);
        let was_delivered = inbound.was_delivered();
        Self { deps: PreflightDeps { journal, ..deps }, tool, context, budget, was_delivered, call }
    }

    /// Waits until the call may run, or returns its outcome if it must not.
    pub(super) async fn check(&self) -> Result<ReadyCall, Box<CallOutcome>> {
        if self.context.remaining().is_zero() {
            return Err(self.timed_out());
        }
        // A call that finished, or runs elsewhere, needs no permit here.
        let permit = if self.may_run_here().await? { self.acquire_permit().await? } else { None };
        if self.deps.transfers.in_progress() || self.context.cancellation.is_cancelled() {
            Box::pin(self.bounded(self.deps.transfers.wait_idle())).await?;
        }
        let entry = match self.deps.journal {
            Some(journal) => Some(Box::pin(self.record_start(journal)).await?),
            None if self.call.maybe_redelivered && !self.call.idempotent => {
                return Err(CallOutcome::failed(interrupted()));
            }
            None => None,
        };
        let journal_is_shared = self.deps.journal.is_some_and(CallJournal::is_shared);
        let may_have_run =
            self.call.was_seen_started() || (self.call.maybe_redelivered && !journal_is_shared);
        Ok(ReadyCall { permit, entry, may_have_run })
    }

    /// Waits while another handler runs an earlier delivery of the call.
    async fn may_run_here(&self) -> Result<bool, Box<CallOutcome>> {
        match self.deps.journal {
            Some(journal) if self.call.maybe_redelivered => {
                self.ask_journal(Box::pin(journal.may_run_here(&self.call))).await
            }
            _ => Ok(true),
        }
    }

    async fn acquire_permit(&self) -> Result<Option<Permit>, Box<CallOutcome>> {
        let Some(tool) = self.tool else { return Ok(None) };
        let queue = &*self.deps.admission.queue_name(tool.registration());
        if let Some(permit) = self.deps.admission.try_admit(queue) {
            return Ok(Some(permit));
        }
        debug!("call waits for a permit");
        let since = Instant::now();
        // An earlier delivery was admitted; rejecting this one would leave its outcome open. The sender's
        // own count of attempts lifts no limit.
        let admitted = self.deps.admission.admit(&self.context.agent, queue, self.was_delivered);
        let admitted = self.bounded(Box::pin(admitted)).await;
        histogram!("rockbot_tool_queue_wait_seconds").record(since.elapsed());
        match admitted? {
            Ok(permit) => Ok(Some(permit)),
            Err(rejection) => {
                let name = &tool.registration().name;
                let message = match rejection {
                    Rejection::QueueFull => format!("too many calls of {name} are waiting"),
                    Rejection::TimedOut(wait) => {
                        format!("no capacity for {name} within {wait:?}")
                    }
                };
                Err(CallOutcome::failed(match self.executed() {
                    Executed::No => ToolFailure::Overloaded { message },
                    // An earlier attempt may have been admitted.
                    Executed::Unknown | Executed::Yes => ToolFailure::OutcomeUnknown { message },
                }))
            }
        }
    }

    /// Records the start of the call, or returns the outcome that the journal implies.
    async fn record_start(
        &self,
        journal: &CallJournal,
    ) -> Result<Box<JournalEntry>, Box<CallOutcome>> {
        match self.ask_journal(journal.start_call(&self.call)).await? {
            JournalDecision::Run(entry) => Ok(entry),
            JournalDecision::Replay(reply) => Err(Box::new(CallOutcome::Recorded(reply))),
            JournalDecision::FinishedWithoutReply => Err(CallOutcome::failed(ToolFailure::failed(
                "the call ran before, and its result was too large to be recorded",
            ))),
            JournalDecision::Conflict => Err(CallOutcome::failed(id_in_use())),
            JournalDecision::Interrupted(entry) => {
                let result = Err(interrupted());
                let elapsed = Duration::ZERO;
                Err(Box::new(CallOutcome::Finished { result, elapsed, entry }))
            }
        }
    }

    /// Awaits a query of the journal within the time of the call.
    async fn ask_journal<T>(
        &self,
        query: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Box<CallOutcome>> {
        self.bounded(query).await?.map_err(|error| {
            warn!(%error, "journal unavailable; call not started");
            let message = "the call journal is unavailable".to_owned();
            CallOutcome::failed(ToolFailure::Unavailable { message, executed: self.executed() })
        })
    }

    /// Awaits a future until the call is cancelled or its deadline passes.
    async fn bounded<T>(&self, future: impl Future<Output = T>) -> Result<T, Box<CallOutcome>> {
        tokio::select! {
            biased;
            () = self.context.cancellation.cancelled() => {
                Err(CallOutcome::failed(ToolFailure::Cancelled { executed: self.executed() }))
            }
            done = timeout_at(self.context.deadline, future) => {
                done.map_err(|_| self.timed_out())
            }
        }
    }

    fn timed_out(&self) -> Box<CallOutcome> {
        let (executed, repeatable) = (self.executed(), self.call.idempotent);
        CallOutcome::failed(ToolFailure::TimedOut { after: self.budget, executed, repeatable })
    }

    /// Returns whether the tool ran, as far as known before it runs here.
    fn executed(&self) -> Executed {
        if self.call.maybe_redelivered || self.call.was_seen_started() {
            Executed::Unknown
        } else {
            Executed::No
        }
    }
}

pub(super) fn id_in_use() -> ToolFailure {
    ToolFailure::NotPermitted { reason: "another call has this id".to_owned() }
}

fn interrupted() -> ToolFailure {
    let message = "the handler of the call was lost; it may have run".to_owned();
    ToolFailure::OutcomeUnknown { message }
}
