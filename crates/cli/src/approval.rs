//! A person at the terminal is asked whether a tool call may run.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    pin::pin,
    time::Duration,
};

use rockbot_contracts::{ApprovalAnswer, ApprovalDecision, ReplyBody, SessionId};
use tokio::{sync::oneshot, time::timeout};

use crate::show;

/// The most of the arguments that is shown, in bytes.
const MOST_SHOWN: usize = 4 * 1024;

/// Asks the person what an agent asks, and returns the answer to it. Without a terminal nobody is
/// there, which is a refusal. `None` for what is no question, and when its time was over.
///
/// It returns only after the person ended a line: whoever reads the terminal next must not miss what
/// is typed.
pub(crate) async fn answer(body: &ReplyBody, session: &SessionId) -> Option<ApprovalAnswer> {
    let ReplyBody::ApprovalAsked { approval_id, call_hash, expires_in_ms, .. } = body else {
        return None;
    };
    tell(&format!("{}\n", question(body)));
    let decision = if io::stdin().is_terminal() && io::stderr().is_terminal() {
        let mut asked = pin!(ask());
        let decision = timeout(Duration::from_millis(*expires_in_ms), &mut asked).await;
        match decision {
            Ok(decision) => decision,
            Err(_) => {
                withdrawn();
                asked.await;
                return None;
            }
        }
    } else {
        tell("  refused: nobody is at a terminal to ask\n");
        ApprovalDecision::Deny
    };
    Some(ApprovalAnswer {
        session_id: session.clone(),
        approval_id: approval_id.clone(),
        call_hash: call_hash.clone(),
        decision,
    })
}

/// Says that the question does not stand any longer.
pub(crate) fn withdrawn() {
    tell("\n  the call was refused meanwhile; n and Enter to go on: ");
}

/// What the person decides about, with a sign for every character that hides.
fn question(body: &ReplyBody) -> String {
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
    let shown = &arguments[..arguments.floor_char_boundary(MOST_SHOWN)];
    let hidden = (arguments.len() - shown.len()) as u64 + arguments_left_out;
    let more = if hidden > 0 { format!(" … {hidden} bytes more") } else { String::new() };
    let line = show::visible_line;
    format!(
        "{} wants to call {} ({})\n  {}{more}",
        line(asking_agent.as_str()),
        line(tool_name),
        line(tool_source),
        line(shown),
    )
}

/// Asks until the answer is one; the end of the input is a refusal.
async fn ask() -> ApprovalDecision {
    loop {
        tell("  run it? [y]es, [n]o, [a]lways in this session: ");
        let (sender, line) = oneshot::channel();
        // Reading a terminal blocks, and must not keep this process from ending.
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

/// To the person, not into the output. A terminal that is gone hears nothing.
fn tell(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, ApprovalId, ToolCallId};

    use super::*;

    #[test]
    fn a_question_shows_what_it_hides_and_how_much_it_leaves_out() {
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
        };
        let question = question(&body);
        assert!(question.starts_with("assistant wants to call bash (files\\u{202e})\n"));
        assert!(question.contains("\\u{1b}[2J") && question.ends_with(" … 915 bytes more"));
    }
}
