//! The calls that were heard of: put together from their messages, as many as there is room for.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use rockbot_contracts::ToolCallId;

use super::heard::{Answered, Asked, Heard, Progressed, What};

/// Most calls that are remembered.
const MOST: usize = 10_000;

/// How long after its deadline an answer may still be on its way.
const GRACE: Duration = Duration::from_secs(1);

/// One call. Times are since the watch began.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: ToolCallId,
    pub(super) tool: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) trace: Option<String>,
    /// When the first message about it came.
    pub(super) first: Duration,
    pub(super) asked: Option<Stage<Asked>>,
    pub(super) progress: Option<Progress>,
    pub(super) cancelled: Option<Stage<Option<String>>>,
    /// The first answer; another one to a question that was repeated says the same.
    pub(super) answered: Option<Stage<Answered>>,
    /// Nobody answered in the time that the asker gave.
    overdue: bool,
}

/// What was said, and when.
#[derive(Debug, Clone)]
pub(super) struct Stage<T> {
    pub(super) at: Duration,
    pub(super) bytes: usize,
    pub(super) said: T,
}

/// Signs of life.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) first: Duration,
    pub(super) signs: u64,
    pub(super) last: Stage<Progressed>,
}

/// What is known of a call's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State<'a> {
    /// It waits or runs; nobody has said a word yet.
    Asked,
    /// It showed a sign of life.
    Running,
    /// It was cancelled and is not answered.
    Cancelling,
    /// Its time is over and nobody answered, as far as this watch heard.
    Unanswered,
    /// It was answered with this status.
    Ended(&'a super::heard::Status),
}

impl State<'_> {
    pub(super) fn word(&self) -> &str {
        match self {
            Self::Asked => "asked",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Unanswered => "unanswered",
            Self::Ended(status) => status.word(),
        }
    }

    /// Whether an answer may still come.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Asked | Self::Running | Self::Cancelling)
    }

    /// Whether it ended, and not well.
    pub(super) fn is_failed(&self) -> bool {
        !self.is_live() && *self != Self::Ended(&super::heard::Status::Ok)
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
            asked: None,
            progress: None,
            cancelled: None,
            answered: None,
            overdue: false,
        }
    }

    pub(super) fn state(&self) -> State<'_> {
        match &self.answered {
            Some(answer) => State::Ended(&answer.said.status),
            None if self.overdue => State::Unanswered,
            None if self.cancelled.is_some() => State::Cancelling,
            None if self.progress.is_some() => State::Running,
            None => State::Asked,
        }
    }

    /// Who ran it, or runs it.
    pub(super) fn worker(&self) -> Option<&str> {
        let answered = self.answered.as_ref().and_then(|answer| answer.said.worker.as_deref());
        let progress = || self.progress.as_ref()?.last.said.worker.as_deref();
        answered.or_else(progress)
    }

    /// From the question to the answer, where both were heard. It is no shorter than the worker
    /// says that it ran: a watch that is short of time may hear both at once.
    pub(super) fn latency(&self) -> Option<Duration> {
        let answered = self.answered.as_ref()?;
        let heard = answered.at.checked_sub(self.asked.as_ref()?.at)?;
        Some(heard.max(answered.said.ran.unwrap_or_default()))
    }

    /// The server of an MCP tool.
    pub(super) fn server(&self) -> Option<&str> {
        self.asked.as_ref()?.said.server.as_deref()
    }

    fn hear(&mut self, heard: Heard, at: Duration) {
        let Heard { tool, agent, trace, bytes, what, .. } = heard;
        // Who asks is best told by the question.
        let asks = matches!(what, What::Asked(_));
        if agent.is_some() && (asks || self.agent.is_none()) {
            self.agent = agent;
        }
        self.tool = self.tool.take().or(tool);
        self.trace = self.trace.take().or(trace);
        match what {
            What::Asked(said) => match &mut self.asked {
                Some(asked) => asked.said.times = asked.said.times.max(said.times),
                None => self.asked = Some(Stage { at, bytes, said }),
            },
            What::Progressed(said) => {
                let last = Stage { at, bytes, said };
                let (first, signs) =
                    self.progress.as_ref().map_or((at, 0), |known| (known.first, known.signs));
                self.progress = Some(Progress { first, signs: signs + 1, last });
            }
            What::Cancelled { reason } => {
                self.cancelled.get_or_insert(Stage { at, bytes, said: reason });
            }
            What::Answered(said) => {
                self.answered.get_or_insert(Stage { at, bytes, said });
            }
        }
    }

    /// When nobody will answer any more.
    fn end_of_time(&self) -> Option<Duration> {
        let asked = self.asked.as_ref()?;
        Some(asked.at.saturating_add(asked.said.budget?).saturating_add(GRACE))
    }
}

/// Every call that is remembered, in the order in which they were first heard of.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    by_number: BTreeMap<u64, Call>,
    numbers: HashMap<ToolCallId, u64>,
    /// The answered ones, in the order of their answers: they go first.
    ended: VecDeque<u64>,
    heard_of: u64,
    failed: u64,
    answered: u64,
}

/// How many there were since the watch began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) answered: u64,
    pub(super) failed: u64,
}

impl Calls {
    /// Takes a message in. `None` when it is about a call that is not known and says nothing of it.
    pub(super) fn hear(&mut self, heard: Heard, at: Duration) -> Option<&Call> {
        let number = match self.numbers.get(&heard.call) {
            Some(number) => *number,
            None if matches!(heard.what, What::Cancelled { .. }) => return None,
            None => self.enter(&heard.call, at),
        };
        let call = self.by_number.get_mut(&number)?;
        let was_open = call.answered.is_none();
        call.hear(heard, at);
        if was_open && call.answered.is_some() {
            self.ended.push_back(number);
            self.answered += 1;
            self.failed += u64::from(call.state().is_failed());
        }
        self.by_number.get(&number)
    }

    fn enter(&mut self, id: &ToolCallId, at: Duration) -> u64 {
        if self.by_number.len() >= MOST {
            self.forget_one();
        }
        let number = self.heard_of;
        self.heard_of += 1;
        self.by_number.insert(number, Call::new(id.clone(), at));
        self.numbers.insert(id.clone(), number);
        number
    }

    /// Forgets the one that was answered first; when all are open, the oldest.
    fn forget_one(&mut self) {
        let oldest = || self.by_number.first_key_value().map(|(number, _)| *number);
        let number = self.ended.front().copied().or_else(oldest);
        if let Some(call) = number.and_then(|number| self.by_number.remove(&number)) {
            if call.answered.is_some() {
                self.ended.pop_front();
            }
            self.numbers.remove(&call.id);
        }
    }

    /// Looks at the clock; the calls whose time ended since the last look.
    pub(super) fn look(&mut self, now: Duration) -> Vec<ToolCallId> {
        let open = self.by_number.values_mut().filter(|call| {
            let due = || call.end_of_time().is_some_and(|end| end <= now);
            call.answered.is_none() && !call.overdue && due()
        });
        open.map(|call| {
            call.overdue = true;
            call.id.clone()
        })
        .collect()
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Call> {
        self.by_number.values().rev()
    }

    pub(super) fn get(&self, id: &ToolCallId) -> Option<&Call> {
        self.by_number.get(self.numbers.get(id)?)
    }

    pub(super) fn tally(&self) -> Tally {
        Tally { calls: self.heard_of, answered: self.answered, failed: self.failed }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rockbot_contracts::{Executed, ToolErrorCode};

    use super::*;
    use crate::watch::heard::Status;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    pub(crate) fn heard(id: &str, what: What) -> Heard {
        let tool = (!matches!(what, What::Cancelled { .. })).then(|| "read_file".to_owned());
        let call = ToolCallId::new(id).unwrap();
        Heard { call, tool, agent: Some("assistant".to_owned()), trace: None, bytes: 100, what }
    }

    pub(crate) fn asked(id: &str) -> Heard {
        let asked = Asked {
            key: "tool.invoke".to_owned(),
            user: None,
            reply_to: None,
            server: None,
            session: Some("s".to_owned()),
            budget: Some(ms(5000)),
            times: 1,
            arguments: None,
        };
        heard(id, What::Asked(asked))
    }

    pub(crate) fn progressed(id: &str, sequence: u64) -> Heard {
        let worker = Some("tool-handler/h1".to_owned());
        heard(id, What::Progressed(Progressed { sequence, worker, text: None }))
    }

    pub(crate) fn answered(id: &str, status: Status) -> Heard {
        let answered = Answered {
            status,
            executed: Executed::Yes,
            worker: Some("tool-handler/h1".to_owned()),
            ran: Some(ms(7)),
            result: None,
        };
        heard(id, What::Answered(answered))
    }

    fn cancelled(id: &str) -> Heard {
        heard(id, What::Cancelled { reason: None })
    }

    #[test]
    fn a_call_is_put_together_from_its_messages() {
        let mut calls = Calls::default();
        let word = |call: Option<&Call>| call.unwrap().state().word().to_owned();
        assert_eq!(word(calls.hear(asked("a"), ms(10))), "asked");
        assert_eq!(word(calls.hear(progressed("a", 1), ms(20))), "running");
        assert_eq!(word(calls.hear(progressed("a", 2), ms(30))), "running");
        assert_eq!(word(calls.hear(cancelled("a"), ms(40))), "cancelling");
        let timeout = Status::Error(ToolErrorCode::Timeout);
        let call = calls.hear(answered("a", timeout), ms(52)).unwrap();
        assert_eq!(call.state().word(), "timeout");
        assert_eq!((call.latency(), call.worker()), (Some(ms(42)), Some("tool-handler/h1")));
        let progress = call.progress.as_ref().unwrap();
        assert_eq!((progress.first, progress.signs, progress.last.at), (ms(20), 2, ms(30)));
        assert_eq!(calls.tally(), Tally { calls: 1, answered: 1, failed: 1 });
    }

    #[test]
    fn an_answer_counts_once_and_a_repeated_question_is_told() {
        let mut calls = Calls::default();
        calls.hear(asked("a"), ms(0));
        calls.hear(answered("a", Status::Ok), ms(5));
        let mut again = asked("a");
        let What::Asked(question) = &mut again.what else { unreachable!() };
        question.times = 2;
        calls.hear(again, ms(10));
        let call = calls.hear(answered("a", Status::Ok), ms(20)).unwrap();
        // It ran for 7 ms, by the worker's word.
        assert_eq!(call.latency(), Some(ms(7)));
        assert_eq!(call.asked.as_ref().unwrap().said.times, 2);
        assert_eq!(calls.tally(), Tally { calls: 1, answered: 1, failed: 0 });
    }

    #[test]
    fn a_call_that_was_asked_before_the_watch_began_is_shown_without_a_latency() {
        let mut calls = Calls::default();
        assert!(calls.hear(cancelled("a"), ms(0)).is_none());
        let call = calls.hear(answered("a", Status::Ok), ms(5)).unwrap();
        assert_eq!((call.latency(), call.agent.as_deref()), (None, Some("assistant")));
        // The question may come by another queue, after the answer.
        let call = calls.hear(asked("a"), ms(6)).unwrap();
        assert_eq!((call.state().word(), call.latency()), ("ok", None));
    }

    #[test]
    fn a_call_whose_time_is_over_is_unanswered_until_an_answer_comes() {
        let mut calls = Calls::default();
        calls.hear(asked("a"), ms(0));
        assert!(calls.look(ms(5999)).is_empty());
        assert_eq!(calls.look(ms(6000)), [ToolCallId::new("a").unwrap()]);
        assert!(calls.look(ms(7000)).is_empty(), "told once");
        let id = ToolCallId::new("a").unwrap();
        let state = calls.get(&id).unwrap().state();
        assert!(state == State::Unanswered && state.is_failed() && !state.is_live());
        let late = calls.hear(answered("a", Status::Ok), ms(8000)).unwrap();
        assert_eq!(late.state().word(), "ok");
    }

    #[test]
    fn only_so_many_are_remembered_and_the_first_answered_go_first() {
        let mut calls = Calls::default();
        let id = |number: usize| format!("call-{number}");
        for number in 0..MOST {
            calls.hear(asked(&id(number)), ms(0));
        }
        for number in [7, 3] {
            calls.hear(answered(&id(number), Status::Ok), ms(1));
        }
        for number in MOST..MOST + 3 {
            calls.hear(asked(&id(number)), ms(2));
            assert_eq!(calls.by_number.len(), MOST);
        }
        let known = |number| calls.get(&ToolCallId::new(id(number)).unwrap()).is_some();
        assert_eq!([7, 3, 0, 1].map(known), [false, false, false, true]);
        assert!(known(MOST + 2));
        assert_eq!((calls.numbers.len(), calls.ended.len()), (MOST, 0));
        assert_eq!(calls.tally().calls, MOST as u64 + 3);
    }
}
