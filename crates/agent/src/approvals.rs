//! User approval of tool calls, by the rules of an operator.

mod retained_decisions;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    future::pending,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    AgentName, ApprovalAnswer, ApprovalDecision, ApprovalId, ApprovalOutcome, InputAnswer, InputId,
    SessionId, ToolCallId,
};
use rockbot_tools::{
    ApprovalPolicy, ApprovalRequest, ApprovalSection, Approver, EntryPoint, ToolSource, UserInput,
    Verdict,
};
use sha2::{Digest, Sha256};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tracing::{info, warn};

pub(crate) use self::retained_decisions::RetainedDecisions;
use crate::{
    conversation::{RecordedApproval, RecordedOutcome, TurnApprovals},
    event::{ProgressSink, TurnEvent},
    origin::TurnOrigin,
    tool_names::MCP_INVOKE_TOOL,
    user_input::{CallUser, OpenInputs},
};

/// Maximum number of open requests. Further calls are denied.
const MAX_OPEN: usize = 256;
/// Maximum number of responses that are kept for requests of other processes.
const MAX_EARLY: usize = 256;
/// Maximum size of the arguments in a request, in bytes.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024;

/// Requests approval of tool calls from users. The agents of one process share it.
///
/// A request is for one call with exactly these arguments in one conversation. It is open until it is
/// answered or expires. A response counts once, and only for the call that it names. A response to a request
/// that is not open here is kept until it would expire: this process may continue the turn of a process that
/// died, and open the request again.
pub struct Approvals {
    section: ApprovalSection,
    state: Mutex<State>,
    inputs: Arc<OpenInputs>,
    /// Decisions that other processes recorded; empty if the agent has no inbox.
    retained: OnceLock<RetainedDecisions>,
}

#[derive(Default)]
struct State {
    open: HashMap<ApprovalId, PendingApproval>,
    /// Responses to requests that are not open here, oldest first.
    early: VecDeque<EarlyAnswer>,
    /// Receivers of requests, by the session id of the running turn.
    listeners: HashMap<SessionId, Listener>,
    /// Tools and fingerprints that a user allowed for a whole conversation.
    allowed: HashMap<SessionId, HashSet<(String, String)>>,
}

struct PendingApproval {
    session: SessionId,
    call_hash: String,
    expires: Instant,
    answer: oneshot::Sender<Decided>,
}

/// A user's decision, with the reason of a denial.
struct Decided {
    decision: ApprovalDecision,
    reason: Option<String>,
}

impl From<&ApprovalAnswer> for Decided {
    fn from(answer: &ApprovalAnswer) -> Self {
        let reason = answer.bounded_reason().map(str::to_owned);
        Self { decision: answer.decision, reason }
    }
}

/// A response to a request that is not open in this process.
struct EarlyAnswer {
    answer: ApprovalAnswer,
    expires: Instant,
}

impl State {
    /// Keeps a response for a process that opens its request again, which may be this one.
    fn keep_early(&mut self, answer: &ApprovalAnswer, expiry: Duration) {
        let now = Instant::now();
        self.early.retain(|early| early.expires > now);
        if !answer.has_valid_hash() {
            return;
        }
        if self.early.len() >= MAX_EARLY {
            self.early.pop_front();
        }
        self.early.push_back(EarlyAnswer { answer: answer.bounded(), expires: now + expiry });
    }

    /// Takes the response to a request that arrived before the request was opened here.
    fn take_early(
        &mut self,
        approval_id: &ApprovalId,
        session: &SessionId,
        call_hash: &str,
    ) -> Option<Decided> {
        let now = Instant::now();
        let matches = |early: &EarlyAnswer| {
            let ApprovalAnswer { approval_id: id, session_id, call_hash: hash, .. } = &early.answer;
            early.expires > now && id == approval_id && session_id == session && hash == call_hash
        };
        let position = self.early.iter().position(matches)?;
        self.early.remove(position).map(|early| Decided::from(&early.answer))
    }
}

#[derive(Clone)]
struct Listener {
    /// The conversation of the user.
    user_session: SessionId,
    progress: ProgressSink,
    /// The log of the turn.
    log: Arc<TurnApprovals>,
    /// The client of the user shows requests for input.
    accepts_input: bool,
}

impl Approvals {
    /// Creates the backend for these rules. Returns `None` if they allow every call.
    #[must_use]
    pub fn new(section: ApprovalSection) -> Option<Arc<Self>> {
        (!section.allows_all()).then(|| Self::with_input(section))
    }

    /// Creates the backend for these rules, and for the requests of MCP servers for input.
    #[must_use]
    pub fn with_input(section: ApprovalSection) -> Arc<Self> {
        Arc::new(Self {
            section,
            state: Mutex::default(),
            inputs: Arc::default(),
            retained: OnceLock::new(),
        })
    }

    /// Returns `true` if some calls need the approval of a user, or are denied.
    pub(crate) fn has_rules(&self) -> bool {
        !self.section.allows_all()
    }

    /// Accepts a response to a request for input. Returns `true` if it closed an open request: a response
    /// that is not valid for the request, or to a closed one, is ignored.
    pub fn answer_input(&self, answer: &InputAnswer) -> bool {
        self.inputs.answer(answer)
    }

    /// Returns the time until an open request for input expires; `None` if it is closed.
    pub(crate) fn input_remaining(&self, id: &InputId) -> Option<Duration> {
        self.inputs.remaining(id)
    }

    /// Returns the longest time that a user has to respond.
    pub(crate) fn expiry(&self) -> Duration {
        self.section.expiry
    }

    /// Returns the user of a call of the turn in `session`; `None` if no user of the turn can respond to
    /// requests for input.
    pub(crate) fn user_of(
        &self,
        session: &SessionId,
        call: &ToolCallId,
        agent: &AgentName,
    ) -> Option<Arc<dyn UserInput>> {
        let state = self.state();
        let listener = state.listeners.get(session).filter(|listener| listener.accepts_input)?;
        Some(Arc::new(CallUser {
            inputs: self.inputs.clone(),
            session: listener.user_session.clone(),
            progress: listener.progress.clone(),
            agent: agent.clone(),
            call: call.clone(),
            expiry: self.section.expiry,
        }))
    }

    /// Accepts a response. Returns `true` if it closed an open request: a response with another call hash
    /// or session, or to a closed request, is ignored.
    pub fn answer(&self, answer: &ApprovalAnswer) -> bool {
        let mut state = self.state();
        let matches = state.open.get(&answer.approval_id).is_some_and(|open| {
            open.session == answer.session_id && open.call_hash == answer.call_hash
        });
        if !state.open.contains_key(&answer.approval_id) {
            state.keep_early(answer, self.section.expiry);
        }
        let open = if matches { state.open.remove(&answer.approval_id) } else { None };
        drop(state);
        let accepted = open.is_some_and(|open| open.answer.send(answer.into()).is_ok());
        if !accepted {
            warn!(approval_id = %answer.approval_id, "approval response for an unknown or closed request");
        }
        accepted
    }

    /// Sets where decisions are that arrived at other processes, or while there was none.
    pub(crate) fn set_retained(&self, decisions: RetainedDecisions) {
        self.retained.get_or_init(|| decisions);
    }

    /// Registers a turn. Requests of the turn are recorded in `log` and go to `progress` until the guard is
    /// dropped.
    pub(crate) fn listen(
        self: &Arc<Self>,
        session: &SessionId,
        origin: &TurnOrigin,
        progress: &ProgressSink,
        log: Arc<TurnApprovals>,
    ) -> ListenerGuard {
        let mut state = self.state();
        let listener = match (&origin.parent, origin.entry) {
            _ if origin.work.is_some() => origin.work.as_ref().and_then(|work| {
                let (user_session, progress) = (work.root.clone(), work.requests.clone()?);
                // The user may have left since the work was delegated.
                Some(Listener { user_session, progress, log, accepts_input: false })
            }),
            (Some(parent), _) => {
                let parents = state.listeners.get(&parent.session).cloned();
                parents.map(|listener| Listener { log, ..listener })
            }
            (None, EntryPoint::UserTurn) => {
                let (user_session, progress) = (session.clone(), progress.clone());
                let accepts_input = origin.accepts_input;
                Some(Listener { user_session, progress, log, accepts_input })
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

    /// Replaces the permissions of a conversation: tools and fingerprints that its user allowed.
    pub(crate) fn restore(&self, session: &SessionId, allowed: HashSet<(String, String)>) {
        let mut state = self.state();
        if allowed.is_empty() {
            state.allowed.remove(session);
        } else {
            state.allowed.insert(session.clone(), allowed);
        }
    }

    /// Returns the time until an open request expires; `None` if it is closed.
    pub(crate) fn remaining(&self, id: &ApprovalId) -> Option<Duration> {
        let state = self.state();
        state.open.get(id).map(|open| open.expires.saturating_duration_since(Instant::now()))
    }

    /// Returns the permissions of a conversation.
    pub(crate) fn allowed(&self, session: &SessionId) -> Vec<(String, String)> {
        let state = self.state();
        state.allowed.get(session).into_iter().flatten().cloned().collect()
    }

    /// Drops the permissions of a conversation that ended.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.state().allowed.remove(session);
    }

    /// Allows a call for which no approval is needed. If an earlier process requested one, by other rules, the log gets
    /// the decision: without it, a later process takes the call for one that did not run.
    async fn allow(&self, question: &ApprovalRequest<'_>) -> Verdict {
        let listener = self.state().listeners.get(&question.context.session_id).cloned();
        let Some(listener) = listener.filter(|listener| listener.log.has_recorded()) else {
            return Verdict::Allow;
        };
        match listener.log.recorded(&hash(question)) {
            Some(RecordedApproval { id, outcome: RecordedOutcome::Open, .. }) => {
                match listener.log.decide(id, Some(ApprovalDecision::Allow), None).await {
                    Ok(()) => Verdict::Allow,
                    Err(_) => unrecorded(),
                }
            }
            _ => Verdict::Allow,
        }
    }

    async fn request(&self, question: ApprovalRequest<'_>, rule: String) -> Verdict {
        let call_hash = hash(&question);
        let tool = (question.name.to_owned(), question.fingerprint.to_owned());
        let Some(listener) = self.state().listeners.get(&question.context.session_id).cloned()
        else {
            return deny(
                "this call needs the approval of a user, but no user takes part in this turn",
            );
        };
        let is_allowed = self.is_allowed(&listener.user_session, &tool);
        // The decision on a request that an earlier process made precedes the permission.
        if is_allowed && listener.log.recorded(&call_hash).is_none() {
            return Verdict::Allow;
        }
        if !is_allowed && self.state().open.len() >= MAX_OPEN {
            return deny("too many calls are waiting for approval; try again later");
        }
        let asked = listener.log.ask(&question.context.tool_call_id, &call_hash).await;
        let Ok((approval_id, recorded)) = asked else { return unrecorded() };
        match recorded {
            None | Some(RecordedOutcome::Open) => {}
            Some(RecordedOutcome::Expired) => return verdict(None, None),
            Some(RecordedOutcome::Decided(decision)) => return verdict(Some(decision), None),
        }
        let session = &listener.user_session;
        let given = match (&recorded, self.retained.get()) {
            // An earlier process made the request.
            (Some(_), Some(retained)) => retained.find(&approval_id, session, &call_hash).await,
            _ => None,
        };
        let decided = match given {
            Some(given) => Some(Decided::from(&given)),
            None if is_allowed => Some(Decided { decision: ApprovalDecision::Allow, reason: None }),
            None => {
                let id = approval_id.clone();
                let call_hash = call_hash.clone();
                let shown = approval_event(&question, id, call_hash, &self.section, rule);
                self.wait_for_user(shown, &question, &listener, &approval_id).await
            }
        };
        let (decision, reason) = match decided {
            Some(Decided { decision, reason }) => (Some(decision), reason),
            None => (None, None),
        };
        let allowed = (decision == Some(ApprovalDecision::AllowInSession)).then_some(tool);
        let logged = listener.log.decide(approval_id.clone(), decision, allowed.clone()).await;
        if logged.is_err() {
            return unrecorded();
        }
        // The log has the outcome: a process that continues the turn needs no other record of it.
        if let Some(retained) = self.retained.get() {
            retained.remove(approval_id, &listener.user_session, &call_hash);
        }
        if let Some(tool) = allowed {
            self.state().allowed.entry(listener.user_session).or_default().insert(tool);
        }
        verdict(decision, reason.as_deref())
    }

    /// Shows a request to the user and waits for the decision; `None` if it expires. A response that arrived before this
    /// process opened the request counts. Before an allowance takes effect, and when the request expires, the store is
    /// read: a decision that was recorded before counts.
    async fn wait_for_user(
        &self,
        shown: ShownRequest,
        question: &ApprovalRequest<'_>,
        listener: &Listener,
        approval_id: &ApprovalId,
    ) -> Option<Decided> {
        let ShownRequest { event, call_hash } = shown;
        let (answer, answered) = oneshot::channel();
        let session = listener.user_session.clone();
        let expiry = self.section.expiry;
        {
            let mut state = self.state();
            if let Some(decided) = state.take_early(approval_id, &session, &call_hash) {
                return Some(decided);
            }
            let expires = Instant::now() + expiry;
            let (session, call_hash) = (session.clone(), call_hash.clone());
            let request = PendingApproval { session, call_hash, expires, answer };
            state.open.insert(approval_id.clone(), request);
        }
        let progress = &listener.progress;
        let outcome = ApprovalOutcome::Cancelled;
        let mut guard = OpenGuard { approvals: self, id: approval_id, progress, outcome };
        info!(%approval_id, tool = %question.name, "approval requested");
        progress(event);
        let denied = Decided { decision: ApprovalDecision::Deny, reason: None };
        let retained = async {
            match self.retained.get() {
                Some(retained) => retained.wait_for(approval_id, &session, &call_hash).await,
                None => pending().await,
            }
        };
        let decided = async {
            tokio::select! {
                biased;
                decided = answered => decided.unwrap_or(denied),
                given = retained => Decided::from(&given),
            }
        };
        let direct = timeout(expiry, decided).await.ok();
        let decided = self.first_decision(direct, approval_id, &session, &call_hash).await;
        let decision = decided.as_ref().map(|decided| decided.decision);
        guard.outcome = decision.map_or(ApprovalOutcome::Expired, Into::into);
        info!(%approval_id, ?decision, "approval request closed");
        decided
    }

    /// Returns the recorded decision on a request if there is one, and otherwise `direct`, which came to this process;
    /// `None` if the request expired. A denial counts at once.
    async fn first_decision(
        &self,
        direct: Option<Decided>,
        approval_id: &ApprovalId,
        session: &SessionId,
        call_hash: &str,
    ) -> Option<Decided> {
        let is_denied =
            direct.as_ref().is_some_and(|direct| direct.decision == ApprovalDecision::Deny);
        let recorded = match self.retained.get() {
            Some(retained) if !is_denied => retained.find(approval_id, session, call_hash).await,
            _ => None,
        };
        recorded.as_ref().map(Decided::from).or(direct)
    }

    fn is_allowed(&self, session: &SessionId, tool: &(String, String)) -> bool {
        self.state().allowed.get(session).is_some_and(|tools| tools.contains(tool))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Approver for Approvals {
    fn decide<'a>(&'a self, question: ApprovalRequest<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let ApprovalRequest { context, name, source, hints, announced_for, .. } = question;
            let hints = self.section.hints(hints, announced_for);
            let mut policy = self.section.policy_for(name, source, hints);
            let mut rule = self.section.describe_policy_for(name, source, hints);
            // The policy of the gateway also applies to the tools that it calls.
            if &*context.tool_name == MCP_INVOKE_TOOL && name != MCP_INVOKE_TOOL {
                let management = &ToolSource::McpManagement;
                let gateway =
                    self.section.named(MCP_INVOKE_TOOL, management, hints).unwrap_or_default();
                if gateway > policy {
                    policy = gateway;
                    rule = self.section.describe_policy_for(MCP_INVOKE_TOOL, management, hints);
                }
            }
            match policy {
                ApprovalPolicy::Allow => self.allow(&question).await,
                ApprovalPolicy::Ask
                    if *source == ToolSource::McpManagement && name == MCP_INVOKE_TOOL =>
                {
                    // Approval is requested for the tool that it calls.
                    Verdict::Allow
                }
                ApprovalPolicy::Ask => self.request(question, rule).await,
                ApprovalPolicy::Deny => deny("this call is denied by the policy of the operator"),
            }
        })
    }
}

fn verdict(decision: Option<ApprovalDecision>, reason: Option<&str>) -> Verdict {
    match (decision, reason) {
        (Some(ApprovalDecision::Allow | ApprovalDecision::AllowInSession), _) => Verdict::Allow,
        (Some(_), Some(reason)) => deny(&format!(
            "the user denied this call; do not repeat it without being asked. Their reason: {reason}"
        )),
        (Some(_), None) => deny("the user denied this call; do not repeat it without being asked"),
        (None, _) => {
            deny("this call was not approved in time; do not repeat it without being asked")
        }
    }
}

fn unrecorded() -> Verdict {
    deny("the approval could not be recorded; try again later")
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

/// An approval request as its user sees it.
struct ShownRequest {
    event: TurnEvent,
    call_hash: String,
}

fn approval_event(
    question: &ApprovalRequest<'_>,
    approval_id: ApprovalId,
    call_hash: String,
    section: &ApprovalSection,
    rule: String,
) -> ShownRequest {
    let mut arguments = question.arguments.to_string();
    let shown = arguments.floor_char_boundary(MAX_ARGUMENT_BYTES);
    let omitted = arguments.len() - shown;
    arguments.truncate(shown);
    let event = TurnEvent::ApprovalAsked {
        approval_id,
        asking_agent: question.context.agent.clone(),
        tool_call_id: question.context.tool_call_id.clone(),
        tool_name: question.name.to_owned(),
        tool_source: question.source.to_string(),
        arguments,
        arguments_left_out: omitted,
        call_hash: call_hash.clone(),
        expiry: section.expiry,
        hints: section.hints(question.hints, question.announced_for),
        rule,
    };
    ShownRequest { event, call_hash }
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

/// Closes a request when it is dropped, and reports how.
struct OpenGuard<'a> {
    approvals: &'a Approvals,
    id: &'a ApprovalId,
    progress: &'a ProgressSink,
    outcome: ApprovalOutcome,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.approvals.state().open.remove(self.id);
        let (approval_id, decision) = (self.id.clone(), self.outcome);
        (self.progress)(TurnEvent::ApprovalClosed { approval_id, decision });
    }
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approvals").field("section", &self.section).finish_non_exhaustive()
    }
}
