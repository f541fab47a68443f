//! The conversations as the agents recorded them.

use std::{collections::BTreeMap, time::Duration};

use rockbot_store::{Log, LogName, Prefix, Store};
use serde_json::Value;

use super::agents::AGENT;
use crate::chaos::timeline::Timeline;

/// Entries that are read at a time.
const PAGE: usize = 500;
/// Processes whose loss on one step ends a turn.
const MAX_LOST_PROCESSES: usize = 3;

#[derive(Debug, Clone, Default)]
pub(super) struct RecordedConversation {
    pub(super) turns: Vec<RecordedTurn>,
    /// Entries that do not follow from the ones before.
    pub(super) problems: Vec<String>,
    /// Time and text of each entry.
    pub(super) entries: Vec<(Duration, String)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RecordedTurn {
    /// Id of the message.
    pub(super) id: String,
    pub(super) calls: Vec<RecordedCall>,
    pub(super) takeovers: usize,
    /// Stops between two steps.
    pub(super) put_downs: usize,
    /// Outcome and text.
    pub(super) answers: Vec<(String, String)>,
}

impl RecordedTurn {
    /// Returns whether the turn ended because too many processes were lost on one of its steps.
    pub(super) fn is_given_up(&self) -> bool {
        let has_failed = self.answers.iter().any(|(outcome, _)| outcome == "model_failed");
        has_failed && self.takeovers >= MAX_LOST_PROCESSES
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct RecordedCall {
    /// Id of the call in the fleet.
    pub(super) call: String,
    /// The model's id, which is the text of its line.
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) requested: Duration,
    pub(super) results: Vec<RecordedResult>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RecordedResult {
    pub(super) at: Duration,
    /// `yes`, `no` or `unknown`.
    pub(super) executed: String,
    /// Error code of a failed call.
    pub(super) error: Option<String>,
    pub(super) text: String,
}

impl RecordedConversation {
    /// Folds the entries of a log with their numbers.
    pub(super) fn fold(entries: &[(u64, Value)], timeline: &Timeline) -> Self {
        let mut conversation = Self::default();
        for ((number, entry), expected) in entries.iter().zip(1..) {
            if *number != expected {
                let problem = format!("entry {number} instead of {expected}");
                conversation.problems.push(problem);
                break;
            }
            let at = timeline.at_unix(entry["at"].as_f64().unwrap_or_default() / 1000.0);
            conversation.entries.push((at, format!("entry {number}: {entry}")));
            if let Err(problem) = conversation.add(entry, at) {
                conversation.problems.push(format!("entry {number}: {problem}"));
            }
        }
        conversation
    }

    fn add(&mut self, entry: &Value, at: Duration) -> Result<(), String> {
        let kind = entry["kind"].as_str().unwrap_or_default();
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let is_open = self.turns.last().is_some_and(|turn| turn.answers.is_empty());
        if kind == "message" {
            self.turns.push(RecordedTurn { id: text("id"), ..RecordedTurn::default() });
            return if is_open { Err("a message during a turn".to_owned()) } else { Ok(()) };
        }
        let turn = self.turns.last_mut().filter(|_| is_open);
        let turn = turn.ok_or_else(|| format!("{kind} outside a turn"))?;
        match kind {
            "model" => {
                let open = turn.calls.iter().find(|call| call.results.is_empty());
                let open = open.map(|call| format!("an answer of the model before {}", call.id));
                for call in entry["calls"].as_array().into_iter().flatten() {
                    let text = |key: &str| call[key].as_str().unwrap_or_default().to_owned();
                    turn.calls.push(RecordedCall {
                        call: text("call"),
                        id: text("id"),
                        tool: text("name"),
                        requested: at,
                        results: Vec::new(),
                    });
                }
                open.map_or(Ok(()), Err)
            }
            "result" => {
                let id = text("call");
                let call = turn.calls.iter_mut().find(|call| call.call == id);
                let call = call.ok_or_else(|| format!("result of the unknown call {id}"))?;
                call.results.push(RecordedResult {
                    at,
                    executed: text("executed"),
                    error: entry["error"].as_str().map(str::to_owned),
                    text: text("text"),
                });
                Ok(())
            }
            "answer" => {
                turn.answers.push((text("outcome"), text("text")));
                Ok(())
            }
            "takeover" => {
                turn.takeovers += usize::from(entry["acts"] != true);
                Ok(())
            }
            "put_down" => {
                turn.put_downs += 1;
                Ok(())
            }
            _ => Err(format!("unexpected kind {kind:?}")),
        }
    }
}

/// Reads all conversations of the agent, by session.
pub(super) async fn read_conversations(
    log: &dyn Log,
    timeline: &Timeline,
) -> BTreeMap<String, RecordedConversation> {
    let prefix = Prefix::new(["conversation", AGENT]).expect("a prefix");
    let mut conversations = BTreeMap::new();
    let mut after = None::<LogName>;
    loop {
        let page = log.logs(&prefix, after.as_ref(), PAGE).await.expect("a page of logs");
        let Some(last) = page.last() else { return conversations };
        after = Some(last.name.clone());
        for state in page {
            let session = state.name.segments().next_back().unwrap_or_default();
            let mut entries = Vec::new();
            let mut from = 1;
            loop {
                let page = log.read(&state.name, from, PAGE).await.expect("a page of entries");
                let Some(last) = page.last() else { break };
                from = last.number + 1;
                entries.extend(page.into_iter().map(|entry| {
                    (entry.number, serde_json::from_slice(&entry.value).unwrap_or_default())
                }));
            }
            conversations.insert(session, RecordedConversation::fold(&entries, timeline));
        }
    }
}

/// Returns the keys by which agents find turns without an answer.
pub(super) async fn unfinished_turns(store: &dyn Store) -> Vec<String> {
    let prefix = Prefix::new(["open", AGENT]).expect("a prefix");
    let page = store.list(&prefix, None, PAGE).await.expect("a page");
    page.into_iter().map(|(key, _)| key.as_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fold(entries: &[Value]) -> RecordedConversation {
        let numbered: Vec<_> = (1..).zip(entries.iter().cloned()).collect();
        RecordedConversation::fold(&numbered, &Timeline::start())
    }

    #[test]
    fn entries_become_turns() {
        let model = json!({"kind": "model", "calls": [{"call": "a", "id": "c1", "name": "bash"}]});
        let entries = [
            json!({"kind": "message", "id": "m1"}),
            model.clone(),
            json!({"kind": "takeover", "attempt": 2}),
            json!({"kind": "result", "call": "a", "executed": "unknown", "error": "lost"}),
            json!({"kind": "answer", "outcome": "completed", "text": "done"}),
        ];
        let conversation = fold(&entries);
        assert!(conversation.problems.is_empty(), "{:?}", conversation.problems);
        let turn = &conversation.turns[0];
        assert_eq!((turn.id.as_str(), turn.takeovers, turn.answers.len()), ("m1", 1, 1));
        assert_eq!(turn.calls[0].results[0].executed, "unknown");

        let two_answers = [&entries[..], &entries[4..]].concat();
        assert_eq!(fold(&two_answers).problems, ["entry 6: answer outside a turn"]);
        let unanswered = [&entries[..2], &[model]].concat();
        assert_eq!(fold(&unanswered).problems, ["entry 3: an answer of the model before c1"]);
        let gap = [(1, entries[0].clone()), (3, entries[1].clone())];
        let gap = RecordedConversation::fold(&gap, &Timeline::start());
        assert_eq!(gap.problems, ["entry 3 instead of 2"]);
    }
}
