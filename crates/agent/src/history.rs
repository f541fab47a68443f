//! The bounded history of a conversation, in the form that model servers accept: each tool call of an
//! assistant message is followed by its tool message.
//!
//! An exchange is a user message and all that follows it until the next; the last one is current.

use std::borrow::Cow;

use rockbot_llm::{ChatMessage, TokenCounter, ToolCallRequest};

use crate::large_results::truncated;

/// Replaces an omitted tool result.
const OMITTED_RESULT: &str = "(older tool result omitted)";
/// Note at the end of a message whose images and recordings are omitted.
const OMITTED_MEDIA: &str = "\n[older image or recording omitted]";
/// Maximum size of the images and recordings of a conversation, in bytes of base64.
const MAX_MEDIA_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of a tool result that is never truncated, in bytes.
const SHORT_RESULT_BYTES: usize = 512;
/// Tokens of a message besides its text.
const MESSAGE_OVERHEAD_TOKENS: usize = 4;

/// The messages of a conversation, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    entries: Vec<HistoryEntry>,
    max_messages: usize,
    max_bytes: usize,
}

/// A message and its size in tokens.
#[derive(Debug)]
struct HistoryEntry {
    message: ChatMessage,
    tokens: usize,
}

impl History {
    pub(crate) fn new(max_messages: usize, max_bytes: usize) -> Self {
        Self { entries: Vec::new(), max_messages, max_bytes }
    }

    pub(crate) fn messages(&self) -> impl ExactSizeIterator<Item = &ChatMessage> {
        self.entries.iter().map(|entry| &entry.message)
    }

    /// Sets the tokens of each message's [`message_text`], in order.
    pub(crate) fn set_tokens(&mut self, tokens: impl IntoIterator<Item = usize>) {
        for (entry, tokens) in self.entries.iter_mut().zip(tokens) {
            entry.tokens = tokens + MESSAGE_OVERHEAD_TOKENS;
        }
    }

    /// Returns the texts of the user messages.
    pub(crate) fn user_texts(&self) -> impl Iterator<Item = &str> {
        self.messages().filter_map(|message| match message {
            ChatMessage::User(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Adds a message whose [`message_text`] has `tokens` tokens.
    pub(crate) fn push(&mut self, message: ChatMessage, tokens: usize) {
        self.entries.push(HistoryEntry { message, tokens: tokens + MESSAGE_OVERHEAD_TOKENS });
    }

    pub(crate) fn tokens(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens).sum()
    }

    /// Returns the tokens of the current exchange, which is never dropped.
    pub(crate) fn current_exchange_tokens(&self) -> usize {
        let start = self.entries.iter().rposition(HistoryEntry::is_user).unwrap_or(0);
        self.entries[start..].iter().map(|entry| entry.tokens).sum()
    }

    /// Enforces the limits: drops whole exchanges, oldest first. If only the current exchange is left,
    /// omits its oldest tool results. Images and recordings have a limit of their own.
    pub(crate) fn fit(&mut self) {
        self.omit_media_while(|history| history.media_bytes() > MAX_MEDIA_BYTES);
        let (messages, bytes) = (self.max_messages, self.max_bytes);
        while (self.entries.len() > messages || self.bytes() > bytes) && self.drop_oldest_exchange()
        {
        }
        self.omit_results_while(|history| history.bytes() > bytes);
    }

    /// Drops the exchanges that do not fit beside another message.
    pub(crate) fn make_room(&mut self) {
        while self.entries.len() >= self.max_messages && self.drop_oldest_exchange() {}
    }

    /// Enforces a limit in tokens like [`fit`](Self::fit). Messages of the current exchange are never
    /// dropped; only its tool results are omitted, so the history may remain larger.
    pub(crate) fn fit_tokens(&mut self, max_tokens: usize) {
        while self.tokens() > max_tokens && self.drop_oldest_exchange() {}
        self.omit_media_while(|history| history.tokens() > max_tokens);
        self.omit_results_while(|history| history.tokens() > max_tokens);
    }

    /// Halves the size after the model rejected it: omits the older half of images and recordings,
    /// truncates the largest tool results, then drops the oldest exchanges, then omits results. Returns
    /// `true` if the history became shorter.
    pub(crate) fn trim(&mut self) -> bool {
        let media = self.media_entries();
        self.omit_media_while(|history| history.media_entries() > media / 2);
        let before = self.bytes();
        let target = before / 2;
        while self.bytes() > target && self.truncate_largest_result() {}
        while self.bytes() > target && self.drop_oldest_exchange() {}
        self.omit_results_while(|history| history.bytes() > target);
        media > 0 || self.bytes() < before
    }

    /// Omits images and recordings, oldest first. A note is left in the message that they belong to.
    fn omit_media_while(&mut self, exceeds_limit: impl Fn(&Self) -> bool) {
        let mut at = 0;
        while at < self.entries.len() && exceeds_limit(self) {
            if !matches!(self.entries[at].message, ChatMessage::Media(_)) {
                at += 1;
                continue;
            }
            self.entries.remove(at);
            if let Some(entry) = at.checked_sub(1).and_then(|before| self.entries.get_mut(before)) {
                entry.add_note(OMITTED_MEDIA);
            }
        }
    }

    /// Halves the largest tool result.
    fn truncate_largest_result(&mut self) -> bool {
        let largest =
            self.entries.iter_mut().max_by_key(|entry| entry.result().map_or(0, str::len));
        let Some(entry) = largest else { return false };
        let Some(text) = entry.result().filter(|text| text.len() > SHORT_RESULT_BYTES) else {
            return false;
        };
        let half = text[..text.floor_char_boundary(text.len() / 2)].chars().count();
        let text = truncated(text.to_owned(), half);
        entry.replace_result(text);
        true
    }

    fn omit_results_while(&mut self, exceeds_limit: impl Fn(&Self) -> bool) {
        for at in 0..self.entries.len() {
            if !exceeds_limit(self) {
                return;
            }
            if self.entries[at].result().is_some_and(|text| text.len() > OMITTED_RESULT.len()) {
                self.entries[at].replace_result(OMITTED_RESULT.to_owned());
            }
        }
    }

    /// Drops the oldest exchange. The current exchange is kept.
    fn drop_oldest_exchange(&mut self) -> bool {
        let next = self.entries.iter().skip(1).position(HistoryEntry::is_user);
        let Some(end) = next.map(|position| position + 1) else { return false };
        self.entries.drain(..end);
        true
    }

    fn media_entries(&self) -> usize {
        self.messages().filter(|message| matches!(message, ChatMessage::Media(_))).count()
    }

    fn media_bytes(&self) -> usize {
        let bytes = |message: &ChatMessage| match message {
            ChatMessage::Media(media) => media.iter().map(|media| media.base64().len()).sum(),
            _ => 0,
        };
        self.messages().map(bytes).sum()
    }

    /// Returns the size of the text.
    fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| message_bytes(&entry.message)).sum()
    }
}

impl HistoryEntry {
    fn is_user(&self) -> bool {
        matches!(self.message, ChatMessage::User(_))
    }

    fn result(&self) -> Option<&str> {
        match &self.message {
            ChatMessage::Tool { content, .. } => Some(content),
            _ => None,
        }
    }

    fn add_note(&mut self, note: &str) {
        if let ChatMessage::User(text) | ChatMessage::Tool { content: text, .. } = &mut self.message
        {
            text.push_str(note);
            self.tokens += TokenCounter::estimate(note);
        }
    }

    /// Replaces a tool result by a shorter text.
    fn replace_result(&mut self, text: String) {
        if let ChatMessage::Tool { content, .. } = &mut self.message {
            let share = self.tokens.saturating_mul(text.len()).div_ceil(content.len().max(1));
            self.tokens = self.tokens.min(share + MESSAGE_OVERHEAD_TOKENS);
            *content = text;
        }
    }
}

/// Returns the text that the model reads of a message.
pub(crate) fn message_text(message: &ChatMessage) -> Cow<'_, str> {
    match message {
        ChatMessage::System(text) | ChatMessage::User(text) => Cow::Borrowed(text),
        ChatMessage::Tool { content, .. } => Cow::Borrowed(content),
        ChatMessage::Assistant { text, tool_calls } if tool_calls.is_empty() => Cow::Borrowed(text),
        ChatMessage::Assistant { text, tool_calls } => {
            let call =
                |call: &ToolCallRequest| format!(" {} {} {}", call.id, call.name, call.arguments);
            Cow::Owned(tool_calls.iter().fold(text.clone(), |text, one| text + &call(one)))
        }
        ChatMessage::Media(_) => Cow::Borrowed(""),
    }
}

fn message_bytes(message: &ChatMessage) -> usize {
    let call_bytes =
        |call: &ToolCallRequest| call.id.len() + call.name.len() + call.arguments.len();
    match message {
        ChatMessage::System(text) | ChatMessage::User(text) => text.len(),
        ChatMessage::Assistant { text, tool_calls } => {
            text.len() + tool_calls.iter().map(call_bytes).sum::<usize>()
        }
        ChatMessage::Tool { tool_call_id, content } => tool_call_id.len() + content.len(),
        ChatMessage::Media(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use rockbot_llm::Media;

    use super::*;

    fn push(history: &mut History, message: ChatMessage) {
        let tokens = TokenCounter::estimate(&message_text(&message));
        history.push(message, tokens);
    }

    fn exchange(history: &mut History, user: &str, result: &str) {
        push(history, ChatMessage::User(user.to_owned()));
        let call = ToolCallRequest { id: "1".into(), name: "look".into(), arguments: "{}".into() };
        push(history, ChatMessage::Assistant { text: String::new(), tool_calls: vec![call] });
        let content = result.to_owned();
        push(history, ChatMessage::Tool { tool_call_id: "1".into(), content });
        push(history, ChatMessage::Assistant { text: "done".into(), tool_calls: Vec::new() });
    }

    fn users(history: &History) -> Vec<&str> {
        let users = history.messages().filter_map(|message| match message {
            ChatMessage::User(text) => Some(text.as_str()),
            _ => None,
        });
        users.collect()
    }

    fn results(history: &History) -> Vec<&str> {
        history.entries.iter().filter_map(HistoryEntry::result).collect()
    }

    #[test]
    fn oldest_exchanges_are_dropped_first() {
        let mut history = History::new(9, 1000);
        for user in ["a", "b", "c"] {
            exchange(&mut history, user, "result");
            history.fit();
        }
        assert_eq!(users(&history), ["b", "c"]);
        assert_eq!(history.messages().len(), 8);
        exchange(&mut history, "d", &"x".repeat(980));
        history.fit();
        assert_eq!(users(&history), ["d"]);
    }

    #[test]
    fn current_exchange_omits_oldest_results() {
        let mut history = History::new(100, 1000);
        exchange(&mut history, "a", &"x".repeat(900));
        let content = "y".repeat(900);
        push(&mut history, ChatMessage::Tool { tool_call_id: "2".into(), content });
        history.fit();
        assert_eq!(results(&history)[0], OMITTED_RESULT);
        assert_eq!(results(&history)[1].len(), 900);
        assert!(history.bytes() <= 1000);
    }

    #[test]
    fn token_limit_is_enforced() {
        let mut history = History::new(100, 1_000_000);
        for user in ["a", "b"] {
            exchange(&mut history, user, &"x".repeat(4000));
        }
        history.fit_tokens(1500);
        assert_eq!(users(&history), ["b"]);
        assert_eq!(history.tokens(), history.current_exchange_tokens());
        history.fit_tokens(500);
        assert_eq!(results(&history), [OMITTED_RESULT]);
        assert!(history.tokens() < 100, "{}", history.tokens());
        history.fit_tokens(0);
        assert_eq!(users(&history), ["b"], "messages are kept");
    }

    #[test]
    fn oldest_media_is_omitted_with_a_note() {
        let gif = Media::from_base64("R0lGODlhAQABAAAA").unwrap();
        let mut history = History::new(100, 1_000_000);
        for user in ["a", "b"] {
            push(&mut history, ChatMessage::User(user.to_owned()));
            history.push(ChatMessage::Media(vec![gif.clone()]), 2000);
        }
        history.fit();
        assert_eq!(history.media_entries(), 2);
        history.fit_tokens(3000);
        assert_eq!((users(&history), history.media_entries()), (vec!["b"], 1));
        history.fit_tokens(1000);
        assert_eq!(users(&history), [format!("b{OMITTED_MEDIA}")]);
        assert!(history.tokens() < 50, "{}", history.tokens());

        history.push(ChatMessage::Media(vec![gif]), 2000);
        assert!(history.trim());
        assert_eq!(history.media_entries(), 0);
    }

    #[test]
    fn note_counts_all_omitted_characters() {
        let mut history = History::new(100, 1_000_000);
        exchange(&mut history, "a", &"ü".repeat(5000));
        assert!(history.truncate_largest_result() && history.truncate_largest_result());
        let (kept, note) = results(&history)[0].split_once('\n').unwrap();
        let missing = 5000 - kept.chars().count();
        assert!((3500..4000).contains(&missing), "{missing}");
        assert_eq!(note, format!("[result truncated — {missing} chars omitted]"));
    }

    #[test]
    fn trim_truncates_largest_results_first_and_terminates() {
        let mut history = History::new(100, 1_000_000);
        exchange(&mut history, "a", &"ü".repeat(5000));
        exchange(&mut history, "b", &"y".repeat(3000));
        assert!(history.trim());
        assert_eq!(users(&history), ["a", "b"]);
        assert!(results(&history)[0].ends_with("chars omitted]"));
        assert_eq!(results(&history)[1].len(), 3000, "the smaller one is unchanged");
        let mut bytes = history.bytes();
        let mut times = 0;
        while history.trim() {
            assert!(history.bytes() < bytes);
            bytes = history.bytes();
            times += 1;
        }
        assert!(times < 30, "{times}");
        assert_eq!((users(&history), results(&history)), (vec!["b"], vec![OMITTED_RESULT]));
    }
}
