//! Encoding of entries, bounded in size.

use bytes::Bytes;
use rockbot_store::MAX_LOG_ENTRY_BYTES;
use serde::Deserialize;

use super::{
    entry::{ConversationEntry, RecordedEntry, VERSION},
    error::EntryProblem,
};

/// Note at the end of a text that was too large for an entry.
const CUT_NOTE: &str = "\n(truncated: too large to be recorded)";

/// Encodes an entry. The text of a result or an answer that does not fit is truncated in `entry`, so that
/// the caller uses the recorded entry.
///
/// # Errors
/// [`EntryProblem::TooLarge`] if the entry exceeds 1 MiB all the same.
pub(crate) fn encode(entry: &mut ConversationEntry) -> Result<Bytes, EntryProblem> {
    loop {
        let recorded = RecordedEntry::now(entry.clone());
        let bytes = serde_json::to_vec(&recorded).map_err(|_| EntryProblem::Damaged)?;
        if bytes.len() <= MAX_LOG_ENTRY_BYTES {
            return Ok(bytes.into());
        }
        let text = match entry {
            ConversationEntry::Result(result) => &mut result.text,
            ConversationEntry::Answer(answer) => {
                answer.history =
                    answer.history.take().map(|text| cut(text, MAX_LOG_ENTRY_BYTES / 16));
                &mut answer.text
            }
            _ => return Err(EntryProblem::TooLarge { bytes: bytes.len() }),
        };
        if text.len() <= CUT_NOTE.len() * 2 {
            return Err(EntryProblem::TooLarge { bytes: bytes.len() });
        }
        // Escapes may make the encoded text larger than the text.
        let kept = (text.len() / 2).min(MAX_LOG_ENTRY_BYTES * 7 / 8);
        *text = cut(std::mem::take(text), kept);
    }
}

fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push_str(CUT_NOTE);
    }
    text
}

/// Decodes an entry.
///
/// # Errors
/// When it is of a newer version, or damaged.
pub(crate) fn decode(value: &[u8]) -> Result<RecordedEntry, EntryProblem> {
    #[derive(Deserialize)]
    struct Header {
        v: u32,
    }
    match serde_json::from_slice::<RecordedEntry>(value) {
        Ok(recorded) if recorded.v <= VERSION => Ok(recorded),
        Ok(recorded) => Err(EntryProblem::Newer { version: recorded.v }),
        Err(_) => match serde_json::from_slice::<Header>(value) {
            Ok(Header { v }) if v > VERSION => Err(EntryProblem::Newer { version: v }),
            _ => Err(EntryProblem::Damaged),
        },
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{Executed, MessageId, Spending, ToolCallId};
    use rockbot_tools::EntryPoint;

    use super::*;
    use crate::conversation::{CallEntry, MessageEntry, ModelEntry, ResultEntry};

    fn result(text: String) -> ConversationEntry {
        let call = ToolCallId::generate();
        let (error, child) = (None, Spending::default());
        ConversationEntry::Result(ResultEntry {
            call,
            text,
            executed: Executed::Yes,
            error,
            media: 0,
            ms: 12_345,
            child,
            inner_calls: 0,
            delegations: None,
            mcp: None,
        })
    }

    fn model() -> ConversationEntry {
        let call = CallEntry {
            call: ToolCallId::generate(),
            id: "call_1".to_owned(),
            name: "read_file".to_owned(),
            tool: None,
            arguments: "{}".to_owned(),
        };
        let cost = Spending {
            model_calls: 1,
            prompt_tokens: 12_345,
            completion_tokens: 123,
            cost_micros: 4321,
            ..Spending::default()
        };
        let (text, context) = ("Let me look.".to_owned(), None);
        ConversationEntry::Model(ModelEntry {
            text,
            calls: vec![call],
            truncated: false,
            context,
            cost,
        })
    }

    #[test]
    fn entries_are_read_as_written() {
        let message = ConversationEntry::Message(Box::new(MessageEntry {
            id: MessageId::generate(),
            sender: Some("rockbot.user".to_owned()),
            reply_to: None,
            text: "hi".to_owned(),
            media: vec!["aGk=".to_owned()],
            entry: EntryPoint::LateA2aReply,
            deadline: Some(1_700_000_600_000),
            trace: None,
            span: None,
            task: None,
            task_results: None,
        }));
        for mut entry in [message, model(), result("x".to_owned())] {
            let bytes = encode(&mut entry).unwrap();
            assert_eq!(decode(&bytes).unwrap().entry, entry);
        }
    }

    #[test]
    fn message_of_an_earlier_build_has_no_deadline() {
        let text = r#"{"v":1,"at":1700000000000,"kind":"message","id":"m","text":"hi","entry":"user_turn"}"#;
        let ConversationEntry::Message(message) = decode(text.as_bytes()).unwrap().entry else {
            panic!("another entry");
        };
        assert_eq!((message.text.as_str(), message.deadline), ("hi", None));
    }

    #[test]
    fn step_adds_at_most_150_bytes_to_its_payload() {
        let ids = 32;
        let payload = "x".repeat(500).len();
        let bytes = encode(&mut result("x".repeat(500))).unwrap().len();
        assert!(bytes <= payload + ids + 150, "{bytes}");
        let payload = "Let me look.".len() + "call_1".len() + "read_file".len() + "{}".len();
        let bytes = encode(&mut model()).unwrap().len();
        assert!(bytes <= payload + ids + 150, "{bytes}");
    }

    #[test]
    fn too_large_text_is_truncated_and_other_entries_are_refused() {
        for text in ["x".repeat(3 * MAX_LOG_ENTRY_BYTES), "\u{1}".repeat(MAX_LOG_ENTRY_BYTES)] {
            let mut entry = result(text);
            let bytes = encode(&mut entry).unwrap();
            assert!(bytes.len() <= MAX_LOG_ENTRY_BYTES);
            assert!(bytes.len() > MAX_LOG_ENTRY_BYTES / 4, "{}", bytes.len());
            let ConversationEntry::Result(result) = entry else { panic!("another entry") };
            assert!(result.text.ends_with(CUT_NOTE));
        }
        let mut entry = model();
        if let ConversationEntry::Model(model) = &mut entry {
            model.text = "x".repeat(MAX_LOG_ENTRY_BYTES);
        }
        assert!(matches!(encode(&mut entry), Err(EntryProblem::TooLarge { .. })));
    }
}
