//! Requests that describe tools, calls and results in their texts.

use std::collections::HashMap;

use super::format::{NamedResult, TextCallFormat};
use crate::chat::{ChatMessage, ChatRequest, ToolCallRequest, ToolChoice};

/// Replaces the tools of a request by texts: definitions go to the system message, calls to the answers of
/// the model, and the results of one answer to one user message.
///
/// With [`ToolChoice::None`], only earlier calls and results remain.
pub(crate) fn describe_tools(mut request: ChatRequest, format: TextCallFormat) -> ChatRequest {
    let mut rewriter = MessageRewriter::new(format);
    for message in std::mem::take(&mut request.messages) {
        rewriter.push(message);
    }
    let mut messages = rewriter.finish();
    let tools = std::mem::take(&mut request.tools);
    if !tools.is_empty() && request.tool_choice != ToolChoice::None {
        let is_required = request.tool_choice == ToolChoice::Required;
        let instructions = format.instructions(&tools, is_required);
        match messages.first_mut() {
            Some(ChatMessage::System(text)) => {
                text.push_str("\n\n");
                text.push_str(&instructions);
            }
            _ => messages.insert(0, ChatMessage::System(instructions)),
        }
    }
    ChatRequest { messages, tool_choice: ToolChoice::Auto, ..request }
}

/// Rewrites messages so that calls and results are text.
struct MessageRewriter {
    format: TextCallFormat,
    /// The rewritten messages.
    messages: Vec<ChatMessage>,
    /// The tools of the latest calls, by call id.
    tools: HashMap<String, String>,
    /// Results that are not in `messages` yet: tool and content.
    results: Vec<(String, String)>,
}

impl MessageRewriter {
    fn new(format: TextCallFormat) -> Self {
        Self { format, messages: Vec::new(), tools: HashMap::new(), results: Vec::new() }
    }

    fn push(&mut self, message: ChatMessage) {
        match message {
            ChatMessage::Tool { tool_call_id, content } => {
                let tool = self.tools.get(&tool_call_id).cloned().unwrap_or_default();
                self.results.push((tool, content));
            }
            ChatMessage::Assistant { text, tool_calls } => {
                self.flush(None);
                let text = self.answer(text, &tool_calls);
                let ids = tool_calls.into_iter().map(|call| (call.id, call.name));
                self.tools = ids.collect();
                self.messages.push(ChatMessage::Assistant { text, tool_calls: Vec::new() });
            }
            ChatMessage::User(text) => self.flush(Some(text)),
            message @ (ChatMessage::System(_) | ChatMessage::Media(_)) => {
                self.flush(None);
                self.messages.push(message);
            }
        }
    }

    fn answer(&self, text: String, calls: &[ToolCallRequest]) -> String {
        if calls.is_empty() {
            return text;
        }
        let calls = self.format.render_calls(calls);
        if text.trim().is_empty() { calls } else { format!("{}\n{calls}", text.trim_end()) }
    }

    /// Adds the collected results as a user message, together with the user's own text: the templates of
    /// many models reject two user messages in a row.
    fn flush(&mut self, user_text: Option<String>) {
        let results: Vec<_> =
            self.results.iter().map(|(tool, content)| NamedResult { tool, content }).collect();
        let results = (!results.is_empty()).then(|| self.format.render_results(&results));
        self.results.clear();
        let text = match (results, user_text) {
            (Some(results), Some(text)) => format!("{results}\n\n{text}"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => return,
        };
        self.messages.push(ChatMessage::User(text));
    }

    fn finish(mut self) -> Vec<ChatMessage> {
        self.flush(None);
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::ToolDefinition;

    fn call(id: &str, name: &str, arguments: &str) -> ToolCallRequest {
        ToolCallRequest { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    fn result(id: &str, content: &str) -> ChatMessage {
        ChatMessage::Tool { tool_call_id: id.into(), content: content.into() }
    }

    fn conversation() -> ChatRequest {
        ChatRequest {
            messages: vec![
                ChatMessage::System("Be brief.".into()),
                ChatMessage::User("Find the bus.".into()),
                ChatMessage::Assistant {
                    text: "Searching.\n".into(),
                    tool_calls: vec![
                        call("1", "search", r#"{"q":"bus"}"#),
                        call("2", "now", "{oops"),
                    ],
                },
                result("1", "bus.md"),
                result("2", "(tool failed)"),
                ChatMessage::User("Hurry.".into()),
            ],
            tools: vec![ToolDefinition {
                name: "search".into(),
                description: "Searches.".into(),
                parameters: json!({"type": "object"}),
            }],
            ..ChatRequest::default()
        }
    }

    fn texts(request: &ChatRequest) -> Vec<&str> {
        request
            .messages
            .iter()
            .map(|message| match message {
                ChatMessage::System(text) | ChatMessage::User(text) => text.as_str(),
                ChatMessage::Assistant { text, tool_calls } => {
                    assert!(tool_calls.is_empty());
                    text
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn calls_and_results_are_rendered_in_each_format() {
        for (format, answer, user) in [
            (
                TextCallFormat::Hermes,
                "Searching.\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\":\"bus\"}}\n\
                 </tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"invalid_json\":\"{oops\"}}\n\
                 </tool_call>",
                "<tool_response name=\"search\">\nbus.md\n</tool_response>\n\
                 <tool_response name=\"now\">\n(tool failed)\n</tool_response>\n\nHurry.",
            ),
            (
                TextCallFormat::Llama,
                "Searching.\n{\"name\": \"search\", \"parameters\": {\"q\":\"bus\"}}\n\
                 {\"name\": \"now\", \"parameters\": {\"invalid_json\":\"{oops\"}}",
                "{\"name\": \"search\", \"output\": \"bus.md\"}\n\
                 {\"name\": \"now\", \"output\": \"(tool failed)\"}\n\nHurry.",
            ),
            (
                TextCallFormat::Mistral,
                "Searching.\n[TOOL_CALLS] [{\"name\": \"search\", \"arguments\": {\"q\":\"bus\"}}, \
                 {\"name\": \"now\", \"arguments\": {\"invalid_json\":\"{oops\"}}]",
                "[TOOL_RESULTS] {\"name\": \"search\", \"content\": \"bus.md\"}[/TOOL_RESULTS]\n\
                 [TOOL_RESULTS] {\"name\": \"now\", \"content\": \"(tool failed)\"}[/TOOL_RESULTS]\n\nHurry.",
            ),
            (
                TextCallFormat::DeepSeek,
                "Searching.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n\
                 ```json\n{\"q\":\"bus\"}\n```<｜tool▁call▁end｜>\n\
                 <｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{\"invalid_json\":\"{oops\"}\n\
                 ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>bus.md<｜tool▁output▁end｜>\
                 <｜tool▁output▁begin｜>(tool failed)<｜tool▁output▁end｜><｜tool▁outputs▁end｜>\n\nHurry.",
            ),
        ] {
            let request = describe_tools(conversation(), format);
            let [system, first, got_answer, got_user] = texts(&request)[..] else {
                panic!("{request:?}")
            };
            assert!(request.tools.is_empty());
            assert!(system.starts_with("Be brief.\n\n# Tools"), "{system}");
            assert!(system.contains("\"name\": \"search\""), "{system}");
            assert_eq!((first, got_answer, got_user), ("Find the bus.", answer, user));
        }
    }

    #[test]
    fn no_calls_means_no_instructions() {
        let request = ChatRequest { tool_choice: ToolChoice::None, ..conversation() };
        let request = describe_tools(request, TextCallFormat::Hermes);
        assert_eq!(texts(&request)[0], "Be brief.");
        assert!(request.tools.is_empty());
    }

    #[test]
    fn missing_system_message_is_added() {
        let mut request = conversation();
        request.messages.remove(0);
        request.tool_choice = ToolChoice::Required;
        let request = describe_tools(request, TextCallFormat::Llama);
        assert!(texts(&request)[0].contains("at least one tool"));
    }
}
