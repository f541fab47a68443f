//! Approval prompts: the user at the terminal decides whether a tool call may run.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    pin::pin,
    time::Duration,
};

use rockbot_contracts::{ApprovalAnswer, ApprovalDecision, ReplyBody, SessionId};
use tokio::{sync::oneshot, time::timeout};

use crate::render;

/// The longest shown prefix of the arguments, in bytes.
const MAX_SHOWN_BYTES: usize = 4 * 1024;

/// Prompts the user for the decision on an approval request. Without a terminal the call is denied.
/// Returns `None` when `body` is no approval request, or it expired.
///
/// It returns only after a complete line was typed, so that the next reader of the terminal misses no
/// input.
pub(crate) async fn request_decision(
    body: &ReplyBody,
    session: &SessionId,
) -> Option<ApprovalAnswer> {
    let ReplyBody::ApprovalAsked { approval_id, call_hash, expires_in_ms, .. } = body else {
        return None;
    };
    write_stderr(&format!("{}\n", describe(body)));
    let decision = if io::stdin().is_terminal() && io::stderr().is_terminal() {
        let mut prompting = pin!(prompt());
        let decision = timeout(Duration::from_millis(*expires_in_ms), &mut prompting).await;
        match decision {
            Ok(decision) => decision,
            Err(_) => {
                show_expired();
                prompting.await;
                return None;
            }
        }
    } else {
        write_stderr("  denied: approval needs a terminal\n");
        ApprovalDecision::Deny
    };
    Some(ApprovalAnswer {
        session_id: session.clone(),
        approval_id: approval_id.clone(),
        call_hash: call_hash.clone(),
        decision,
        reason: None,
    })
}

/// Shows that the approval request is no longer open.
pub(crate) fn show_expired() {
    write_stderr(
        "\n  the approval request is closed and the call was denied; press Enter to continue: ",
    );
}

/// Describes the call to approve, with control and invisible characters escaped.
fn describe(body: &ReplyBody) -> String {
    let ReplyBody::ApprovalAsked {
        asking_agent,
        tool_name,
        tool_source,
        arguments,
        arguments_left_out,
        ..
    } = body
    else {
        return String::new();
    };
    let shown = &arguments[..arguments.floor_char_boundary(MAX_SHOWN_BYTES)];
    let hidden = (arguments.len() - shown.len()) as u64 + arguments_left_out;
    let more = if hidden > 0 { format!(" … {hidden} more bytes") } else { String::new() };
    let line = render::visible_line;
    format!(
        "{} wants to call {} ({})\n  {}{more}",
        line(asking_agent.as_str()),
        line(tool_name),
        line(tool_source),
        line(shown),
    )
}

/// Prompts until the input is valid; the end of the input denies the call.
async fn prompt() -> ApprovalDecision {
    loop {
        write_stderr("  run it? [y]es, [n]o, [a]lways in this session: ");
        let (sender, line) = oneshot::channel();
        // Reading a terminal blocks and must not keep the process from exiting.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = io::stdin().lock().read_line(&mut line);
            let _ = sender.send(read.ok().filter(|bytes| *bytes > 0).map(|_| line));
        });
        let Ok(Some(line)) = line.await else { return ApprovalDecision::Deny };
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return ApprovalDecision::Allow,
            "n" | "no" => return ApprovalDecision::Deny,
            "a" | "always" => return ApprovalDecision::AllowInSession,
            _ => {}
        }
    }
}

/// Writes to standard error. Errors are ignored: the terminal may be closed.
fn write_stderr(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, ApprovalId, ToolCallId};

    use super::*;

    #[test]
    fn description_escapes_and_truncates_arguments() {
        let body = ReplyBody::ApprovalAsked {
            approval_id: ApprovalId::generate(),
            asking_agent: AgentName::new("assistant").unwrap(),
            tool_call_id: ToolCallId::generate(),
            tool_name: "bash".to_owned(),
            tool_source: "files\u{202e}".to_owned(),
            arguments: format!("\u{1b}[2J{}", "x".repeat(5000)),
            arguments_left_out: 7,
            call_hash: String::new(),
            expires_in_ms: 1,
            hints: None,
            rule: None,
        };
        let text = describe(&body);
        assert!(text.starts_with("assistant wants to call bash (files\\u{202e})\n"));
        assert!(text.contains("\\u{1b}[2J") && text.ends_with(" … 915 more bytes"));
    }
}
