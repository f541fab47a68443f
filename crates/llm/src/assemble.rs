//! Assembly of the events of an answer into one assistant message.

use std::collections::HashSet;

use crate::{
    chat::{ChatEvent, ChatMessage, FinishReason, ToolCallRequest, Usage},
    error::ChatError,
    json_depth::JsonDepth,
};

/// The maximum number of tool calls in a message.
pub const MAX_TOOL_CALLS: usize = 128;
/// The longest text of a message, in bytes.
pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// The longest arguments of a call, in bytes.
pub const MAX_ARGUMENTS_BYTES: usize = 1024 * 1024;
/// The longest id and the longest name of a call, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledAnswer {
    /// The text.
    pub text: String,
    /// The tool calls, each with a unique id and a name.
    pub tool_calls: Vec<ToolCallRequest>,
    /// Why the model stopped: [`FinishReason::ToolCalls`] whenever there are calls, although some servers
    /// report `stop` then.
    pub finish_reason: FinishReason,
    /// Token usage, if the server reports it.
    pub usage: Option<Usage>,
}

impl AssembledAnswer {
    /// Converts the answer to the next message of the conversation.
    #[must_use]
    pub fn into_message(self) -> ChatMessage {
        ChatMessage::Assistant { text: self.text, tool_calls: self.tool_calls }
    }
}

/// Collects events until the answer is complete.
///
/// Servers number calls unreliably: a piece is matched by index, or else by id; without either, a name
/// after complete arguments starts a new call.
#[derive(Debug, Default)]
pub struct Assembler {
    text: String,
    calls: Vec<PartialCall>,
    finish_reason: Option<FinishReason>,
    usage: Option<Usage>,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u32>,
    id: String,
    name: String,
    arguments: String,
    nesting: JsonDepth,
}

impl PartialCall {
    /// Returns whether a piece cannot belong to this call.
    fn conflicts_with(&self, piece: &Piece<'_>) -> bool {
        if !piece.id.is_empty() && !self.id.is_empty() {
            return piece.id != self.id;
        }
        if piece.name.is_empty() || self.name.is_empty() {
            return false;
        }
        piece.name != self.name || (self.nesting.is_closed() && !piece.arguments.trim().is_empty())
    }

    fn push(&mut self, piece: &Piece<'_>) -> Result<(), ChatError> {
        if self.id.is_empty() {
            self.id.push_str(piece.id);
        }
        if self.name.is_empty() {
            self.name.push_str(piece.name);
        }
        self.nesting.read(piece.arguments);
        append(&mut self.arguments, piece.arguments, "bytes of arguments", MAX_ARGUMENTS_BYTES)
    }
}

struct Piece<'a> {
    index: Option<u32>,
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
}

impl Assembler {
    /// Creates an empty assembler.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next event.
    ///
    /// # Errors
    /// [`ChatError::TooLarge`] when the answer exceeds a limit of this module, and
    /// [`ChatError::Malformed`] for a piece of a call that was never started.
    pub fn push(&mut self, event: ChatEvent) -> Result<(), ChatError> {
        match event {
            ChatEvent::Text(text) => {
                append(&mut self.text, &text, "bytes of text", MAX_TEXT_BYTES)?;
            }
            ChatEvent::ToolCallDelta { index, id, name, arguments } => {
                let id = id.as_deref().unwrap_or_default();
                let name = name.as_deref().unwrap_or_default();
                self.push_call(&Piece { index, id, name, arguments: &arguments })?;
            }
            ChatEvent::Usage(usage) => self.usage = Some(usage),
            ChatEvent::Finished(reason) => self.finish_reason = Some(reason),
        }
        Ok(())
    }

    /// Returns the text so far, to show the start of an interrupted answer.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the complete answer.
    ///
    /// Calls without an id get one, and calls without arguments get `{}`.
    ///
    /// # Errors
    /// [`ChatError::Interrupted`] without a [`ChatEvent::Finished`], and
    /// [`ChatError::Malformed`] for a call without a name.
    pub fn finish(self) -> Result<AssembledAnswer, ChatError> {
        let Some(mut finish_reason) = self.finish_reason else {
            return Err(ChatError::Interrupted { source: None });
        };
        if !self.calls.is_empty() && finish_reason == FinishReason::Stop {
            finish_reason = FinishReason::ToolCalls;
        }
        let mut ids = HashSet::new();
        let mut tool_calls = Vec::with_capacity(self.calls.len());
        for call in self.calls {
            if call.name.is_empty() {
                return Err(ChatError::malformed("a tool call has no name"));
            }
            let mut id = call.id;
            while id.is_empty() || !ids.insert(id.clone()) {
                id = format!("call_{:032x}", rand::random::<u128>());
            }
            let arguments =
                if call.arguments.trim().is_empty() { "{}".to_owned() } else { call.arguments };
            tool_calls.push(ToolCallRequest { id, name: call.name, arguments });
        }
        Ok(AssembledAnswer { text: self.text, tool_calls, finish_reason, usage: self.usage })
    }

    fn push_call(&mut self, piece: &Piece<'_>) -> Result<(), ChatError> {
        if piece.id.len() > MAX_NAME_BYTES || piece.name.len() > MAX_NAME_BYTES {
            let what = "bytes in the id or the name of a tool call";
            return Err(ChatError::TooLarge { what, limit: MAX_NAME_BYTES });
        }
        if let Some(position) = self.find(piece) {
            return self.calls[position].push(piece);
        }
        if self.calls.len() == MAX_TOOL_CALLS {
            return Err(ChatError::TooLarge { what: "tool calls", limit: MAX_TOOL_CALLS });
        }
        if piece.index.is_none() && piece.id.is_empty() && piece.name.is_empty() {
            return Err(ChatError::malformed("arguments of a tool call that was never started"));
        }
        let mut call = PartialCall { index: piece.index, ..PartialCall::default() };
        call.push(piece)?;
        self.calls.push(call);
        Ok(())
    }

    /// Returns the position of the call that a piece continues. The latest call with an index counts,
    /// because some servers give every call the index 0.
    fn find(&self, piece: &Piece<'_>) -> Option<usize> {
        let same_id = |call: &PartialCall| !piece.id.is_empty() && call.id == piece.id;
        let position = match piece.index {
            Some(_) => self.calls.iter().rposition(|call| call.index == piece.index)?,
            None => match self.calls.iter().rposition(same_id) {
                Some(known) => known,
                None => self.calls.len().checked_sub(1)?,
            },
        };
        (!self.calls[position].conflicts_with(piece)).then_some(position)
    }
}

fn append(
    whole: &mut String,
    piece: &str,
    what: &'static str,
    limit: usize,
) -> Result<(), ChatError> {
    if whole.len() + piece.len() > limit {
        return Err(ChatError::TooLarge { what, limit });
    }
    whole.push_str(piece);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Delta<'a> = (Option<u32>, &'a str, &'a str, &'a str);

    fn push_all(assembler: &mut Assembler, deltas: &[Delta<'_>]) -> Result<(), ChatError> {
        for (index, id, name, arguments) in deltas {
            assembler.push(ChatEvent::ToolCallDelta {
                index: *index,
                id: (!id.is_empty()).then(|| (*id).to_owned()),
                name: (!name.is_empty()).then(|| (*name).to_owned()),
                arguments: (*arguments).to_owned(),
            })?;
        }
        Ok(())
    }

    fn calls(deltas: &[Delta<'_>]) -> Vec<(String, String)> {
        let mut assembler = Assembler::new();
        push_all(&mut assembler, deltas).unwrap();
        assembler.push(ChatEvent::Finished(FinishReason::Stop)).unwrap();
        let answer = assembler.finish().unwrap();
        assert_eq!(answer.finish_reason, FinishReason::ToolCalls);
        let ids: HashSet<_> = answer.tool_calls.iter().map(|call| call.id.clone()).collect();
        assert_eq!(ids.len(), answer.tool_calls.len(), "ids are unique");
        assert!(!ids.contains(""));
        answer.tool_calls.into_iter().map(|call| (call.name, call.arguments)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, args)| ((*name).to_owned(), (*args).to_owned())).collect()
    }

    #[test]
    fn interleaved_pieces_are_matched_by_index() {
        let got = calls(&[
            (Some(0), "a", "read", ""),
            (Some(1), "b", "search", r#"{"q"#),
            (Some(0), "", "", r#"{"path":"#),
            (Some(1), "", "", r#"":"bus"}"#),
            (Some(0), "", "", r#""x"}"#),
        ]);
        assert_eq!(got, pairs(&[("read", r#"{"path":"x"}"#), ("search", r#"{"q":"bus"}"#)]));
    }

    #[test]
    fn complete_calls_stay_separate_with_missing_fields() {
        let two = pairs(&[("add", r#"{"a":1}"#), ("add", r#"{"a":2}"#)]);
        for (case, deltas) in [
            (
                "no index, ids",
                [(None, "x", "add", two[0].1.as_str()), (None, "y", "add", &two[1].1)],
            ),
            ("no index, no id", [(None, "", "add", &two[0].1), (None, "", "add", &two[1].1)]),
            (
                "always index 0",
                [(Some(0), "x", "add", &two[0].1), (Some(0), "y", "add", &two[1].1)],
            ),
            ("index 0, no id", [(Some(0), "", "add", &two[0].1), (Some(0), "", "add", &two[1].1)]),
            ("one id twice", [(Some(0), "x", "add", &two[0].1), (Some(1), "x", "add", &two[1].1)]),
        ] {
            assert_eq!(calls(&deltas), two, "{case}");
        }
    }

    #[test]
    fn repeated_name_continues_call_until_arguments_are_complete() {
        let got = calls(&[
            (None, "", "say", ""),
            (None, "", "say", r#"{"t":"}"#),
            (None, "", "say", r#"\"{" }"#),
            (None, "", "say", ""),
        ]);
        assert_eq!(got, pairs(&[("say", r#"{"t":"}\"{" }"#)]));
    }

    #[test]
    fn call_without_arguments_gets_empty_object() {
        assert_eq!(calls(&[(Some(0), "a", "now", "")]), pairs(&[("now", "{}")]));
    }

    #[test]
    fn answer_without_finish_is_interrupted() {
        let mut assembler = Assembler::new();
        assembler.push(ChatEvent::Text("half".into())).unwrap();
        assert_eq!(assembler.text(), "half");
        assert!(matches!(assembler.finish(), Err(ChatError::Interrupted { .. })));
    }

    #[test]
    fn malformed_calls_are_rejected() {
        let mut assembler = Assembler::new();
        let headless = push_all(&mut assembler, &[(None, "", "", "{}")]);
        assert!(matches!(headless, Err(ChatError::Malformed { .. })));

        push_all(&mut assembler, &[(Some(0), "a", "", "{}")]).unwrap();
        assembler.push(ChatEvent::Finished(FinishReason::ToolCalls)).unwrap();
        assert!(matches!(assembler.finish(), Err(ChatError::Malformed { .. })));
    }

    #[test]
    fn answers_above_limits_are_rejected() {
        let mut assembler = Assembler::new();
        let text = "x".repeat(MAX_TEXT_BYTES);
        assembler.push(ChatEvent::Text(text)).unwrap();
        let more = assembler.push(ChatEvent::Text("x".into()));
        assert!(matches!(more, Err(ChatError::TooLarge { limit: MAX_TEXT_BYTES, .. })));

        let long = "x".repeat(MAX_ARGUMENTS_BYTES + 1);
        let more = push_all(&mut assembler, &[(Some(0), "a", "b", &long)]);
        assert!(matches!(more, Err(ChatError::TooLarge { limit: MAX_ARGUMENTS_BYTES, .. })));

        let name = "n".repeat(MAX_NAME_BYTES + 1);
        let more = push_all(&mut assembler, &[(Some(0), "a", &name, "")]);
        assert!(matches!(more, Err(ChatError::TooLarge { limit: MAX_NAME_BYTES, .. })));

        let deltas: Vec<_> = (0..129).map(|index| (Some(index), "", "t", "")).collect();
        let mut assembler = Assembler::new();
        push_all(&mut assembler, &deltas[..128]).unwrap();
        let more = push_all(&mut assembler, &deltas[128..]);
        assert!(matches!(more, Err(ChatError::TooLarge { limit: MAX_TOOL_CALLS, .. })));
    }
}
