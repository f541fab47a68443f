//! The recorded history of a conversation, as text and as JSON lines.

use std::io;

use rockbot_contracts::{
    Executed, SessionId,
    conversation::{FeedbackRating, HistoryBody},
    user::TurnOutcome,
};
use rockbot_service::exit;
use serde_json::json;

use super::access::ConversationAccess;
use crate::{failure::Outcome, print::outln, render};

/// Longest shown line of arguments or of a result, in characters.
const MAX_LINE_CHARS: usize = 200;

/// Prints a conversation for people.
pub(super) async fn show(conversations: &ConversationAccess, session: &SessionId) -> Outcome {
    let summary = conversations.summary(session).await?;
    outln!("{}", render::dim(&render::clean(summary.title.trim())))?;
    let mut printer = Printer::default();
    conversations.for_each_item(session, |item| printer.print(&item.body)).await?;
    Ok(exit::OK)
}

/// Prints the summary of a conversation and each of its items as one line of JSON.
pub(super) async fn export(conversations: &ConversationAccess, session: &SessionId) -> Outcome {
    conversations.for_each_line(session, |line| outln!("{line}")).await?;
    Ok(exit::OK)
}

/// Prints the items of a conversation.
#[derive(Default)]
struct Printer {
    /// Text of the last response of the model, which the answer repeats.
    last_text: String,
}

impl Printer {
    fn print(&mut self, body: &HistoryBody) -> io::Result<()> {
        match body {
            HistoryBody::Answer { text, .. } if *text == self.last_text => {}
            HistoryBody::Model { text, calls } => {
                self.last_text.clone_from(text);
                if !text.trim().is_empty() {
                    outln!("{}", render::clean(text))?;
                }
                for call in calls {
                    let arguments = render::dim(&short(&call.arguments));
                    outln!("  → {} {arguments}", short(&call.tool_name))?;
                }
                return Ok(());
            }
            other => outln!("{}", line(other))?,
        }
        if let HistoryBody::Answer { outcome, .. } = body
            && *outcome != TurnOutcome::Completed
        {
            outln!("{}", render::dim(&format!("  (outcome: {})", wire_name(outcome))))?;
        }
        Ok(())
    }
}

/// Formats an item that is not a response of the model.
fn line(body: &HistoryBody) -> String {
    let bold = anstyle::Style::new().bold();
    let named = |tool_name: &Option<String>| {
        tool_name.as_deref().map_or_else(|| "a call".to_owned(), short)
    };
    match body {
        HistoryBody::Message { text, .. } => {
            format!("\n{bold}you:{bold:#} {}", render::clean(text))
        }
        HistoryBody::Steered { text, .. } => {
            format!("{bold}you, during the turn:{bold:#} {}", render::clean(text))
        }
        HistoryBody::Cancelled {} => render::dim("  (cancelled by the user)"),
        HistoryBody::Result { tool_name, text, error, executed, .. } => {
            let size = render::dim(&format!("({})", render::size(text.len() as u64)));
            let failed = error.as_ref().map(|code| {
                let executed = executed.as_ref().unwrap_or(&Executed::Unknown);
                render::bad(&format!("{code}, executed: {executed} "))
            });
            let failed = failed.unwrap_or_default();
            format!("  ← {} {failed}{} {size}", named(tool_name), render::dim(&short(text)))
        }
        HistoryBody::ApprovalAsked { tool_name, .. } => {
            render::dim(&format!("  ({} waits for approval)", named(tool_name)))
        }
        HistoryBody::Decided { decision } => {
            render::dim(&format!("  (decision: {})", short(decision)))
        }
        HistoryBody::Resumed { on, attempt } => render::dim(&format!(
            "  (continued by process {}, attempt {attempt})",
            short(on.as_str())
        )),
        HistoryBody::PutDown { on } => {
            render::dim(&format!("  (interrupted by the end of process {})", short(on.as_str())))
        }
        HistoryBody::Summary { text } => {
            render::dim(&format!("  (older messages are summarized: {})", short(text)))
        }
        HistoryBody::Feedback { rating, comment, .. } => {
            let rating = match rating {
                FeedbackRating::Positive => "positive",
                FeedbackRating::Negative => "negative",
            };
            let comment = short(comment);
            let separator = if comment.is_empty() { "" } else { ": " };
            render::dim(&format!("  (feedback: {rating}{separator}{comment})"))
        }
        HistoryBody::Answer { text, .. } | HistoryBody::Model { text, .. } => render::clean(text),
        HistoryBody::Other => render::dim("  (an entry of a newer version)"),
    }
}

/// Returns the name of an outcome on the wire.
fn wire_name(outcome: &TurnOutcome) -> String {
    json!(outcome).as_str().unwrap_or_default().to_owned()
}

/// Returns untrusted text as one short line.
fn short(text: &str) -> String {
    render::short_line(text, MAX_LINE_CHARS)
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{ToolCallId, ToolErrorCode};

    use super::*;

    #[test]
    fn result_is_one_line_with_its_execution_state() {
        let body = HistoryBody::Result {
            tool_call_id: ToolCallId::generate(),
            tool_name: Some("bash".to_owned()),
            text: format!("one\ntwo\u{1b}[2J {}", "x".repeat(500)),
            error: Some(ToolErrorCode::OutcomeUnknown),
            executed: Some(Executed::Unknown),
        };
        let line = line(&body);
        assert!(line.contains("bash") && line.contains("outcome_unknown, executed: unknown"));
        assert!(line.contains("one two xx") && line.contains('…'), "{line}");
        assert!(!line.contains('\n') && !line.contains("\u{1b}[2J"), "{line:?}");
    }
}
