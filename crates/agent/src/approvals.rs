//! User approval of tool calls, by the rules of an operator.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

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

/// Maximum number of open requests. Further calls are denied.
const MAX_OPEN: usize = 256;
/// Maximum size of the arguments in a request, in bytes.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024;
/// The tool that calls MCP tools by name. Approval is requested for the tool that it calls.
const GATEWAY: &str = "mcp_invoke_tool";

/// Requests approval of tool calls from users. The agents of one process share it.
///
/// A request is for one call with exactly these arguments in one conversation. It is open until it is
/// answered or expires. A response counts once, and only for the call that it names.
pub struct Approvals {
    section: ApprovalSection,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<ApprovalId, PendingApproval>,
    /// Receivers of requests, by the session id of the running turn.
    listeners: HashMap<SessionId, Listener>,
    /// Tools and fingerprints that a user allowed for a whole conversation.
    allowed: HashMap<SessionId, HashSet<(String, String)>>,
}

struct PendingApproval {
    session: SessionId,
    call_hash: String,
    answer: oneshot::Sender<ApprovalDecision>,
}

#[derive(Clone)]
struct Listener {
    /// The conversation of the user.
    user_session: SessionId,
    progress: ProgressSink,
}

impl Approvals {
    /// Creates the backend for these rules. Returns `None` if they allow every call.
    #[must_use]
    pub fn new(section: ApprovalSection) -> Option<Arc<Self>> {
        (!section.allows_all()).then(|| Arc::new(Self { section, state: Mutex::default() }))
    }

    /// Accepts a response. Returns `true` if it closed an open request: a response with another call hash
    /// or session, or to a closed request, is ignored.
    pub fn answer(&self, answer: &ApprovalAnswer) -> bool {
        let mut state = self.state();
        let matches = state.open.get(&answer.approval_id).is_some_and(|open| {
            open.session == answer.session_id && open.call_hash == answer.call_hash
        });
        let open = if matches { state.open.remove(&answer.approval_id) } else { None };
        drop(state);
        let accepted = open.is_some_and(|open| open.answer.send(answer.decision).is_ok());
        if !accepted {
            warn!(approval_id = %answer.approval_id, "approval response for an unknown or closed request");
        }
        accepted
    }

    /// Registers a turn. Requests of the turn go to `progress` until the guard is dropped.
    pub(crate) fn listen(
        self: &Arc<Self>,
        session: &SessionId,
        origin: &TurnOrigin,
        progress: &ProgressSink,
    ) -> ListenerGuard {
        let mut state = self.state();
        let listener = match (&origin.parent, origin.entry) {
            (Some(parent), _) => state.listeners.get(&parent.session).cloned(),
            (None, EntryPoint::UserTurn | EntryPoint::Feedback) => {
                Some(Listener { user_session: session.clone(), progress: progress.clone() })
            }
            // No user takes part in this turn.
            _ => None,
        };
        if let Some(listener) = listener {
            state.listeners.insert(session.clone(), listener);
        }
        drop(state);
        ListenerGuard { approvals: self.clone(), session: session.clone() }
    }

    /// Drops the permissions of a conversation that ended.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.state().allowed.remove(session);
    }

    async fn request(&self, question: ApprovalRequest<'_>) -> Verdict {
        let call_hash = hash(&question);
        let tool = (question.name.to_owned(), question.fingerprint.to_owned());
        let approval_id = ApprovalId::generate();
        let (answer, answered) = oneshot::channel();
        let listener = {
            let mut state = self.state();
            let Some(listener) = state.listeners.get(&question.context.session_id).cloned() else {
                return deny(
                    "this call needs the approval of a user, but no user takes part in this turn",
                );
            };
            let allowed = state.allowed.get(&listener.user_session);
            if allowed.is_some_and(|tools| tools.contains(&tool)) {
                return Verdict::Allow;
            }
            if state.open.len() >= MAX_OPEN {
                return deny("too many calls are waiting for approval; try again later");
            }
            let (session, call_hash) = (listener.user_session.clone(), call_hash.clone());
            state.open.insert(approval_id.clone(), PendingApproval { session, call_hash, answer });
            listener
        };
        let _guard = OpenGuard { approvals: self, id: &approval_id };
        let expiry = self.section.expiry;
        info!(%approval_id, tool = %question.name, "approval requested");
        (listener.progress)(approval_event(&question, approval_id.clone(), call_hash, expiry));
        let decision = timeout(expiry, answered).await;
        info!(%approval_id, ?decision, "approval request closed");
        match decision {
            Ok(Ok(ApprovalDecision::Allow)) => Verdict::Allow,
            Ok(Ok(ApprovalDecision::AllowInSession)) => {
                self.state().allowed.entry(listener.user_session).or_default().insert(tool);
                Verdict::Allow
            }
            Ok(_) => deny("the user denied this call; do not repeat it without being asked"),
            Err(_) => {
                deny("this call was not approved in time; do not repeat it without being asked")
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Approver for Approvals {
    fn decide<'a>(&'a self, question: ApprovalRequest<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let ApprovalRequest { context, name, source, hints, .. } = question;
            let mut policy = self.section.policy_for(name, source, hints);
            // The policy of the gateway also applies to the tools that it calls.
            if &*context.tool_name == GATEWAY && name != GATEWAY {
                let gateway = self.section.named(GATEWAY, &ToolSource::McpManagement, hints);
                policy = policy.max(gateway.unwrap_or_default());
            }
            match policy {
                ApprovalPolicy::Allow => Verdict::Allow,
                ApprovalPolicy::Ask if *source == ToolSource::McpManagement && name == GATEWAY => {
                    Verdict::Allow
                }
                ApprovalPolicy::Ask => self.request(question).await,
                ApprovalPolicy::Deny => deny("this call is denied by the policy of the operator"),
            }
        })
    }
}

fn deny(reason: &str) -> Verdict {
    Verdict::Refuse { reason: reason.to_owned() }
}

/// Hashes everything that the user decides about.
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

fn approval_event(
    question: &ApprovalRequest<'_>,
    approval_id: ApprovalId,
    call_hash: String,
    expiry: Duration,
) -> TurnEvent {
    let mut arguments = question.arguments.to_string();
    let shown = arguments.floor_char_boundary(MAX_ARGUMENT_BYTES);
    let omitted = arguments.len() - shown;
    arguments.truncate(shown);
    TurnEvent::ApprovalAsked {
        approval_id,
        asking_agent: question.context.agent.clone(),
        tool_call_id: question.context.tool_call_id.clone(),
        tool_name: question.name.to_owned(),
        tool_source: question.source.to_string(),
        arguments,
        arguments_left_out: omitted,
        call_hash,
        expiry,
    }
}

/// Registration of a turn that can request approvals.
pub(crate) struct ListenerGuard {
    approvals: Arc<Approvals>,
    session: SessionId,
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.approvals.state().listeners.remove(&self.session);
    }
}

/// Closes a request when it is dropped.
struct OpenGuard<'a> {
    approvals: &'a Approvals,
    id: &'a ApprovalId,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.approvals.state().open.remove(self.id);
    }
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approvals").field("section", &self.section).finish_non_exhaustive()
    }
}
