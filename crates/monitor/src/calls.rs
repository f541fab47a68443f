//! The observed calls, assembled from their messages. Their number is bounded.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use rockbot_contracts::ToolCallId;

use crate::message::{CallMessage, MessageKind, ProgressInfo, ReplyInfo, RequestInfo, Status};

/// The largest number of calls kept.
pub const MAX_CALLS: usize = 10_000;

/// The time after its deadline in which a reply may still arrive.
const GRACE: Duration = Duration::from_secs(1);

/// An observed call. Times are relative to the start of the watch.
#[derive(Debug, Clone)]
pub struct Call {
    /// The call.
    pub id: ToolCallId,
    /// The tool, once a message named it.
    pub tool: Option<String>,
    /// The calling agent, once a message named it.
    pub agent: Option<String>,
    /// The trace id, once a message had one.
    pub trace: Option<String>,
    /// The arrival of the first message.
    pub first: Duration,
    /// The first request.
    pub request: Option<Timed<RequestInfo>>,
    /// Its progress so far.
    pub progress: Option<Progress>,
    /// The first cancel, with its reason if content was kept.
    pub cancel: Option<Timed<Option<String>>>,
    /// The first reply. Replies to further attempts are the same.
    pub reply: Option<Timed<ReplyInfo>>,
    /// Set when the caller's time budget passed without a reply.
    expired: bool,
}

/// The content of a message, with its arrival and size.
#[derive(Debug, Clone)]
pub struct Timed<T> {
    /// The arrival.
    pub at: Duration,
    /// The size of the body.
    pub bytes: usize,
    /// The content.
    pub value: T,
}

/// The progress messages of a call.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The arrival of the first message.
    pub first: Duration,
    /// The number of messages.
    pub count: u64,
    /// The last message.
    pub last: Timed<ProgressInfo>,
}

/// The observed state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State<'a> {
    /// Requested; it waits or runs without progress.
    Requested,
    /// Progress was observed.
    Running,
    /// Cancelled, without a reply yet.
    Cancelling,
    /// The time budget passed, and no reply was observed.
    NoReply,
    /// Replied with this status.
    Ended(&'a Status),
}

impl State<'_> {
    /// Returns the name of the state; for a call that ended, that of its status.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Requested => "requested",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::NoReply => "no_reply",
            Self::Ended(status) => status.as_str(),
        }
    }

    /// Returns whether a reply may still arrive.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Requested | Self::Running | Self::Cancelling)
    }

    /// Returns whether the call ended without success.
    pub fn is_failed(&self) -> bool {
        !self.is_live() && *self != Self::Ended(&Status::Ok)
    }
}

impl Call {
    fn new(id: ToolCallId, at: Duration) -> Self {
        Self {
            id,
            tool: None,
            agent: None,
            trace: None,
            first: at,
            request: None,
            progress: None,
            cancel: None,
            reply: None,
            expired: false,
        }
    }

    /// Returns the state.
    pub fn state(&self) -> State<'_> {
        match &self.reply {
            Some(reply) => State::Ended(&reply.value.status),
            None if self.expired => State::NoReply,
            None if self.cancel.is_some() => State::Cancelling,
            None if self.progress.is_some() => State::Running,
            None => State::Requested,
        }
    }

    /// Returns the handler that runs or ran the call.
    pub fn handler(&self) -> Option<&str> {
        let replied = self.reply.as_ref().and_then(|reply| reply.value.handler.as_deref());
        let progress = || self.progress.as_ref()?.last.value.handler.as_deref();
        replied.or_else(progress)
    }

    /// Returns the time from the request to the reply, if both were observed. It is at least the run time
    /// that the handler reports: a busy watch may receive both messages at once.
    pub fn latency(&self) -> Option<Duration> {
        let reply = self.reply.as_ref()?;
        let observed = reply.at.checked_sub(self.request.as_ref()?.at)?;
        Some(observed.max(reply.value.run_time.unwrap_or_default()))
    }

    /// Returns the server of an MCP tool.
    pub fn server(&self) -> Option<&str> {
        self.request.as_ref()?.value.server.as_deref()
    }

    fn record(&mut self, message: CallMessage, at: Duration) {
        let CallMessage { tool, agent, trace, bytes, kind, .. } = message;
        // The request is the best source for the caller.
        let is_request = matches!(kind, MessageKind::Request(_));
        if agent.is_some() && (is_request || self.agent.is_none()) {
            self.agent = agent;
        }
        self.tool = self.tool.take().or(tool);
        self.trace = self.trace.take().or(trace);
        match kind {
            MessageKind::Request(value) => match &mut self.request {
                Some(request) => request.value.attempt = request.value.attempt.max(value.attempt),
                None => self.request = Some(Timed { at, bytes, value }),
            },
            MessageKind::Progress(value) => {
                let last = Timed { at, bytes, value };
                let (first, count) =
                    self.progress.as_ref().map_or((at, 0), |known| (known.first, known.count));
                self.progress = Some(Progress { first, count: count + 1, last });
            }
            MessageKind::Cancel { reason } => {
                self.cancel.get_or_insert(Timed { at, bytes, value: reason });
            }
            MessageKind::Reply(value) => {
                self.reply.get_or_insert(Timed { at, bytes, value });
            }
        }
    }

    /// Returns the time after which no reply is expected.
    fn expires_at(&self) -> Option<Duration> {
        let request = self.request.as_ref()?;
        Some(request.at.saturating_add(request.value.budget?).saturating_add(GRACE))
    }
}

/// The kept calls, in the order of their first messages.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    by_number: BTreeMap<u64, Call>,
    numbers: HashMap<ToolCallId, u64>,
    /// The calls with a reply, in the order of their replies: they are evicted first.
    ended: VecDeque<u64>,
    total: u64,
    failed: u64,
    replied: u64,
}

/// The numbers of calls since the start of the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Calls.
    pub calls: u64,
    /// Calls with a reply.
    pub replied: u64,
    /// Calls with a reply that is no success.
    pub failed: u64,
}

impl Calls {
    /// Records a message. Returns `None` for the cancel of an unknown call, which is ignored.
    pub fn record(&mut self, message: CallMessage, at: Duration) -> Option<&Call> {
        let number = match self.numbers.get(&message.call) {
            Some(number) => *number,
            None if matches!(message.kind, MessageKind::Cancel { .. }) => return None,
            None => self.insert(&message.call, at),
        };
        let call = self.by_number.get_mut(&number)?;
        let was_open = call.reply.is_none();
        call.record(message, at);
        if was_open && call.reply.is_some() {
            self.ended.push_back(number);
            self.replied += 1;
            self.failed += u64::from(call.state().is_failed());
        }
        self.by_number.get(&number)
    }

    fn insert(&mut self, id: &ToolCallId, at: Duration) -> u64 {
        if self.by_number.len() >= MAX_CALLS {
            self.evict_one();
        }
        let number = self.total;
        self.total += 1;
        self.by_number.insert(number, Call::new(id.clone(), at));
        self.numbers.insert(id.clone(), number);
        number
    }

    /// Evicts the call with the oldest reply; when all are open, the oldest call.
    fn evict_one(&mut self) {
        let oldest = || self.by_number.first_key_value().map(|(number, _)| *number);
        let number = self.ended.front().copied().or_else(oldest);
        if let Some(call) = number.and_then(|number| self.by_number.remove(&number)) {
            if call.reply.is_some() {
                self.ended.pop_front();
            }
            self.numbers.remove(&call.id);
        }
    }

    /// Marks calls whose time budget has passed as expired, and returns the newly expired ones.
    pub fn expire(&mut self, now: Duration) -> Vec<ToolCallId> {
        let open = self.by_number.values_mut().filter(|call| {
            let due = || call.expires_at().is_some_and(|expiry| expiry <= now);
            call.reply.is_none() && !call.expired && due()
        });
        open.map(|call| {
            call.expired = true;
            call.id.clone()
        })
        .collect()
    }

    /// Returns the kept calls, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Call> {
        self.by_number.values().rev()
    }

    /// Returns a kept call.
    pub fn get(&self, id: &ToolCallId) -> Option<&Call> {
        self.by_number.get(self.numbers.get(id)?)
    }

    /// Returns the numbers of calls since the start.
    pub fn tally(&self) -> Tally {
        Tally { calls: self.total, replied: self.replied, failed: self.failed }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rockbot_contracts::{Executed, ToolErrorCode};

    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    pub(crate) fn message(id: &str, kind: MessageKind) -> CallMessage {
        let tool = (!matches!(kind, MessageKind::Cancel { .. })).then(|| "read_file".to_owned());
        let call = ToolCallId::new(id).unwrap();
        CallMessage {
            call,
            tool,
            agent: Some("assistant".to_owned()),
            trace: None,
            bytes: 100,
            kind,
        }
    }

    pub(crate) fn request(id: &str) -> CallMessage {
        let request = RequestInfo {
            key: "tool.invoke".to_owned(),
            user: None,
            reply_to: None,
            server: None,
            session: Some("s".to_owned()),
            budget: Some(ms(5000)),
            attempt: 1,
            arguments: None,
        };
        message(id, MessageKind::Request(request))
    }

    pub(crate) fn progress(id: &str, sequence: u64) -> CallMessage {
        let handler = Some("tool-handler/h1".to_owned());
        message(id, MessageKind::Progress(ProgressInfo { sequence, handler, text: None }))
    }

    pub(crate) fn reply(id: &str, status: Status) -> CallMessage {
        let reply = ReplyInfo {
            status,
            executed: Executed::Yes,
            handler: Some("tool-handler/h1".to_owned()),
            run_time: Some(ms(7)),
            stages: None,
            result: None,
        };
        message(id, MessageKind::Reply(reply))
    }

    fn cancel(id: &str) -> CallMessage {
        message(id, MessageKind::Cancel { reason: None })
    }

    #[test]
    fn call_is_assembled_from_its_messages() {
        let mut calls = Calls::default();
        let state = |call: Option<&Call>| call.unwrap().state().as_str().to_owned();
        assert_eq!(state(calls.record(request("a"), ms(10))), "requested");
        assert_eq!(state(calls.record(progress("a", 1), ms(20))), "running");
        assert_eq!(state(calls.record(progress("a", 2), ms(30))), "running");
        assert_eq!(state(calls.record(cancel("a"), ms(40))), "cancelling");
        let timeout = Status::Error(ToolErrorCode::Timeout);
        let call = calls.record(reply("a", timeout), ms(52)).unwrap();
        assert_eq!(call.state().as_str(), "timeout");
        assert_eq!((call.latency(), call.handler()), (Some(ms(42)), Some("tool-handler/h1")));
        let progress = call.progress.as_ref().unwrap();
        assert_eq!((progress.first, progress.count, progress.last.at), (ms(20), 2, ms(30)));
        assert_eq!(calls.tally(), Tally { calls: 1, replied: 1, failed: 1 });
    }

    #[test]
    fn repeated_reply_counts_once() {
        let mut calls = Calls::default();
        calls.record(request("a"), ms(0));
        calls.record(reply("a", Status::Ok), ms(5));
        let mut second = request("a");
        let MessageKind::Request(info) = &mut second.kind else { unreachable!() };
        info.attempt = 2;
        calls.record(second, ms(10));
        let call = calls.record(reply("a", Status::Ok), ms(20)).unwrap();
        // The handler reports a run time of 7 ms.
        assert_eq!(call.latency(), Some(ms(7)));
        assert_eq!(call.request.as_ref().unwrap().value.attempt, 2);
        assert_eq!(calls.tally(), Tally { calls: 1, replied: 1, failed: 0 });
    }

    #[test]
    fn call_without_observed_request_has_no_latency() {
        let mut calls = Calls::default();
        assert!(calls.record(cancel("a"), ms(0)).is_none());
        let call = calls.record(reply("a", Status::Ok), ms(5)).unwrap();
        assert_eq!((call.latency(), call.agent.as_deref()), (None, Some("assistant")));
        // The request may arrive through another queue, after the reply.
        let call = calls.record(request("a"), ms(6)).unwrap();
        assert_eq!((call.state().as_str(), call.latency()), ("ok", None));
    }

    #[test]
    fn expired_call_has_no_reply_until_one_arrives() {
        let mut calls = Calls::default();
        calls.record(request("a"), ms(0));
        assert!(calls.expire(ms(5999)).is_empty());
        assert_eq!(calls.expire(ms(6000)), [ToolCallId::new("a").unwrap()]);
        assert!(calls.expire(ms(7000)).is_empty(), "reported once");
        let id = ToolCallId::new("a").unwrap();
        let state = calls.get(&id).unwrap().state();
        assert!(state == State::NoReply && state.is_failed() && !state.is_live());
        let late = calls.record(reply("a", Status::Ok), ms(8000)).unwrap();
        assert_eq!(late.state().as_str(), "ok");
    }

    #[test]
    fn oldest_replied_calls_are_evicted_first() {
        let mut calls = Calls::default();
        let id = |number: usize| format!("call-{number}");
        for number in 0..MAX_CALLS {
            calls.record(request(&id(number)), ms(0));
        }
        for number in [7, 3] {
            calls.record(reply(&id(number), Status::Ok), ms(1));
        }
        for number in MAX_CALLS..MAX_CALLS + 3 {
            calls.record(request(&id(number)), ms(2));
            assert_eq!(calls.by_number.len(), MAX_CALLS);
        }
        let known = |number| calls.get(&ToolCallId::new(id(number)).unwrap()).is_some();
        assert_eq!([7, 3, 0, 1].map(known), [false, false, false, true]);
        assert!(known(MAX_CALLS + 2));
        assert_eq!((calls.numbers.len(), calls.ended.len()), (MAX_CALLS, 0));
        assert_eq!(calls.tally().calls, MAX_CALLS as u64 + 3);
    }
}
