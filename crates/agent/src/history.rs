//! What was said in a conversation, bounded, and always in the form that model servers accept:
//! each call of an assistant message is answered by a tool message before anything else is said.

use std::borrow::Cow;

use rockbot_llm::{ChatMessage, ToolCallRequest};

use crate::large::truncated;

/// What stands in place of a tool result that had to go.
const LEFT_OUT: &str = "(an older tool result, left out for room)";
/// A tool result of this size is not worth cutting.
const SHORT_RESULT_BYTES: usize = 512;
/// What a message costs beside its words, in tokens.
const TOKENS_AROUND: usize = 4;

/// The messages of a conversation, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    said: Vec<Said>,
    most_messages: usize,
    most_bytes: usize,
}

/// A message and its size in tokens, as the counter of the model's tokens has it.
#[derive(Debug)]
struct Said {
    message: ChatMessage,
    tokens: usize,
}

impl History {
    pub(crate) fn new(most_messages: usize, most_bytes: usize) -> Self {
        Self { said: Vec::new(), most_messages, most_bytes }
    }

    pub(crate) fn messages(&self) -> impl ExactSizeIterator<Item = &ChatMessage> {
        self.said.iter().map(|said| &said.message)
    }

    /// Adds a message whose [`words`] are so many tokens.
    pub(crate) fn push(&mut self, message: ChatMessage, tokens: usize) {
        self.said.push(Said { message, tokens: tokens + TOKENS_AROUND });
    }

    pub(crate) fn tokens(&self) -> usize {
        self.said.iter().map(|said| said.tokens).sum()
    }

    /// The tokens of the running exchange, which no other can make room for.
    pub(crate) fn running_tokens(&self) -> usize {
        let begins = self.said.iter().rposition(Said::is_user).unwrap_or(0);
        self.said[begins..].iter().map(|said| said.tokens).sum()
    }

    /// Brings it back within its bounds: whole exchanges go from the oldest, and when only the
    /// running one is left, its oldest tool results.
    pub(crate) fn fit(&mut self) {
        let (messages, bytes) = (self.most_messages, self.most_bytes);
        while (self.said.len() > messages || self.bytes() > bytes) && self.drop_oldest_exchange() {}
        self.leave_out_results_while(|history| history.bytes() > bytes);
    }

    /// The same for so many tokens. What people and the model said in the running exchange stays,
    /// so it may be more.
    pub(crate) fn fit_tokens(&mut self, most: usize) {
        while self.tokens() > most && self.drop_oldest_exchange() {}
        self.leave_out_results_while(|history| history.tokens() > most);
    }

    /// Makes it about half as long for a model that can't read so much: cuts the largest tool
    /// results first, then drops the oldest exchanges, then leaves out results. False when there is
    /// nothing left to shorten: each time it is true, there is less.
    pub(crate) fn trim(&mut self) -> bool {
        let before = self.bytes();
        let target = before / 2;
        while self.bytes() > target && self.cut_largest_result() {}
        while self.bytes() > target && self.drop_oldest_exchange() {}
        self.leave_out_results_while(|history| history.bytes() > target);
        self.bytes() < before
    }

    /// Halves the largest tool result that is worth it.
    fn cut_largest_result(&mut self) -> bool {
        let largest = self.said.iter_mut().max_by_key(|said| said.result().map_or(0, str::len));
        let Some(said) = largest else { return false };
        let Some(text) = said.result().filter(|text| text.len() > SHORT_RESULT_BYTES) else {
            return false;
        };
        let half = text[..text.floor_char_boundary(text.len() / 2)].chars().count();
        let text = truncated(text.to_owned(), half);
        said.replace_result(text);
        true
    }

    fn leave_out_results_while(&mut self, is_too_much: impl Fn(&Self) -> bool) {
        for at in 0..self.said.len() {
            if !is_too_much(self) {
                return;
            }
            if self.said[at].result().is_some_and(|text| text.len() > LEFT_OUT.len()) {
                self.said[at].replace_result(LEFT_OUT.to_owned());
            }
        }
    }

    /// An exchange begins with what a person says. The last one stays.
    fn drop_oldest_exchange(&mut self) -> bool {
        let next = self.said.iter().skip(1).position(Said::is_user);
        let Some(end) = next.map(|position| position + 1) else { return false };
        self.said.drain(..end);
        true
    }

    fn bytes(&self) -> usize {
        self.said.iter().map(|said| size(&said.message)).sum()
    }
}

impl Said {
    fn is_user(&self) -> bool {
        matches!(self.message, ChatMessage::User(_))
    }

    fn result(&self) -> Option<&str> {
        match &self.message {
            ChatMessage::Tool { content, .. } => Some(content),
            _ => None,
        }
    }

    /// Puts a shorter text in the place of a tool result.
    fn replace_result(&mut self, text: String) {
        if let ChatMessage::Tool { content, .. } = &mut self.message {
            let share = self.tokens.saturating_mul(text.len()).div_ceil(content.len().max(1));
            self.tokens = self.tokens.min(share + TOKENS_AROUND);
            *content = text;
        }
    }
}

/// All that a model reads of a message.
pub(crate) fn words(message: &ChatMessage) -> Cow<'_, str> {
    match message {
        ChatMessage::System(text) | ChatMessage::User(text) => Cow::Borrowed(text),
        ChatMessage::Tool { content, .. } => Cow::Borrowed(content),
        ChatMessage::Assistant { text, tool_calls } if tool_calls.is_empty() => Cow::Borrowed(text),
        ChatMessage::Assistant { text, tool_calls } => {
            let call =
                |call: &ToolCallRequest| format!(" {} {} {}", call.id, call.name, call.arguments);
            Cow::Owned(tool_calls.iter().fold(text.clone(), |words, one| words + &call(one)))
        }
    }
}

fn size(message: &ChatMessage) -> usize {
    let call_size = |call: &ToolCallRequest| call.id.len() + call.name.len() + call.arguments.len();
    match message {
        ChatMessage::System(text) | ChatMessage::User(text) => text.len(),
        ChatMessage::Assistant { text, tool_calls } => {
            text.len() + tool_calls.iter().map(call_size).sum::<usize>()
        }
        ChatMessage::Tool { tool_call_id, content } => tool_call_id.len() + content.len(),
    }
}

#[cfg(test)]
mod tests {
    use rockbot_llm::TokenCounter;

    use super::*;

    fn push(history: &mut History, message: ChatMessage) {
        let tokens = TokenCounter::estimate(&words(&message));
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
        history.said.iter().filter_map(Said::result).collect()
    }

    #[test]
    fn whole_exchanges_go_from_the_oldest() {
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
    fn the_running_exchange_stays_and_loses_its_oldest_results() {
        let mut history = History::new(100, 1000);
        exchange(&mut history, "a", &"x".repeat(900));
        let content = "y".repeat(900);
        push(&mut history, ChatMessage::Tool { tool_call_id: "2".into(), content });
        history.fit();
        assert_eq!(results(&history)[0], LEFT_OUT);
        assert_eq!(results(&history)[1].len(), 900);
        assert!(history.bytes() <= 1000);
    }

    #[test]
    fn tokens_are_fitted_like_bytes() {
        let mut history = History::new(100, 1_000_000);
        for user in ["a", "b"] {
            exchange(&mut history, user, &"x".repeat(4000));
        }
        history.fit_tokens(1500);
        assert_eq!(users(&history), ["b"]);
        assert_eq!(history.tokens(), history.running_tokens());
        history.fit_tokens(500);
        assert_eq!(results(&history), [LEFT_OUT]);
        assert!(history.tokens() < 100, "{}", history.tokens());
        history.fit_tokens(0);
        assert_eq!(users(&history), ["b"], "what was said stays");
    }

    #[test]
    fn a_result_that_is_halved_twice_tells_of_all_that_is_missing() {
        let mut history = History::new(100, 1_000_000);
        exchange(&mut history, "a", &"ü".repeat(5000));
        assert!(history.cut_largest_result() && history.cut_largest_result());
        let (kept, note) = results(&history)[0].split_once('\n').unwrap();
        let missing = 5000 - kept.chars().count();
        assert!((3500..4000).contains(&missing), "{missing}");
        assert_eq!(note, format!("[result truncated — {missing} chars omitted]"));
    }

    #[test]
    fn trimming_takes_the_largest_results_first_and_comes_to_an_end() {
        let mut history = History::new(100, 1_000_000);
        exchange(&mut history, "a", &"ü".repeat(5000));
        exchange(&mut history, "b", &"y".repeat(3000));
        assert!(history.trim());
        assert_eq!(users(&history), ["a", "b"]);
        assert!(results(&history)[0].ends_with("chars omitted]"));
        assert_eq!(results(&history)[1].len(), 3000, "the smaller one is whole");
        let mut bytes = history.bytes();
        let mut times = 0;
        while history.trim() {
            assert!(history.bytes() < bytes);
            bytes = history.bytes();
            times += 1;
        }
        assert!(times < 30, "{times}");
        assert_eq!((users(&history), results(&history)), (vec!["b"], vec![LEFT_OUT]));
    }
}
