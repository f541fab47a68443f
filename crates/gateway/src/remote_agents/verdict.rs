//! The meaning of a remote task for its caller.

use rockbot_contracts::{AgentTaskErrorCode, Executed};

use super::{
    record::{End, Record},
    wire::{RemoteState, RemoteTask, Status, is_id},
};

/// The meaning of a remote task for its caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Open,
    /// The agent asks, in the message with this id.
    Asked {
        question: String,
        id: Option<String>,
    },
    Ended(End),
    /// It ended for the caller, and not at the agent: an operator must do something.
    Abandoned(End),
}

impl Verdict {
    /// Returns the meaning of the task in the response to the current message.
    pub(super) fn of_response(record: &Record, task: &RemoteTask) -> Self {
        let is_rejected = task.status.state() == RemoteState::Rejected;
        match Self::of(record, task) {
            // No other message or attempt can have begun the task.
            Self::Ended(end) if is_rejected && record.round == 0 && !record.is_uncertain => {
                Self::Ended(End { executed: Executed::No, ..end })
            }
            verdict => verdict,
        }
    }

    /// Returns the meaning of a task that was read.
    pub(super) fn of(record: &Record, task: &RemoteTask) -> Self {
        let reason = |text: String, default: &str| {
            if text.trim().is_empty() { default.to_owned() } else { text }
        };
        let status = &task.status;
        match status.state() {
            RemoteState::Open => Self::Open,
            // The agent has not begun to read the answer to its last question.
            RemoteState::InputRequired
                if record.question_id.is_some() && message_id(status) == record.question_id =>
            {
                Self::Open
            }
            RemoteState::InputRequired => Self::Asked {
                question: reason(status.text(), "The agent asks for more input."),
                id: message_id(status),
            },
            RemoteState::AuthRequired => Self::Abandoned(End::failed(
                Executed::Unknown,
                "The agent requires credentials for the task. An operator of this fleet must give them to it.",
            )),
            RemoteState::Completed => Self::Ended(End::completed(task.text())),
            RemoteState::Failed => {
                let text = reason(status.text(), "The agent failed without a reason.");
                Self::Ended(End::failed(Executed::Yes, text))
            }
            RemoteState::Canceled => {
                let text = reason(status.text(), "Cancelled.");
                Self::Ended(End::with_code(AgentTaskErrorCode::Cancelled, Executed::Unknown, text))
            }
            RemoteState::Rejected => {
                let text = reason(status.text(), "The agent rejected the task without a reason.");
                // An agent may also reject a task that it has begun.
                Self::Ended(End::failed(Executed::Unknown, text))
            }
        }
    }
}

/// Returns the id of the message of a status; `None` without a valid one.
fn message_id(status: &Status) -> Option<String> {
    status.message.as_ref()?.message_id.clone().filter(|id| is_id(id))
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, TaskId, topology::agent_response};
    use serde_json::{Value, json};

    use super::*;

    fn record() -> Record {
        let caller = AgentName::new("a").unwrap();
        let reply_to = agent_response(&caller);
        Record::new(caller, TaskId::new("t").unwrap(), reply_to)
    }

    fn task(status: &Value) -> RemoteTask {
        serde_json::from_value(json!({"id": "r", "status": status})).unwrap()
    }

    #[test]
    fn rejection_is_unexecuted_in_the_first_response_only() {
        let rejected = task(&json!({"state": "TASK_STATE_REJECTED"}));
        let executed = |verdict| match verdict {
            Verdict::Ended(end) => end.executed,
            verdict => panic!("{verdict:?}"),
        };
        let first = record();
        assert_eq!(executed(Verdict::of_response(&first, &rejected)), Executed::No);
        assert_eq!(executed(Verdict::of(&first, &rejected)), Executed::Unknown);
        let repeated = Record { is_uncertain: true, ..record() };
        assert_eq!(executed(Verdict::of_response(&repeated, &rejected)), Executed::Unknown);
        let answer = Record { round: 1, ..record() };
        assert_eq!(executed(Verdict::of_response(&answer, &rejected)), Executed::Unknown);
        let failed = task(&json!({"state": "TASK_STATE_FAILED"}));
        assert_eq!(executed(Verdict::of_response(&first, &failed)), Executed::Yes);
    }

    #[test]
    fn invalid_id_of_a_question_is_not_kept() {
        let valid = "x".repeat(255);
        for (id, kept) in [(valid.clone(), Some(valid)), ("x".repeat(256), None)] {
            let message = json!({"messageId": id, "parts": [{"text": "Which one?"}]});
            let asked = task(&json!({"state": "TASK_STATE_INPUT_REQUIRED", "message": message}));
            let question = "Which one?".to_owned();
            assert_eq!(Verdict::of(&record(), &asked), Verdict::Asked { question, id: kept });
        }
    }
}
