//! Calls that hand the message of the user off to another agent.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use metrics::counter;
use rockbot_contracts::{MessageId, Spending, ToolSource, UserMessage, user::TurnOutcome};
use rockbot_tools::ToolFailure;

use super::{
    Turn,
    calls::CallRunner,
    ended_calls::EndedCalls,
    stop_reason::{HandedOff, StopReason},
};
use crate::{
    conversation::{CallEntry, ResultEntry},
    event::{ProgressSink, TurnAnswer, TurnEvent},
    handoff::{HandoffArguments, session_of},
    origin::{ParentTurn, TurnOrigin},
    telemetry,
    tool_names::HANDOFF,
};

/// Longest part of the answer that the conversation keeps, in bytes.
const MAX_KEPT_BYTES: usize = 4 * 1024;

impl Turn<'_> {
    /// Returns `true` for a call that hands off.
    pub(super) fn is_handoff(&self, call: &CallEntry) -> bool {
        self.setup.is_internal(&call.name, HANDOFF)
    }

    /// Returns the end of the turn, if a call of the step handed off. One whose answer is not known in this process
    /// is repeated: the destination has recorded its answer.
    pub(super) async fn apply_handoff(
        &self,
        calls: &[CallEntry],
        ended: &EndedCalls,
        handed_off: Option<HandedOff>,
    ) -> Option<StopReason> {
        let at = calls.iter().position(|call| self.is_handoff(call))?;
        if !ended.succeeded.contains(&at) {
            return None;
        }
        let answer = match handed_off {
            Some(answer) => answer,
            None => Box::pin(self.hand_off(&calls[at])).await.ok()?,
        };
        Some(StopReason::HandedOff(answer))
    }

    /// Runs the turn of the destination.
    async fn hand_off(&self, call: &CallEntry) -> Result<HandedOff, ToolFailure> {
        let HandoffArguments { agent, message: note } = HandoffArguments::parse(&call.arguments)?;
        if self.origin.parent.is_some() || self.origin.work.is_some() {
            let reason =
                "only the turn of a user's message can be handed off; answer yourself".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        }
        self.scope.check(HANDOFF, &ToolSource::Agent(agent.clone()))?;
        let target = self.setup.destinations.as_ref().and_then(|all| all.get(&agent));
        let Some((target, session)) = target.zip(session_of(self.session_id, &agent)) else {
            let reason =
                format!("agent {agent} is not available; answer yourself, or choose another");
            return Err(ToolFailure::NotPermitted { reason });
        };
        let grant = Arc::new(self.meter.budget().grant(&call.call, 1)?);
        let parent = self.as_parent(grant.clone(), self.deadline);
        let guard = parent.guard();
        let origin = self.handed_origin(call, parent)?;
        let message = UserMessage::new(session, self.handed_text(&note));
        (self.progress)(TurnEvent::HandedOff { to: agent.clone() });
        let wrote = Arc::new(AtomicBool::new(false));
        let answer = target.answer(origin, message, watched(&self.progress, &wrote)).await;
        drop(guard);
        let TurnAnswer { text, outcome, usage, ended, .. } = answer;
        if let Some(usage) = usage {
            grant.budget().settle(usage.turn);
        }
        counter!("rockbot_agent_handoffs_total", "outcome" => telemetry::outcome_label(outcome))
            .increment(1);
        if !ended.is_answer() {
            return Err(ToolFailure::OutcomeUnknown { message: text });
        }
        let failed = matches!(
            outcome,
            TurnOutcome::ModelFailed | TurnOutcome::Overloaded | TurnOutcome::Expired
        );
        if failed && !wrote.load(Ordering::Relaxed) {
            return Err(ToolFailure::failed(format!("agent {agent} did not answer: {text}")));
        }
        let cut = text.floor_char_boundary(MAX_KEPT_BYTES);
        let kept = format!("[{agent} answered]: {}", &text[..cut]);
        Ok(HandedOff { outcome, text, kept })
    }

    fn handed_origin(
        &self,
        call: &CallEntry,
        parent: ParentTurn,
    ) -> Result<TurnOrigin, ToolFailure> {
        // The same for a repeated call, so that its turn is continued.
        let message = MessageId::new(call.call.as_str())
            .map_err(|_| ToolFailure::failed("no id for the message; call again"))?;
        let (entry, sender) = (self.origin.entry, self.origin.sender.clone());
        let origin = TurnOrigin::from_parent(parent).with_message(message);
        Ok(TurnOrigin { entry, sender, ..origin })
    }

    /// Returns the words of the user, with the note of this agent. Another process that continues the turn sends the
    /// same text.
    fn handed_text(&self, note: &str) -> String {
        let words = self.user_texts.join("\n\n");
        if note.trim().is_empty() {
            return words;
        }
        let from = &self.setup.definition.name;
        let note: Vec<_> = note.lines().map(|line| format!("> {line}")).collect();
        let note = note.join("\n");
        format!("{words}\n\nA note from agent {from}, which handed this message off:\n{note}")
    }
}

impl CallRunner<'_> {
    /// Makes a handoff, and records its result.
    pub(super) async fn call_handoff(
        &self,
        position: usize,
        call: &CallEntry,
    ) -> Option<HandedOff> {
        let turn = self.turn;
        let work = Box::pin(async {
            self.run_attempt(call, self.context(call)).await?;
            let handed_off = turn.hand_off(call).await;
            if turn.may_have_run(&call.call) {
                return handed_off.map_err(ToolFailure::into_possibly_executed);
            }
            handed_off
        });
        let result = tokio::select! {
            biased;
            () = turn.handover.cancelled() => return None,
            result = work => result,
        };
        let spent = self.child_spending(&call.call, None).await;
        self.record_handoff(position, call, result.as_ref().map(|one| one.kept.as_str()), spent)
            .await;
        result.ok()
    }

    /// Records the result of a handoff.
    async fn record_handoff(
        &self,
        position: usize,
        call: &CallEntry,
        result: Result<&str, &ToolFailure>,
        spent: Spending,
    ) {
        let id = call.call.clone();
        let entry = match result {
            Ok(kept) => ResultEntry::succeeded(id, kept.to_owned()),
            Err(failure) => ResultEntry::failed(id, failure),
        };
        self.record(position, call, ResultEntry { child: spent, ..entry }).await;
    }
}

/// Returns a sink that passes events on, and notes whether text was among them.
fn watched(progress: &ProgressSink, wrote: &Arc<AtomicBool>) -> ProgressSink {
    let (progress, wrote) = (progress.clone(), wrote.clone());
    Arc::new(move |event| {
        if matches!(event, TurnEvent::TextDelta { .. }) {
            wrote.store(true, Ordering::Relaxed);
        }
        progress(event);
    })
}
