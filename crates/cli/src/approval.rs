//! Prompts: the user at the terminal decides whether a tool call may run, and answers requests of MCP
//! servers for input.

mod description;
mod diff;
mod form;
mod key_line;
mod long_line;
mod prompt;

use std::{
    io::{self, IsTerminal},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rockbot_contracts::{
    ApprovalAnswer, ApprovalDecision, InputAction, InputAnswer, InputRequest, InputResponse,
    ReplyBody, SessionId,
};
use tokio::sync::oneshot;

use self::{form::Filled, prompt::Typed};
use crate::print::note;

/// Ends an open prompt from outside of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closing(Arc<AtomicBool>);

impl Closing {
    /// Ends the prompt within a fraction of a second.
    pub(crate) fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The end of an approval prompt.
pub(crate) enum Decided {
    /// The user decided, or no terminal can ask.
    Answer(ApprovalAnswer),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The request expired or was closed, or `body` is no request.
    Nothing,
}

/// Prompts the user for the decision on an approval request. Without a terminal the call is denied. `files`
/// is the root of the file tools, if they work on this machine.
///
/// # Cancellation
/// Dropping the future leaves the prompt open; close it with `closing` and wait.
pub(crate) async fn request_decision(
    body: &ReplyBody,
    session: &SessionId,
    files: Option<&Path>,
    closing: &Closing,
) -> Decided {
    let ReplyBody::ApprovalAsked { approval_id, call_hash, expires_in_ms, .. } = body else {
        return Decided::Nothing;
    };
    note!("{}", description::describe(body, files));
    let answer = |decision, reason| {
        Decided::Answer(ApprovalAnswer {
            session_id: session.clone(),
            approval_id: approval_id.clone(),
            call_hash: call_hash.clone(),
            decision,
            reason,
        })
    };
    if !can_ask() {
        note!("  denied: approval needs a terminal");
        return answer(ApprovalDecision::Deny, None);
    }
    let expires = Instant::now() + Duration::from_millis(*expires_in_ms);
    match ask(expires, closing.clone()).await {
        Typed::Decision(decision, reason) => answer(decision, reason),
        Typed::Interrupted => Decided::Interrupted,
        Typed::Closed => {
            note!("  the approval request is closed");
            Decided::Nothing
        }
    }
}

/// Returns whether a user can be asked.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The time limit for the confirmation of a message.
const CONFIRMATION_TIME: Duration = Duration::from_secs(300);

/// Asks the user whether to send the message that is shown. Returns `false` without an answer within five
/// minutes, and if no terminal can ask.
pub(crate) async fn confirm_message() -> bool {
    let expires = Instant::now() + CONFIRMATION_TIME;
    let ask = move || prompt::confirm("send it? [y]es, [n]o", "send it? y/n", expires);
    can_ask() && on_thread(ask).await.unwrap_or(false)
}

/// The outcome of a request for input.
pub(crate) enum Answered {
    /// The user responded.
    Answer(InputAnswer),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// No terminal can ask, the request expired or was closed, or `body` is no request.
    Nothing,
}

/// Shows a request of an MCP server for input, and asks the user for the response. Without a terminal, the
/// client that sent the message answers, and this one only shows the turn.
///
/// # Cancellation
/// Dropping the future leaves the prompt open; close it with `closing` and wait.
pub(crate) async fn request_input(
    body: &ReplyBody,
    session: &SessionId,
    closing: &Closing,
) -> Answered {
    let ReplyBody::InputAsked { input_id, request, expires_in_ms, .. } = body else {
        return Answered::Nothing;
    };
    note!("{}", form::describe(request));
    let answer = |response| {
        let (session_id, input_id) = (session.clone(), input_id.clone());
        Answered::Answer(InputAnswer { session_id, input_id, response })
    };
    if !can_ask() {
        note!("  an answer needs a terminal: where the message was sent");
        return Answered::Nothing;
    }
    if let Some(response) = form::only_response(request) {
        note!("  declined");
        return answer(response);
    }
    let expires = Instant::now() + Duration::from_millis(*expires_in_ms);
    match fill(request.clone(), expires, closing.clone()).await {
        Filled::Response(response) => answer(response),
        Filled::Interrupted => Answered::Interrupted,
        Filled::Closed => {
            note!("  the request is closed; it needs no answer");
            Answered::Nothing
        }
    }
}

async fn fill(request: InputRequest, expires: Instant, closing: Closing) -> Filled {
    let filled = on_thread(move || form::fill(&request, expires, &|| closing.is_closed())).await;
    filled.unwrap_or_else(|| Filled::Response(InputResponse::from(InputAction::Decline)))
}

async fn ask(expires: Instant, closing: Closing) -> Typed {
    let typed = on_thread(move || prompt::ask(expires, &|| closing.is_closed())).await;
    // A prompt that cannot be shown approves nothing.
    typed.unwrap_or(Typed::Decision(ApprovalDecision::Deny, None))
}

/// Runs a prompt on a thread of its own, because reading a terminal blocks and must not keep the process
/// from exiting. Returns `None` if the prompt panics.
async fn on_thread<T: Send + 'static>(prompt: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, outcome) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = sender.send(prompt());
    });
    outcome.await.ok()
}
