//! Messages without an answer, and their approval requests.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
};

use rockbot_contracts::{
    AgentName, ApprovalAnswer, ApprovalId, InputAnswer, InputId, InputRequest, MessageId, SessionId,
};

use super::{event::EventBody, hub::Position};
use crate::{api::problem::Problem, clock::now_ms, decision::parse_decision};

/// Largest number of messages without an answer. The client of the agents has the same limit.
const MAX_OPEN: usize = 1024;
/// Number of answered messages and closed approval requests that are remembered.
const MAX_REMEMBERED: usize = 4096;

/// Largest number of conversations whose agent is remembered.
const MAX_CONVERSATIONS: usize = 4096;

/// The messages without an answer, and those that were answered recently.
#[derive(Default)]
pub(super) struct OpenTurns {
    open: HashMap<MessageId, OpenTurn>,
    /// Work that agents delegated and whose calls wait for a decision.
    further: HashMap<MessageId, OpenTurn>,
    /// The conversations that this process sent messages to.
    agents: HashMap<SessionId, AgentName>,
    answered: Remembered<MessageId>,
    closed: Remembered<ApprovalId>,
}

/// A message without an answer.
struct OpenTurn {
    session: SessionId,
    /// The position before its first event; `None` if this process missed its beginning.
    start: Option<Position>,
    /// It was added to the turn of another message.
    steers: bool,
    approvals: HashMap<ApprovalId, OpenApproval>,
    inputs: HashMap<InputId, OpenInput>,
}

impl OpenTurn {
    fn new(session: SessionId, start: Option<Position>) -> Self {
        Self { session, start, steers: false, approvals: HashMap::new(), inputs: HashMap::new() }
    }

    /// Returns whether an approval request has not expired.
    fn waits_at(&self, now_ms: u64) -> bool {
        self.approvals.values().any(|approval| approval.expires_at_ms > now_ms)
    }
}

/// A request for input that was not closed.
struct OpenInput {
    request: InputRequest,
    expires_at_ms: u64,
}

/// An approval request that was not closed.
struct OpenApproval {
    call_hash: String,
    expires_at_ms: u64,
    /// Name of the person who decided, until the agent confirms it.
    decided_by: Option<Arc<str>>,
}

impl OpenTurns {
    /// Follows approval requests, and adds the person who decided.
    pub(super) fn record(&mut self, message: &MessageId, mut body: EventBody) -> EventBody {
        let turn = self.open.get_mut(message).or_else(|| self.further.get_mut(message));
        let Some(turn) = turn else { return body };
        match &mut body {
            EventBody::ApprovalAsked { approval_id, call_hash, expires_at_ms, .. } => {
                if let Ok(id) = ApprovalId::new(approval_id.as_str()) {
                    let (call_hash, expires_at_ms) = (call_hash.clone(), *expires_at_ms);
                    let known = turn.approvals.get(&id);
                    let decided_by = known.and_then(|known| known.decided_by.clone());
                    let approval = OpenApproval { call_hash, expires_at_ms, decided_by };
                    turn.approvals.insert(id, approval);
                }
            }
            EventBody::ApprovalClosed { approval_id, decision, by } => {
                if let Ok(id) = ApprovalId::new(approval_id.as_str()) {
                    let approval = turn.approvals.remove(&id);
                    let is_decision = parse_decision(decision).is_some();
                    let person = approval.and_then(|approval| approval.decided_by);
                    *by = person.filter(|_| is_decision).map(|person| person.to_string());
                    self.closed.insert(id);
                }
            }
            EventBody::InputAsked { input_id, request, expires_at_ms, .. } => {
                if let Ok(id) = InputId::new(input_id.as_str()) {
                    // A process that ended has not closed its own.
                    turn.inputs.retain(|_, input| input.expires_at_ms > now_ms());
                    let (request, expires_at_ms) = (request.as_ref().clone(), *expires_at_ms);
                    turn.inputs.insert(id, OpenInput { request, expires_at_ms });
                }
            }
            EventBody::InputClosed { input_id, .. } => {
                if let Ok(id) = InputId::new(input_id.as_str()) {
                    turn.inputs.remove(&id);
                }
            }
            EventBody::Steered {} => turn.steers = true,
            _ => {}
        }
        body
    }

    /// Follows approval requests of work that an agent delegated, until it ends.
    pub(super) fn record_further(
        &mut self,
        work: &MessageId,
        session: &SessionId,
        body: EventBody,
    ) -> EventBody {
        match &body {
            EventBody::ApprovalAsked { .. } => {
                if self.further.len() >= MAX_OPEN {
                    let now = now_ms();
                    self.further.retain(|_, turn| turn.waits_at(now));
                }
                if self.further.len() < MAX_OPEN {
                    let turn = || OpenTurn::new(session.clone(), None);
                    self.further.entry(work.clone()).or_insert_with(turn);
                }
            }
            EventBody::DelegationEnded { .. } => {
                let turn = self.further.remove(work);
                for (id, _) in turn.into_iter().flat_map(|turn| turn.approvals) {
                    self.closed.insert(id);
                }
            }
            _ => {}
        }
        self.record(work, body)
    }

    /// Remembers the agent of a conversation.
    pub(super) fn talk(&mut self, session: &SessionId, agent: &AgentName) {
        if self.agents.len() >= MAX_CONVERSATIONS {
            let open: HashSet<_> = self.open.values().map(|turn| &turn.session).collect();
            self.agents.retain(|session, _| open.contains(session));
        }
        self.agents.insert(session.clone(), agent.clone());
    }

    /// Returns whether this process sent messages to the conversation, and the agent is its agent.
    pub(super) fn is_conversation_of(&self, session: &SessionId, agent: &AgentName) -> bool {
        self.agents.get(session) == Some(agent)
    }

    /// Returns whether the message was added to a turn whose replies arrive here.
    pub(super) fn is_added(&self, message: &MessageId) -> bool {
        let Some(turn) = self.open.get(message) else { return false };
        self.open
            .iter()
            .any(|(id, other)| id != message && other.session == turn.session && !other.steers)
    }

    pub(super) fn end(&mut self, message: &MessageId, is_answered: bool) {
        let turn = self.open.remove(message);
        for (id, _) in turn.into_iter().flat_map(|turn| turn.approvals) {
            self.closed.insert(id);
        }
        if is_answered {
            self.answered.insert(message.clone());
        }
    }

    /// Checks that a decision is on an open approval request of the conversation.
    pub(super) fn check_approval(
        &self,
        session: &SessionId,
        answer: &ApprovalAnswer,
    ) -> Result<(), Problem> {
        if self.closed.contains(&answer.approval_id) {
            let detail = "the approval request is closed; see its event approval_closed";
            return Err(Problem::conflict("approval_closed", detail));
        }
        let turns = self.open.values().chain(self.further.values());
        let mut turns = turns.filter(|turn| turn.session == *session);
        let approval = turns.find_map(|turn| turn.approvals.get(&answer.approval_id));
        let Some(approval) = approval else {
            let detail = "no such approval request is open; it may have expired";
            return Err(Problem::not_found(detail));
        };
        if approval.expires_at_ms <= now_ms() {
            let detail = "the approval request expired, which denied the call";
            return Err(Problem::conflict("approval_closed", detail));
        }
        if approval.call_hash != answer.call_hash {
            let detail = "callHash is not that of the approval request; show the request again";
            return Err(Problem::conflict("hash_mismatch", detail));
        }
        Ok(())
    }

    /// Checks that a response is one to an open request for input of the conversation.
    pub(super) fn check_input(
        &self,
        session: &SessionId,
        answer: &InputAnswer,
    ) -> Result<(), Problem> {
        let mut turns = self.open.values().filter(|turn| turn.session == *session);
        let input = turns.find_map(|turn| turn.inputs.get(&answer.input_id));
        let input = input.filter(|input| input.expires_at_ms > now_ms()).ok_or_else(|| {
            Problem::not_found("no such request for input is open; it may be answered or expired")
        })?;
        input.request.check(&answer.response).map_err(Problem::invalid)
    }

    /// Adds a message without an answer. Returns `false` if there are too many.
    pub(super) fn add(
        &mut self,
        message: &MessageId,
        session: &SessionId,
        start: Option<Position>,
    ) -> bool {
        if self.open.len() >= MAX_OPEN {
            return false;
        }
        self.open.insert(message.clone(), OpenTurn::new(session.clone(), start));
        true
    }

    /// Removes a message that was not sent.
    pub(super) fn remove(&mut self, message: &MessageId) {
        self.open.remove(message);
    }

    /// Returns whether a message has no answer yet, or was answered recently.
    pub(super) fn knows(&self, message: &MessageId) -> bool {
        self.open.contains_key(message) || self.answered.contains(message)
    }

    /// Returns the messages of a conversation without an answer, each with the position before its first event
    /// unless this process missed it.
    pub(super) fn running(&self, session: &SessionId) -> Vec<(MessageId, Option<Position>)> {
        let open = self.open.iter().filter(|(_, turn)| turn.session == *session);
        open.map(|(id, turn)| (id.clone(), turn.start)).collect()
    }

    /// Returns the number of open approval requests of a conversation.
    pub(super) fn approvals(&self, session: &SessionId) -> usize {
        let turns = self.open.values().chain(self.further.values());
        let turns = turns.filter(|turn| turn.session == *session);
        turns.map(|turn| turn.approvals.len()).sum()
    }

    /// Names the person who decided on an approval request. The first one counts, as for the agent.
    pub(super) fn decided(&mut self, id: &ApprovalId, person: &Arc<str>) {
        let mut turns = self.open.values_mut().chain(self.further.values_mut());
        let approval = turns.find_map(|turn| turn.approvals.get_mut(id));
        if let Some(approval) = approval {
            approval.decided_by.get_or_insert_with(|| person.clone());
        }
    }

    /// Takes back that a person decided, whose decision was not sent.
    pub(super) fn undecided(&mut self, id: &ApprovalId, person: &Arc<str>) {
        let mut turns = self.open.values_mut().chain(self.further.values_mut());
        let approval = turns.find_map(|turn| turn.approvals.get_mut(id));
        if let Some(approval) = approval {
            approval.decided_by.take_if(|decided| Arc::ptr_eq(decided, person));
        }
    }
}

/// The last values of a kind.
struct Remembered<T> {
    values: HashSet<T>,
    order: VecDeque<T>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Clone + Eq + Hash> Remembered<T> {
    fn insert(&mut self, value: T) {
        if !self.values.insert(value.clone()) {
            return;
        }
        self.order.push_back(value);
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
    }

    fn contains(&self, value: &T) -> bool {
        self.values.contains(value)
    }
}
