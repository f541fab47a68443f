//! A person is asked before a tool call runs, where the operator's rules say so.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{ApprovalAnswer, ApprovalDecision, ApprovalId, SessionId};
use rockbot_tools::{
    ApprovalPolicy, ApprovalRequest, ApprovalSection, Approver, EntryPoint, ToolSource, Verdict,
};
use sha2::{Digest, Sha256};
use tokio::{sync::oneshot, time::timeout};
use tracing::{info, warn};

use crate::{
    event::{ProgressSink, TurnEvent},
    origin::TurnOrigin,
};

/// Questions that wait for an answer at once; one more is a refusal.
const MOST_OPEN: usize = 256;
/// The longest arguments that a person is shown, in bytes.
const MOST_SHOWN: usize = 16 * 1024;
/// The tool that calls tools of MCP servers by name; their own calls are asked about.
const GATEWAY: &str = "mcp_invoke_tool";

/// Asks people about calls, by the rules of an operator. The agents of one process share it.
///
/// A question stands for one call with exactly these arguments, in one conversation, until it is
/// answered or its time is over. An answer counts once, and only if it names that very call.
pub struct Approvals {
    section: ApprovalSection,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<ApprovalId, Open>,
    /// Whom to ask in a conversation whose turn runs.
    listeners: HashMap<SessionId, Listener>,
    /// Tools that need no more questions in a person's conversation, with their definitions.
    allowed: HashMap<SessionId, HashSet<(String, String)>>,
}

struct Open {
    session: SessionId,
    call_hash: String,
    answer: oneshot::Sender<ApprovalDecision>,
}

#[derive(Clone)]
struct Listener {
    /// The conversation of the person.
    person: SessionId,
    progress: ProgressSink,
}

impl Approvals {
    /// Asks by these rules; none when they let every call run.
    #[must_use]
    pub fn new(section: ApprovalSection) -> Option<Arc<Self>> {
        (!section.allows_all()).then(|| Arc::new(Self { section, state: Mutex::default() }))
    }

    /// Takes what a person says. Whether it answered a question that stands: an answer to another
    /// call, in another conversation, given before, or too late counts for nothing.
    pub fn answer(&self, answer: &ApprovalAnswer) -> bool {
        let mut state = self.state();
        let fits = state.open.get(&answer.approval_id).is_some_and(|open| {
            open.session == answer.session_id && open.call_hash == answer.call_hash
        });
        let open = if fits { state.open.remove(&answer.approval_id) } else { None };
        drop(state);
        let taken = open.is_some_and(|open| open.answer.send(answer.decision).is_ok());
        if !taken {
            warn!(approval_id = %answer.approval_id, "an answer to no question that stands");
        }
        taken
    }

    /// A turn begins, whose person hears questions from `progress` until the seat is dropped.
    pub(crate) fn seat(
        self: &Arc<Self>,
        session: &SessionId,
        origin: &TurnOrigin,
        progress: &ProgressSink,
    ) -> Seat {
        let mut state = self.state();
        let listener = match (&origin.asking, origin.entry) {
            (Some(asking), _) => state.listeners.get(&asking.session).cloned(),
            (None, EntryPoint::UserTurn | EntryPoint::Feedback) => {
                Some(Listener { person: session.clone(), progress: progress.clone() })
            }
            // Nobody sits there.
            _ => None,
        };
        if let Some(listener) = listener {
            state.listeners.insert(session.clone(), listener);
        }
        drop(state);
        Seat { approvals: self.clone(), session: session.clone() }
    }

    /// A conversation ended.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.state().allowed.remove(session);
    }

    async fn ask(&self, question: ApprovalRequest<'_>) -> Verdict {
        let call_hash = hash(&question);
        let tool = (question.name.to_owned(), question.fingerprint.to_owned());
        let approval_id = ApprovalId::generate();
        let (answer, answered) = oneshot::channel();
        let listener = {
            let mut state = self.state();
            let Some(listener) = state.listeners.get(&question.context.session_id).cloned() else {
                return refuse("a person must approve this call, and nobody is there to ask");
            };
            let allowed = state.allowed.get(&listener.person);
            if allowed.is_some_and(|tools| tools.contains(&tool)) {
                return Verdict::Allow;
            }
            if state.open.len() >= MOST_OPEN {
                return refuse("too many calls wait for a person's approval; call again later");
            }
            let (session, call_hash) = (listener.person.clone(), call_hash.clone());
            state.open.insert(approval_id.clone(), Open { session, call_hash, answer });
            listener
        };
        // However this ends, the question does not stand any longer.
        let _stands = Stands { approvals: self, id: &approval_id };
        let expiry = self.section.expiry;
        info!(%approval_id, tool = %question.name, "asking a person about a call");
        (listener.progress)(asked(&question, approval_id.clone(), call_hash, expiry));
        let decision = timeout(expiry, answered).await;
        info!(%approval_id, ?decision, "a person was asked about a call");
        match decision {
            Ok(Ok(ApprovalDecision::Allow)) => Verdict::Allow,
            Ok(Ok(ApprovalDecision::AllowInSession)) => {
                self.state().allowed.entry(listener.person).or_default().insert(tool);
                Verdict::Allow
            }
            Ok(_) => refuse("the user refused this call; do not try it again unasked"),
            Err(_) => refuse("nobody approved this call in time; do not try it again unasked"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approver for Approvals {
    fn decide<'a>(&'a self, question: ApprovalRequest<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let ApprovalRequest { context, name, source, hints, .. } = question;
            let mut policy = self.section.policy_for(name, source, hints);
            // What a rule says of the tool that calls by name holds for all that it calls.
            if &*context.tool_name == GATEWAY && name != GATEWAY {
                let gateway = self.section.named(GATEWAY, &ToolSource::McpManagement, hints);
                policy = policy.max(gateway.unwrap_or_default());
            }
            match policy {
                ApprovalPolicy::Allow => Verdict::Allow,
                ApprovalPolicy::Ask if *source == ToolSource::McpManagement && name == GATEWAY => {
                    Verdict::Allow
                }
                ApprovalPolicy::Ask => self.ask(question).await,
                ApprovalPolicy::Deny => refuse("the operator of this agent forbids this call"),
            }
        })
    }
}

fn refuse(reason: &str) -> Verdict {
    Verdict::Refuse { reason: reason.to_owned() }
}

/// Of all that a person decides about.
fn hash(question: &ApprovalRequest<'_>) -> String {
    let ApprovalRequest { context, name, source, fingerprint, arguments, .. } = question;
    let mut hash = Sha256::new();
    let (source, arguments) = (source.to_string(), arguments.to_string());
    let call = context.tool_call_id.as_str();
    for part in [call, name, source.as_str(), fingerprint, arguments.as_str()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn asked(
    question: &ApprovalRequest<'_>,
    approval_id: ApprovalId,
    call_hash: String,
    expiry: Duration,
) -> TurnEvent {
    let mut arguments = question.arguments.to_string();
    let shown = arguments.floor_char_boundary(MOST_SHOWN);
    let left_out = arguments.len() - shown;
    arguments.truncate(shown);
    TurnEvent::ApprovalAsked {
        approval_id,
        asking_agent: question.context.agent.clone(),
        tool_call_id: question.context.tool_call_id.clone(),
        tool_name: question.name.to_owned(),
        tool_source: question.source.to_string(),
        arguments,
        arguments_left_out: left_out,
        call_hash,
        expiry,
    }
}

/// A turn whose person can be asked.
pub(crate) struct Seat {
    approvals: Arc<Approvals>,
    session: SessionId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.approvals.state().listeners.remove(&self.session);
    }
}

/// A question that stands.
struct Stands<'a> {
    approvals: &'a Approvals,
    id: &'a ApprovalId,
}

impl Drop for Stands<'_> {
    fn drop(&mut self) {
        self.approvals.state().open.remove(self.id);
    }
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approvals").field("section", &self.section).finish_non_exhaustive()
    }
}
