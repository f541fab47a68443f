//! Approval prompts: the user at the terminal decides whether a tool call may run.

mod description;
mod diff;
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

use rockbot_contracts::{ApprovalAnswer, ApprovalDecision, ReplyBody, SessionId};
use tokio::sync::oneshot;

use self::prompt::Typed;
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
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        note!("  denied: approval needs a terminal");
        return answer(ApprovalDecision::Deny, None);
    }
    let expires = Instant::now() + Duration::from_millis(*expires_in_ms);
    match ask(expires, closing.clone()).await {
        Typed::Decision(decision, reason) => answer(decision, reason),
        Typed::Interrupted => Decided::Interrupted,
        Typed::Closed => {
            note!("  the approval request is closed, and the call was denied");
            Decided::Nothing
        }
    }
}

/// Runs the prompt on a thread of its own, because reading a terminal blocks and must not keep the process
/// from exiting.
async fn ask(expires: Instant, closing: Closing) -> Typed {
    let (sender, typed) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = sender.send(prompt::ask(expires, &|| closing.is_closed()));
    });
    // A prompt that cannot be shown approves nothing.
    typed.await.unwrap_or(Typed::Decision(ApprovalDecision::Deny, None))
}
