//! A turn of an agent in this process that a tool call runs, and whose answer is its result.

use std::sync::Arc;

use rockbot_contracts::{MessageId, SessionId, UserMessage};
use rockbot_tools::{Budget, BudgetGrant, ToolContext, ToolFailure, ToolResult};
use tokio::time::Instant;

use crate::{
    event::{ProgressSink, TurnAnswer, TurnEvent},
    origin::{ChildGuard, ParentTurn, TurnOrigin},
    turn_result::result_of_turn,
};

/// The part of the calling turn's budget that the called turn gets is one of this number.
const BUDGET_PARTS: u64 = 4;

/// A turn that a call runs in a conversation of its own. Dropping it cancels the turn.
pub(crate) struct CalledTurn {
    session: SessionId,
    grant: Arc<BudgetGrant>,
    _guard: ChildGuard,
}

impl CalledTurn {
    /// Prepares the turn of a call, and returns its origin. A repeated call continues the conversation of the
    /// first.
    ///
    /// # Errors
    /// When the budget of the calling turn is used up.
    pub(crate) fn prepare(
        context: &ToolContext,
        deadline: Instant,
    ) -> Result<(Self, TurnOrigin), ToolFailure> {
        let budget = context.budget.clone().unwrap_or_else(Budget::unlimited);
        let grant = Arc::new(budget.grant(&context.tool_call_id, BUDGET_PARTS)?);
        let parent = ParentTurn {
            session: context.session_id.clone(),
            scope: context.scope.clone(),
            budget: grant.clone(),
            deadline,
            cancellation: context.cancellation.child_token(),
            handover: context.handover.clone(),
        };
        let guard = parent.guard();
        let origin = TurnOrigin::from_parent(parent);
        let origin = match MessageId::new(context.tool_call_id.as_str()) {
            Ok(message) => origin.with_message(message),
            Err(_) => origin,
        };
        let session = SessionId::from(&context.tool_call_id);
        Ok((Self { session, grant, _guard: guard }, origin))
    }

    /// Returns the message that starts the turn.
    pub(crate) fn message(&self, text: String) -> UserMessage {
        UserMessage::new(self.session.clone(), text)
    }

    /// Returns the result of the call.
    ///
    /// # Errors
    /// When the turn did not end with an answer.
    pub(crate) fn result(self, answer: TurnAnswer) -> Result<ToolResult, ToolFailure> {
        let TurnAnswer { text, outcome, usage, ended, .. } = answer;
        if let Some(usage) = usage {
            // No turn runs here if the answer was recorded before.
            self.grant.budget().settle(usage.turn);
        }
        if !ended.is_answer() {
            return Err(ToolFailure::OutcomeUnknown { message: text });
        }
        let result = result_of_turn(text, outcome)?;
        Ok(ToolResult { child_loop_id: Some(self.session.to_string()), ..result })
    }
}

/// Returns a sink that reports each tool call of the turn as progress of the call.
pub(crate) fn progress_of(context: &ToolContext, label: &str) -> ProgressSink {
    let (label, caller) = (label.to_owned(), context.clone());
    Arc::new(move |event| {
        if let TurnEvent::ToolStarted { tool_name, .. } = event {
            caller.progress(format!("{label} calls {tool_name}"));
        }
    })
}
