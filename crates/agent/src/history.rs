//! What was said in a conversation, bounded, and always in the form that model servers accept:
//! each call of an assistant message is answered by a tool message before anything else is said.

use rockbot_llm::{ChatMessage, ToolCallRequest};

/// What stands in place of a tool result that had to go.
const LEFT_OUT: &str = "(an older tool result, left out for room)";
/// A tool result longer than this is cut when the model says that the conversation is too long.
const LONG_RESULT_BYTES: usize = 4 * 1024;

/// The messages of a conversation, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    messages: Vec<ChatMessage>,
    bytes: usize,
    most_messages: usize,
    most_bytes: usize,
}

impl History {
    pub(crate) fn new(most_messages: usize, most_bytes: usize) -> Self {
        Self { messages: Vec::new(), bytes: 0, most_messages, most_bytes }
    }

    pub(crate) fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    pub(crate) fn push(&mut self, message: ChatMessage) {
        self.bytes += size(&message);
        self.messages.push(message);
    }

    /// Brings it back within its bounds: whole exchanges go from the oldest, and when only the
    /// running one is left, its oldest tool results.
    pub(crate) fn fit(&mut self) {
        while self.is_over() && self.drop_oldest_exchange() {}
        let mut excess = self.bytes.saturating_sub(self.most_bytes);
        for message in &mut self.messages {
            if excess == 0 {
                break;
            }
            if let ChatMessage::Tool { content, .. } = message
                && content.len() > LEFT_OUT.len()
            {
                excess = excess.saturating_sub(content.len() - LEFT_OUT.len());
                LEFT_OUT.clone_into(content);
            }
        }
        self.recount();
    }

    /// Makes it shorter for a model that can't read so much: cuts long tool results, else drops
    /// the older half of the exchanges. False when neither is left.
    pub(crate) fn shorten(&mut self) -> bool {
        let mut shortened = false;
        for message in &mut self.messages {
            if let ChatMessage::Tool { content, .. } = message
                && content.len() > LONG_RESULT_BYTES
            {
                let cut = content.floor_char_boundary(LONG_RESULT_BYTES / 2);
                let omitted = content.len() - cut;
                content.truncate(cut);
                content.push_str(&format!("\n[cut for the model's context: {omitted} bytes]"));
                shortened = true;
            }
        }
        if !shortened {
            let exchanges = self.messages.iter().filter(|message| is_user(message)).count();
            for _ in 0..exchanges.div_ceil(2) {
                shortened |= self.drop_oldest_exchange();
            }
        }
        self.recount();
        shortened
    }

    fn is_over(&self) -> bool {
        self.messages.len() > self.most_messages || self.bytes > self.most_bytes
    }

    /// An exchange begins with what a person says. The last one stays.
    fn drop_oldest_exchange(&mut self) -> bool {
        let next = self.messages.iter().skip(1).position(is_user);
        let Some(end) = next.map(|position| position + 1) else { return false };
        self.bytes -= self.messages.drain(..end).map(|message| size(&message)).sum::<usize>();
        true
    }

    fn recount(&mut self) {
        self.bytes = self.messages.iter().map(size).sum();
    }
}

fn is_user(message: &ChatMessage) -> bool {
    matches!(message, ChatMessage::User(_))
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
    use super::*;

    fn exchange(history: &mut History, user: &str, result: &str) {
        history.push(ChatMessage::User(user.to_owned()));
        let call = ToolCallRequest { id: "1".into(), name: "look".into(), arguments: "{}".into() };
        history.push(ChatMessage::Assistant { text: String::new(), tool_calls: vec![call] });
        let content = result.to_owned();
        history.push(ChatMessage::Tool { tool_call_id: "1".into(), content });
        history.push(ChatMessage::Assistant { text: "done".into(), tool_calls: Vec::new() });
    }

    fn users(history: &History) -> Vec<&str> {
        let mut users = Vec::new();
        for message in history.messages() {
            if let ChatMessage::User(text) = message {
                users.push(text.as_str());
            }
        }
        users
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
        history.push(ChatMessage::Tool { tool_call_id: "2".into(), content: "y".repeat(900) });
        history.fit();
        let results: Vec<_> = history
            .messages()
            .iter()
            .filter_map(|message| match message {
                ChatMessage::Tool { content, .. } => Some(content.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(results[0], LEFT_OUT);
        assert_eq!(results[1].len(), 900);
        assert!(history.bytes <= 1000);
    }

    #[test]
    fn shortening_cuts_results_first_then_drops_exchanges_then_gives_up() {
        let mut history = History::new(100, 1_000_000);
        exchange(&mut history, "a", &"ü".repeat(5000));
        exchange(&mut history, "b", "short");
        assert!(history.shorten());
        assert_eq!(users(&history), ["a", "b"]);
        assert!(history.bytes < 5000);
        assert!(history.shorten());
        assert_eq!(users(&history), ["b"]);
        assert!(!history.shorten());
    }
}
