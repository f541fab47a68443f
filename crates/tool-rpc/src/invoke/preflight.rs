//! Checks before a tool runs: time is left, a permit is free, and the journal allows the run.

use std::sync::Arc;

use metrics::histogram;
use rockbot_contracts::Executed;
use rockbot_store::StoreError;
use rockbot_tools::{context::ToolContext, failure::ToolFailure, registry::RegisteredTool};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::{
    admission::{Admission, Permit, Rejection},
    call_description::CallDescription,
    journal::{CallJournal, JournalDecision, JournalEntry},
    quarantine::{Inbound, QuarantineTransfers},
    reply::{CallOutcome, interrupted},
};

/// Parts of a handler that the checks use.
#[derive(Clone, Copy)]
pub(super) struct PreflightDeps<'a> {
    pub(super) admission: &'a Arc<Admission>,
    pub(super) transfers: &'a QuarantineTransfers,
    /// Journal of the call; `None` for a read-only tool.
    pub(super) journal: Option<&'a CallJournal>,
}

/// Reason why a call does not start.
pub(super) enum NotReady {
    /// Its outcome is known.
    Decided(Box<CallOutcome>),
    /// It failed before its tool started in this handler.
    Unstarted(ToolFailure),
    /// The bus redelivers its request.
    Lost,
}

/// Preflight checks of one call.
pub(super) struct Preflight<'a> {
    inbound: Inbound<'a>,
    deps: PreflightDeps<'a>,
    tool: Option<&'a RegisteredTool>,
    context: &'a ToolContext,
    call: &'a CallDescription<'a>,
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
        inbound: Inbound<'a>,
        deps: PreflightDeps<'a>,
        tool: Option<&'a RegisteredTool>,
        context: &'a ToolContext,
        call: &'a CallDescription<'a>,
    ) -> Self {
        Self { inbound, deps, tool, context, call }
    }

    /// Waits until the call may run, or returns why it must not.
    pub(super) async fn check(&self) -> Result<ReadyCall, NotReady> {
        if self.context.remaining().is_zero() {
            return Err(self.timed_out());
        }
        let mut runs_elsewhere = self.call.maybe_redelivered;
        loop {
            // A call that finished, or runs elsewhere, needs no permit here.
            let permit = if !runs_elsewhere || self.may_run_here().await? {
                self.acquire_permit().await?
            } else {
                None
            };
            if self.deps.transfers.in_progress() || self.context.cancellation.is_cancelled() {
                Box::pin(self.bounded(self.deps.transfers.wait_idle())).await?;
            }
            if self.inbound.is_lost() {
                return Err(NotReady::Lost);
            }
            let entry = match self.deps.journal.filter(|_| self.tool.is_some()) {
                Some(journal) => match Box::pin(self.record_start(journal)).await? {
                    Some(entry) => Some(entry),
                    None => {
                        runs_elsewhere = true;
                        continue;
                    }
                },
                None if self.call.maybe_redelivered && !self.call.idempotent => {
                    // Without a tool, the failure of the call reports that it may have run.
                    if self.tool.is_some() {
                        return Err(NotReady::Decided(CallOutcome::failed(interrupted())));
                    }
                    None
                }
                None => None,
            };
            let journal_is_shared = self.deps.journal.is_some_and(CallJournal::is_shared);
            let may_have_run =
                self.call.was_seen_started() || (self.call.maybe_redelivered && !journal_is_shared);
            return Ok(ReadyCall { permit, entry, may_have_run });
        }
    }

    /// Waits while another handler runs the call.
    async fn may_run_here(&self) -> Result<bool, NotReady> {
        match self.deps.journal.filter(|_| self.tool.is_some()) {
            Some(journal) => self.ask_journal(Box::pin(journal.may_run_here(self.call))).await,
            None => Ok(true),
        }
    }

    async fn acquire_permit(&self) -> Result<Option<Permit>, NotReady> {
        let Some(tool) = self.tool else { return Ok(None) };
        let queue = self.deps.admission.queue_of(tool);
        if let Some(permit) = self.deps.admission.try_admit(queue) {
            return Ok(Some(permit));
        }
        debug!("call waits for a permit");
        let since = Instant::now();
        // An earlier delivery was admitted; rejecting this one would leave its outcome open. The sender's
        // own count of attempts lifts no limit.
        let admitted =
            self.deps.admission.admit(&self.context.agent, queue, self.inbound.was_delivered());
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
                Err(NotReady::Unstarted(ToolFailure::Overloaded { message }))
            }
        }
    }

    /// Records the start of the call, or returns the outcome that the journal implies. Returns `None` if
    /// another handler runs the call.
    async fn record_start(
        &self,
        journal: &CallJournal,
    ) -> Result<Option<Box<JournalEntry>>, NotReady> {
        self.call.set_start_attempted();
        match self.ask_journal(journal.start_call(self.call)).await? {
            JournalDecision::Written(entry) => Ok(Some(entry)),
            JournalDecision::Running => Ok(None),
            JournalDecision::Ended(end) => Err(NotReady::Decided(end.into())),
        }
    }

    /// Awaits a query of the journal within the time of the call.
    async fn ask_journal<T>(
        &self,
        query: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, NotReady> {
        self.bounded(query).await?.map_err(|error| {
            warn!(%error, "journal unavailable; call not started");
            let message = "the call journal is unavailable".to_owned();
            NotReady::Unstarted(ToolFailure::Unavailable { message, executed: Executed::No })
        })
    }

    /// Awaits a future until the call is cancelled or its deadline passes.
    async fn bounded<T>(&self, future: impl Future<Output = T>) -> Result<T, NotReady> {
        tokio::select! {
            biased;
            () = self.context.cancellation.cancelled() => {
                Err(NotReady::Unstarted(ToolFailure::Cancelled { executed: Executed::No }))
            }
            done = timeout_at(self.context.deadline, future) => {
                done.map_err(|_| self.timed_out())
            }
        }
    }

    fn timed_out(&self) -> NotReady {
        let after = self.inbound.envelope().budget.map(|budget| budget.timeout).unwrap_or_default();
        let repeatable = self.call.idempotent;
        NotReady::Unstarted(ToolFailure::TimedOut { after, executed: Executed::No, repeatable })
    }
}
