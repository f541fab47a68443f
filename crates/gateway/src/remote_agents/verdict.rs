//! The meaning of a remote task for its caller.

use rockbot_contracts::{AgentTaskErrorCode, Executed};

use super::{
    record::{End, Record},
    wire::{RemoteState, RemoteTask, Status},
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
                let executed = if record.round == 0 { Executed::No } else { Executed::Unknown };
                Self::Ended(End::failed(executed, text))
            }
        }
    }
}

fn message_id(status: &Status) -> Option<String> {
    status.message.as_ref().and_then(|message| message.message_id.clone())
}
