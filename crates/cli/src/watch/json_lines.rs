//! JSON output: one event per line.

use std::time::{Duration, SystemTime};

use rockbot_contracts::{
    RoutingKey,
    envelope::{unix_ms, whole_millis},
};
use rockbot_monitor::{Call, Calls, Filter, MessageKind, Observed};
use serde_json::{Value, json};

/// The event of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Requested,
    Progress,
    Cancel,
    Replied,
    NoReply,
}

/// Converts messages to events.
#[derive(Debug)]
pub(super) struct JsonLines {
    calls: Calls,
    filter: Filter,
    started: SystemTime,
    /// The number of shown calls that ended.
    ended: u64,
}

impl JsonLines {
    pub(super) fn new(filter: Filter, started: SystemTime) -> Self {
        Self { calls: Calls::default(), filter, started, ended: 0 }
    }

    /// Returns the number of ended calls that match the filter.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Records a message that arrived `at` after the start, and returns its event if the call matches
    /// the filter.
    pub(super) fn record(&mut self, observed: Observed, at: Duration) -> Option<Value> {
        let message = match observed.message {
            Ok(message) => message,
            Err(reason) => return Some(self.unreadable(&observed.key, reason, at)),
        };
        let event = match message.kind {
            MessageKind::Request(_) => Event::Requested,
            MessageKind::Progress(_) => Event::Progress,
            MessageKind::Cancel { .. } => Event::Cancel,
            MessageKind::Reply(_) => Event::Replied,
        };
        let (time, before) = (self.time(at), self.calls.tally().replied);
        let id = message.call.clone();
        self.calls.record(message, at)?;
        let call = self.calls.get(&id).filter(|call| self.filter.matches(call))?;
        // A retried request may have two replies.
        self.ended += self.calls.tally().replied - before;
        Some(describe(call, event, time))
    }

    /// Returns the events of newly expired calls.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<Value> {
        let expired = self.calls.expire(now);
        let calls = expired.iter().filter_map(|id| self.calls.get(id));
        let shown: Vec<_> = calls
            .filter(|call| self.filter.matches(call))
            .map(|call| describe(call, Event::NoReply, self.time(now)))
            .collect();
        self.ended += shown.len() as u64;
        shown
    }

    /// Returns a time in Unix milliseconds.
    fn time(&self, at: Duration) -> u64 {
        unix_ms(self.started + at)
    }

    fn unreadable(&self, key: &RoutingKey, reason: &str, at: Duration) -> Value {
        json!({"event": "unreadable", "at": self.time(at), "key": key.as_str(), "reason": reason})
    }
}

fn describe(call: &Call, event: Event, at: u64) -> Value {
    let mut event_json = json!({
        "event": match event {
            Event::Requested => "requested",
            Event::Progress => "progress",
            Event::Cancel => "cancel",
            Event::Replied => "replied",
            Event::NoReply => "no_reply",
        },
        "at": at,
        "call": call.id.as_str(),
        "trace": call.trace,
        "agent": call.agent,
        "tool": call.tool,
        "mcpServer": call.server(),
        "state": call.state().as_str(),
    });
    let details = match event {
        Event::Requested => call.request.as_ref().map(|request| {
            let info = &request.value;
            json!({
                "key": info.key, "user": info.user, "replyTo": info.reply_to,
                "session": info.session, "bytes": request.bytes, "attempt": info.attempt,
                "timeoutMs": info.budget.map(whole_millis),
                "arguments": info.arguments,
            })
        }),
        Event::Progress => call.progress.as_ref().map(|progress| {
            let last = &progress.last.value;
            json!({"handler": last.handler, "sequence": last.sequence, "text": last.text})
        }),
        Event::Cancel => call.cancel.as_ref().map(|cancel| json!({"reason": cancel.value})),
        Event::Replied => call.reply.as_ref().map(|reply| {
            let info = &reply.value;
            json!({
                "handler": info.handler, "executed": info.executed,
                "latencyMs": call.latency().map(|latency| latency.as_secs_f64() * 1e3),
                "runMs": info.run_time.map(whole_millis), "stages": info.stages,
                "bytes": reply.bytes,
                "result": info.result,
            })
        }),
        Event::NoReply => None,
    };
    if let (Some(fields), Some(Value::Object(details))) = (event_json.as_object_mut(), details) {
        fields.extend(details);
        // Content is present only when it was requested.
        for name in ["arguments", "text", "reason", "result"] {
            if fields.get(name).is_some_and(Value::is_null) {
                fields.remove(name);
            }
        }
    }
    event_json
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::topology::tool_invoke;
    use rockbot_monitor::{CallMessage, Status};
    use tokio::time::Instant;

    use super::*;
    use crate::watch::fixture::{progress, reply, request};

    fn observed(message: CallMessage) -> Observed {
        Observed { at: Instant::now(), key: tool_invoke(), message: Ok(message) }
    }

    fn lines(filter: &str) -> JsonLines {
        JsonLines::new(Filter::parse(filter), SystemTime::UNIX_EPOCH)
    }

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn message_is_an_event_with_its_call() {
        let mut lines = lines("");
        let requested = lines.record(observed(request("a")), ms(5)).unwrap();
        assert_eq!(
            requested,
            json!({"event": "requested", "at": 5, "call": "a", "trace": null,
                "agent": "assistant", "tool": "read_file", "mcpServer": null,
                "state": "requested", "key": "tool.invoke", "user": null, "replyTo": null,
                "session": "s", "bytes": 100, "attempt": 1, "timeoutMs": 5000})
        );
        let running = lines.record(observed(progress("a", 3)), ms(6)).unwrap();
        assert_eq!((&running["event"], &running["sequence"]), (&"progress".into(), &3.into()));
        assert_eq!(running["state"], "running");
        let replied = lines.record(observed(reply("a", Status::Ok)), ms(17)).unwrap();
        assert_eq!(
            replied,
            json!({"event": "replied", "at": 17, "call": "a", "trace": null,
                "agent": "assistant", "tool": "read_file", "mcpServer": null, "state": "ok",
                "handler": "tool-handler/h1", "executed": "yes", "latencyMs": 12.0, "runMs": 7,
                "stages": {"queueMs": 4, "startMs": 0, "runMs": 7}, "bytes": 100})
        );
        lines.record(observed(reply("a", Status::Ok)), ms(18)).unwrap();
        assert_eq!(lines.ended(), 1);
    }

    #[test]
    fn only_matching_calls_are_reported_and_counted() {
        let mut lines = lines("state:failed");
        assert!(lines.record(observed(request("a")), ms(0)).is_none());
        assert!(lines.record(observed(reply("a", Status::Ok)), ms(1)).is_none());
        assert!(lines.record(observed(reply("b", Status::ToolError)), ms(2)).is_some());
        assert!(lines.record(observed(request("c")), ms(3)).is_none());
        let expired = lines.expire(ms(60_000));
        assert_eq!(expired.len(), 1);
        assert_eq!((&expired[0]["event"], &expired[0]["call"]), (&"no_reply".into(), &"c".into()));
        assert_eq!(lines.ended(), 2);
    }

    #[test]
    fn unreadable_message_is_an_event() {
        let message = Err("malformed");
        let observed = Observed { at: Instant::now(), key: tool_invoke(), message };
        let event = lines("tool:none").record(observed, ms(9)).unwrap();
        let expected = json!({"event": "unreadable", "at": 9, "key": "tool.invoke",
            "reason": "malformed"});
        assert_eq!(event, expected);
    }
}
