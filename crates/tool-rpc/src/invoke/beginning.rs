//! What must hold before a tool starts: there is time, there is room, and it may run.

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
    admission::{Admission, NoRoom, Permit},
    answer::Ending,
    journal::{Begun, CallInQuestion, CallJournal, Entrance},
    suspects::{Moves, Taken},
};

/// What all calls of a handler wait for, in this order.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) admission: &'a Arc<Admission>,
    pub(super) moves: &'a Moves,
    /// Where a call is written down; none for a tool that only reads.
    pub(super) journal: Option<&'a CallJournal>,
}

/// A call on its way to its tool.
pub(super) struct Beginning<'a> {
    rules: Rules<'a>,
    tool: Option<&'a RegisteredTool>,
    context: &'a ToolContext,
    /// How long its asker gave it.
    budget: Duration,
    call: CallInQuestion<'a>,
}

/// A call that may run now.
pub(super) struct Started {
    /// Its place, to be held until the tool ended. None for a tool that is not here.
    pub(super) permit: Option<Permit>,
    /// What the journal has of it.
    pub(super) begun: Option<Box<Begun>>,
    /// Whether an earlier run of it can't be ruled out.
    pub(super) may_have_run: bool,
}

impl<'a> Beginning<'a> {
    pub(super) fn of(
        taken: Taken<'_>,
        rules: Rules<'a>,
        tool: Option<&'a RegisteredTool>,
        request: &'a ToolInvokeRequest,
        context: &'a ToolContext,
    ) -> Self {
        let budget = taken.envelope().budget.map(|budget| budget.timeout).unwrap_or_default();
        let hints = tool.map(|tool| tool.registration().hints);
        let call = CallInQuestion {
            id: &request.tool_call_id,
            agent: &context.agent,
            tool: &context.tool_name,
            arguments: &request.arguments,
            repeatable: hints.is_some_and(ToolHints::may_run_again),
            again: taken.came_before(),
            found_begun: AtomicBool::new(false),
        };
        let only_reads = hints.is_none_or(|hints| hints.read_only);
        let journal = rules.journal.filter(|_| !only_reads);
        Self { rules: Rules { journal, ..rules }, tool, context, budget, call }
    }

    /// Waits until the call may run, or says how it ends instead.
    pub(super) async fn begin(&self) -> Result<Started, Box<Ending>> {
        if self.context.remaining().is_zero() {
            return Err(self.late());
        }
        // A call that runs elsewhere, or ended, needs no room here.
        let permit = if self.may_run_here().await? { self.room().await? } else { None };
        if self.rules.moves.any() || self.context.cancellation.is_cancelled() {
            Box::pin(self.bounded(self.rules.moves.done())).await?;
        }
        let begun = match self.rules.journal {
            Some(journal) => Some(Box::pin(self.enter(journal)).await?),
            None if self.call.again && !self.call.repeatable => {
                return Err(Ending::failed(interrupted()));
            }
            None => None,
        };
        let ruled_out = self.rules.journal.is_some_and(CallJournal::is_shared);
        let may_have_run = self.call.was_found_begun() || (self.call.again && !ruled_out);
        Ok(Started { permit, begun, may_have_run })
    }

    /// Waits while another handler runs a call that came before.
    async fn may_run_here(&self) -> Result<bool, Box<Ending>> {
        match self.rules.journal {
            Some(journal) if self.call.again => {
                self.told(Box::pin(journal.may_run(&self.call))).await
            }
            _ => Ok(true),
        }
    }

    async fn room(&self) -> Result<Option<Permit>, Box<Ending>> {
        let Some(tool) = self.tool else { return Ok(None) };
        let name = &*self.rules.admission.waits_as(tool.registration());
        if let Some(permit) = self.rules.admission.try_admit(name) {
            return Ok(Some(permit));
        }
        debug!("the call waits for room");
        let since = Instant::now();
        // A call that may have begun was let in before; refusing it now would leave that open.
        let admitted = self.rules.admission.admit(&self.context.agent, name, self.call.again);
        let admitted = self.bounded(Box::pin(admitted)).await;
        histogram!("rockbot_tool_queue_wait_seconds").record(since.elapsed());
        match admitted? {
            Ok(permit) => Ok(Some(permit)),
            Err(no_room) => {
                let name = &tool.registration().name;
                let message = match no_room {
                    NoRoom::Full => format!("too many calls of {name} wait"),
                    NoRoom::For(wait) => format!("no room for a call of {name} for {wait:?}"),
                };
                Err(Ending::failed(ToolFailure::Overloaded { message }))
            }
        }
    }

    /// Writes down that the call begins, or learns what became of it.
    async fn enter(&self, journal: &CallJournal) -> Result<Box<Begun>, Box<Ending>> {
        match self.told(journal.enter(&self.call)).await? {
            Entrance::Run(begun) => Ok(begun),
            Entrance::Answer(kept) => Err(Box::new(Ending::Kept(kept))),
            Entrance::RanWithoutAnswer => Err(Ending::failed(ToolFailure::failed(
                "it ran before, and its result was too large to be kept",
            ))),
            Entrance::Conflict => Err(Ending::failed(id_in_use())),
            Entrance::Interrupted(begun) => {
                let ended = Err(interrupted());
                Err(Box::new(Ending::Ran { ended, elapsed: Duration::ZERO, begun }))
            }
        }
    }

    /// What the journal says, in time.
    async fn told<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Box<Ending>> {
        self.bounded(answer).await?.map_err(|error| {
            warn!(%error, "the journal is out of reach; the call is not begun");
            let message = "the record of calls is out of reach".to_owned();
            Ending::failed(ToolFailure::Unavailable { message, executed: self.executed() })
        })
    }

    async fn bounded<T>(&self, until: impl Future<Output = T>) -> Result<T, Box<Ending>> {
        tokio::select! {
            biased;
            () = self.context.cancellation.cancelled() => {
                Err(Ending::failed(ToolFailure::Cancelled { executed: self.executed() }))
            }
            done = timeout_at(self.context.deadline, until) => done.map_err(|_| self.late()),
        }
    }

    fn late(&self) -> Box<Ending> {
        let (executed, repeatable) = (self.executed(), self.call.repeatable);
        Ending::failed(ToolFailure::TimedOut { after: self.budget, executed, repeatable })
    }

    /// Whether the tool ran, as far as is known while it does not run here.
    fn executed(&self) -> Executed {
        match self.call.again || self.call.was_found_begun() {
            true => Executed::Unknown,
            false => Executed::No,
        }
    }
}

pub(super) fn id_in_use() -> ToolFailure {
    ToolFailure::NotPermitted { reason: "another call has this id".to_owned() }
}

fn interrupted() -> ToolFailure {
    let message = "the process that took the call was lost; it may have run".to_owned();
    ToolFailure::OutcomeUnknown { message }
}
