//! Shows the results of scheduled tasks to the next turn of a person.

use futures_util::future::BoxFuture;
use rockbot_contracts::user::TurnOutcome;
use rockbot_tools::EntryPoint;
use tracing::debug;

use super::{
    handle::Schedule,
    notices::{Notice, ShowingTurn},
};
use crate::context::{ContextPart, ContextRequest, ContextSource};

/// Maximum number of results in one turn.
const MAX_RESULTS: usize = 3;

impl ContextSource for Schedule {
    fn part(&self) -> ContextPart {
        ContextPart::ScheduledResults
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            // A turn that another process started has its context already.
            if request.entry != EntryPoint::UserTurn
                || request.is_continued
                || *request.agent != self.agent
            {
                return None;
            }
            let (session, message) = (request.session.clone(), request.id.clone());
            let turn = ShowingTurn { session, message };
            match self.notices.show(request.user, &turn, MAX_RESULTS).await {
                Ok((results, _)) if results.is_empty() => None,
                Ok((results, others)) => Some(self.describe(&results, others).await),
                Err(error) => {
                    debug!(%error, "results of scheduled tasks not read");
                    None
                }
            }
        })
    }
}

impl Schedule {
    async fn describe(&self, results: &[Notice], others: usize) -> String {
        let zone = self.shown_zone().await;
        let mut text =
            "Results of scheduled tasks since the last message. The user may not have seen \
                        them:"
                .to_owned();
        for notice in results {
            let Notice { task, fire, session, outcome, text: answer, .. } = notice;
            let due = zone.local_with_zone(*fire);
            let session = session.as_ref().map(|session| format!(", conversation {session}"));
            let session = session.unwrap_or_default();
            let outcome = describe_outcome(*outcome);
            let answer = answer.replace('\n', "\n  ");
            text += &format!("\n- '{task}', due {due}{session}: {outcome}\n  {answer}");
        }
        if others > 0 {
            text += &format!("\n({others} more follow with the next message.)");
        }
        text
    }
}

/// Returns the description of an outcome, which follows the name of a task.
#[must_use]
pub fn describe_outcome(outcome: TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Completed => "completed",
        TurnOutcome::IterationLimit => "stopped at its limit of tool calls",
        TurnOutcome::BudgetExceeded => "stopped at the limit of its budget",
        TurnOutcome::ToolTimeouts => "stopped because tools timed out",
        TurnOutcome::Cancelled => "cancelled",
        TurnOutcome::ModelFailed => "failed",
        TurnOutcome::Overloaded => "refused for lack of capacity",
        TurnOutcome::Expired => "missed",
        TurnOutcome::Other => "ended",
    }
}
