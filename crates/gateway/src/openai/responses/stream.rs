//! Events of a response, as its turn goes on.

use axum::response::Response;
use serde_json::{Value, json};

use super::{
    super::{
        output::Piece,
        turn::{FollowedTurn, MAX_REASONING_BYTES},
    },
    object::{ResponseObject, ResponseState, summary_part, text_part},
};
use crate::event_stream::{self, EventSource, ReadyEvents};

/// A stream of the events of a response. Dropping it abandons the turn.
pub(super) struct ResponseStream {
    turn: FollowedTurn,
    events: Events,
}

impl ResponseStream {
    pub(super) fn into_response(turn: FollowedTurn, object: ResponseObject) -> Response {
        let mut events = Events::new(object);
        let first = events.take_ready();
        event_stream::stream_response(Self { turn, events }, first)
    }

    async fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Content(text) => self.events.text(&text),
            Piece::Reasoning(line) => self.events.line(&line, None),
            Piece::Approval { line, details } => self.events.line(&line, Some(&details)),
            Piece::Failed(error) => {
                let shown = self.turn.shown().unwrap_or_default();
                self.events.end(shown, &ResponseState::Failed(&error));
            }
            Piece::Answered { text, outcome, usage } => {
                // Before the end of the stream, so that the next request finds the conversation.
                let whole = self.turn.shown().unwrap_or(&text);
                self.turn.remember(whole).await;
                self.events.end(whole, &ResponseState::Ended(outcome, usage.as_ref()));
            }
        }
    }
}

impl EventSource for ResponseStream {
    type Update = Vec<Piece>;

    async fn next(&mut self) -> Vec<Piece> {
        self.turn.next().await
    }

    async fn events(&mut self, pieces: Vec<Piece>) -> ReadyEvents {
        for piece in pieces {
            self.add(piece).await;
        }
        self.events.take_ready()
    }
}

/// An item of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Reasoning,
    Answer,
}

/// The events so far, with the next number and the items.
#[derive(Debug)]
struct Events {
    object: ResponseObject,
    /// Those that are not sent.
    ready: ReadyEvents,
    number: u64,
    /// The items in the order of the output.
    items: Vec<ItemKind>,
    /// The lines about the course of the turn.
    lines: String,
}

impl Events {
    fn new(object: ResponseObject) -> Self {
        let (ready, items, lines) = (ReadyEvents::default(), Vec::new(), String::new());
        let mut events = Self { object, ready, number: 0, items, lines };
        for kind in ["response.created", "response.in_progress"] {
            let response = events.object.to_json(&ResponseState::InProgress, &[]);
            events.push(kind, json!({"response": response}));
        }
        events
    }

    fn take_ready(&mut self) -> ReadyEvents {
        std::mem::take(&mut self.ready)
    }

    /// Adds text of the answer.
    fn text(&mut self, text: &str) {
        let at = self.open(ItemKind::Answer);
        let fields = json!({"item_id": self.object.answer_id(), "output_index": at,
            "content_index": 0, "delta": text, "logprobs": []});
        self.push("response.output_text.delta", fields);
    }

    /// Adds a line about the course of the turn. One about an approval request has its details in a field of RockBot's
    /// own, and is added however many lines there are.
    fn line(&mut self, line: &str, approval: Option<&Value>) {
        if approval.is_none() && self.lines.len() + line.len() > MAX_REASONING_BYTES {
            return;
        }
        let at = self.open(ItemKind::Reasoning);
        self.lines.push_str(line);
        let mut fields = json!({"item_id": self.object.reasoning_id(), "output_index": at,
            "summary_index": 0, "delta": line});
        if let Some(details) = approval {
            fields["rockbot"] = json!({"approval": details});
        }
        self.push("response.reasoning_summary_text.delta", fields);
    }

    /// Returns the index of an item, which begins unless it has.
    fn open(&mut self, kind: ItemKind) -> usize {
        if let Some(at) = self.items.iter().position(|item| *item == kind) {
            return at;
        }
        let at = self.items.len();
        self.items.push(kind);
        let (item, id, begin, part) = match kind {
            ItemKind::Answer => (
                self.object.answer_item(None, "in_progress"),
                self.object.answer_id(),
                "response.content_part.added",
                json!({"content_index": 0, "part": text_part("")}),
            ),
            ItemKind::Reasoning => (
                self.object.reasoning_item(None, "in_progress"),
                self.object.reasoning_id(),
                "response.reasoning_summary_part.added",
                json!({"summary_index": 0, "part": summary_part("")}),
            ),
        };
        self.push("response.output_item.added", json!({"output_index": at, "item": item}));
        self.push_part(begin, &id, at, part);
        at
    }

    /// Ends the items and the response.
    fn end(&mut self, answer: &str, state: &ResponseState<'_>) {
        self.ready.is_last = true;
        if !answer.is_empty() {
            self.open(ItemKind::Answer);
        }
        let status = state.item_status();
        let mut output = Vec::new();
        for (at, kind) in self.items.clone().into_iter().enumerate() {
            let item = match kind {
                ItemKind::Answer => self.end_answer(at, answer, status),
                ItemKind::Reasoning => self.end_lines(at),
            };
            self.push("response.output_item.done", json!({"output_index": at, "item": item}));
            output.push(item);
        }
        let response = self.object.to_json(state, &output);
        self.push(&state.last_event(), json!({"response": response}));
    }

    fn end_answer(&mut self, at: usize, answer: &str, status: &str) -> Value {
        let id = self.object.answer_id();
        let fields = json!({"content_index": 0, "text": answer, "logprobs": []});
        self.push_part("response.output_text.done", &id, at, fields);
        let fields = json!({"content_index": 0, "part": text_part(answer)});
        self.push_part("response.content_part.done", &id, at, fields);
        self.object.answer_item(Some(answer), status)
    }

    fn end_lines(&mut self, at: usize) -> Value {
        let (id, lines) = (self.object.reasoning_id(), std::mem::take(&mut self.lines));
        let fields = json!({"summary_index": 0, "text": lines});
        self.push_part("response.reasoning_summary_text.done", &id, at, fields);
        let fields = json!({"summary_index": 0, "part": summary_part(&lines)});
        self.push_part("response.reasoning_summary_part.done", &id, at, fields);
        self.object.reasoning_item(Some(&lines), "completed")
    }

    fn push_part(&mut self, kind: &str, id: &str, at: usize, mut fields: Value) {
        fields["item_id"] = json!(id);
        fields["output_index"] = json!(at);
        self.push(kind, fields);
    }

    fn push(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = json!(kind);
        fields["sequence_number"] = json!(self.number);
        self.number += 1;
        self.ready.queue.push_back(event_stream::named_event(kind, &fields));
    }
}
