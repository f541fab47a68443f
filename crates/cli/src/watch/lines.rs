//! Calls for machines: one event a line, as JSON.

use std::time::{Duration, SystemTime};

use rockbot_contracts::{RoutingKey, envelope::unix_ms};
use serde_json::{Value, json};

use super::{
    calls::{Call, Calls},
    feed::Message,
    filter::Filter,
    heard::What,
};

/// Which event a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Asked,
    Progressed,
    Cancelled,
    Answered,
    Unanswered,
}

/// Makes events of messages.
#[derive(Debug)]
pub(super) struct Lines {
    calls: Calls,
    filter: Filter,
    began: SystemTime,
    /// Calls that were shown to end.
    ended: u64,
}

impl Lines {
    pub(super) fn new(filter: Filter, began: SystemTime) -> Self {
        Self { calls: Calls::default(), filter, began, ended: 0 }
    }

    /// How many calls ended that fit the filter.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// What there is to say about a message that came `at` after the beginning.
    pub(super) fn hear(&mut self, message: Message, at: Duration) -> Option<Value> {
        let heard = match message.heard {
            Ok(heard) => heard,
            Err(trouble) => return Some(self.unreadable(&message.key, trouble, at)),
        };
        let event = match heard.what {
            What::Asked(_) => Event::Asked,
            What::Progressed(_) => Event::Progressed,
            What::Cancelled { .. } => Event::Cancelled,
            What::Answered(_) => Event::Answered,
        };
        let (time, before) = (self.time(at), self.calls.tally().answered);
        let id = heard.call.clone();
        self.calls.hear(heard, at)?;
        let call = self.calls.get(&id).filter(|call| self.filter.fits(call))?;
        // A question that was repeated may be answered twice.
        self.ended += self.calls.tally().answered - before;
        Some(describe(call, event, time))
    }

    /// The calls whose time is over by now.
    pub(super) fn look(&mut self, now: Duration) -> Vec<Value> {
        let overdue = self.calls.look(now);
        let calls = overdue.iter().filter_map(|id| self.calls.get(id));
        let shown: Vec<_> = calls
            .filter(|call| self.filter.fits(call))
            .map(|call| describe(call, Event::Unanswered, self.time(now)))
            .collect();
        self.ended += shown.len() as u64;
        shown
    }

    /// In Unix milliseconds.
    fn time(&self, at: Duration) -> u64 {
        unix_ms(self.began + at)
    }

    fn unreadable(&self, key: &RoutingKey, trouble: &str, at: Duration) -> Value {
        json!({"event": "unreadable", "at": self.time(at), "key": key.as_str(), "reason": trouble})
    }
}

fn describe(call: &Call, event: Event, at: u64) -> Value {
    let mut said = json!({
        "event": match event {
            Event::Asked => "asked",
            Event::Progressed => "progress",
            Event::Cancelled => "cancel",
            Event::Answered => "answered",
            Event::Unanswered => "unanswered",
        },
        "at": at,
        "call": call.id.as_str(),
        "trace": call.trace,
        "agent": call.agent,
        "tool": call.tool,
        "mcpServer": call.server(),
        "state": call.state().word(),
    });
    let more = match event {
        Event::Asked => call.asked.as_ref().map(|asked| {
            let times = asked.said.times;
            json!({
                "key": asked.said.key, "user": asked.said.user, "replyTo": asked.said.reply_to,
                "session": asked.said.session, "bytes": asked.bytes, "times": times,
                "timeoutMs": asked.said.budget.map(whole_millis),
                "arguments": asked.said.arguments,
            })
        }),
        Event::Progressed => call.progress.as_ref().map(|progress| {
            let last = &progress.last.said;
            json!({"worker": last.worker, "sequence": last.sequence, "text": last.text})
        }),
        Event::Cancelled => {
            call.cancelled.as_ref().map(|cancelled| json!({"reason": cancelled.said}))
        }
        Event::Answered => call.answered.as_ref().map(|answer| {
            json!({
                "worker": answer.said.worker, "executed": answer.said.executed,
                "latencyMs": call.latency().map(|latency| latency.as_secs_f64() * 1e3),
                "runMs": answer.said.ran.map(whole_millis), "bytes": answer.bytes,
                "result": answer.said.result,
            })
        }),
        Event::Unanswered => None,
    };
    if let (Some(said), Some(Value::Object(more))) = (said.as_object_mut(), more) {
        said.extend(more);
        // Content is there only when it was asked for.
        for name in ["arguments", "text", "reason", "result"] {
            if said.get(name).is_some_and(Value::is_null) {
                said.remove(name);
            }
        }
    }
    said
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::topology::tool_invoke;
    use tokio::time::Instant;

    use super::*;
    use crate::watch::{
        calls::tests::{answered, asked, progressed},
        heard::{Heard, Status},
    };

    fn message(heard: Heard) -> Message {
        Message { at: Instant::now(), key: tool_invoke(), heard: Ok(heard) }
    }

    fn lines(filter: &str) -> Lines {
        Lines::new(Filter::typed(filter), SystemTime::UNIX_EPOCH)
    }

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn each_message_is_an_event_with_what_is_known_of_its_call() {
        let mut lines = lines("");
        let asked = lines.hear(message(asked("a")), ms(5)).unwrap();
        assert_eq!(
            asked,
            json!({"event": "asked", "at": 5, "call": "a", "trace": null, "agent": "assistant",
                "tool": "read_file", "mcpServer": null, "state": "asked", "key": "tool.invoke",
                "user": null, "replyTo": null, "session": "s", "bytes": 100, "times": 1,
                "timeoutMs": 5000})
        );
        let progress = lines.hear(message(progressed("a", 3)), ms(6)).unwrap();
        assert_eq!((&progress["event"], &progress["sequence"]), (&"progress".into(), &3.into()));
        assert_eq!(progress["state"], "running");
        let answer = lines.hear(message(answered("a", Status::Ok)), ms(17)).unwrap();
        assert_eq!(
            answer,
            json!({"event": "answered", "at": 17, "call": "a", "trace": null,
                "agent": "assistant", "tool": "read_file", "mcpServer": null, "state": "ok",
                "worker": "tool-handler/h1", "executed": "yes", "latencyMs": 12.0, "runMs": 7,
                "bytes": 100})
        );
        lines.hear(message(answered("a", Status::Ok)), ms(18)).unwrap();
        assert_eq!(lines.ended(), 1);
    }

    #[test]
    fn only_what_fits_is_said_and_counted() {
        let mut lines = lines("state:failed");
        assert!(lines.hear(message(asked("a")), ms(0)).is_none());
        assert!(lines.hear(message(answered("a", Status::Ok)), ms(1)).is_none());
        assert!(lines.hear(message(answered("b", Status::ToolError)), ms(2)).is_some());
        assert!(lines.hear(message(asked("c")), ms(3)).is_none());
        let over = lines.look(ms(60_000));
        assert_eq!(over.len(), 1);
        assert_eq!((&over[0]["event"], &over[0]["call"]), (&"unanswered".into(), &"c".into()));
        assert_eq!(lines.ended(), 2);
    }

    #[test]
    fn a_message_that_cannot_be_read_is_an_event_of_its_own() {
        let heard = Err("malformed");
        let message = Message { at: Instant::now(), key: tool_invoke(), heard };
        let said = lines("tool:none").hear(message, ms(9)).unwrap();
        let expected = json!({"event": "unreadable", "at": 9, "key": "tool.invoke",
            "reason": "malformed"});
        assert_eq!(said, expected);
    }
}
