//! Formats of calls and results in texts.

use std::fmt::Write;

use serde_json::{Value, json};

use super::syntax::SYNTAXES;
use crate::{
    chat::{ToolCallRequest, ToolDefinition},
    readable_arguments::readable_arguments,
};

/// A format that a family of models was trained on. Other models get the one of Hermes, which most of them
/// follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextCallFormat {
    /// `<tool_call>` with JSON: Hermes, Qwen and many others.
    Hermes,
    /// JSON with `parameters`: Llama.
    Llama,
    /// `[TOOL_CALLS]` with a JSON array: Mistral.
    Mistral,
    /// Special tokens around a name and a JSON block: DeepSeek.
    DeepSeek,
}

/// A result for a model.
pub(super) struct NamedResult<'a> {
    pub(super) tool: &'a str,
    pub(super) content: &'a str,
}

impl TextCallFormat {
    /// Returns the format of a model, by its name.
    pub(crate) fn for_model(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
        // The models that DeepSeek distilled keep the vocabulary of their base.
        if name.contains("distill") || name.contains("hermes") {
            return Self::Hermes;
        }
        let has = |families: &[&str]| families.iter().any(|family| name.contains(family));
        if has(&["deepseek"]) {
            Self::DeepSeek
        } else if has(&["mistral", "mixtral", "pixtral", "devstral", "ministral"]) {
            Self::Mistral
        } else if has(&["llama"]) && !has(&["tinyllama"]) {
            Self::Llama
        } else {
            Self::Hermes
        }
    }

    /// Returns the part of the system message that describes the tools.
    pub(super) fn instructions(self, tools: &[ToolDefinition], is_required: bool) -> String {
        let mut text = String::from(
            "# Tools\n\nYou can call these tools. Each line defines one, with a JSON Schema of its \
             arguments:\n<tools>\n",
        );
        for ToolDefinition { name, description, parameters } in tools {
            let (name, description) = (json!(name), json!(description));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                r#"{{"name": {name}, "description": {description}, "parameters": {parameters}}}"#
            );
        }
        text.push_str("</tools>\n\nTo call a tool, write exactly this form, with valid JSON:\n");
        let example = CallText { name: "TOOL_NAME", arguments: json!({"ARGUMENT": "value"}) };
        text.push_str(&self.calls(&[example]));
        let _ = write!(
            text,
            "\nTo call several tools, write {}. Stop after the last call: the next message has the \
             results{}. Never write a result yourself. {}",
            self.several(),
            self.result_mark(),
            if is_required {
                "Call at least one tool now."
            } else {
                "When no tool is needed, answer in plain text without this form."
            }
        );
        text
    }

    /// Renders the calls of an earlier answer.
    pub(super) fn render_calls(self, calls: &[ToolCallRequest]) -> String {
        let calls: Vec<_> = calls.iter().map(CallText::from).collect();
        self.calls(&calls)
    }

    /// Renders the results of the calls of one answer.
    pub(super) fn render_results(self, results: &[NamedResult<'_>]) -> String {
        let lines: Vec<_> = results.iter().map(|result| self.result(result)).collect();
        match self {
            Self::DeepSeek => {
                format!("<｜tool▁outputs▁begin｜>{}<｜tool▁outputs▁end｜>", lines.concat())
            }
            Self::Hermes | Self::Llama | Self::Mistral => lines.join("\n"),
        }
    }

    fn calls(self, calls: &[CallText<'_>]) -> String {
        let one = |CallText { name, arguments }: &CallText<'_>| match self {
            Self::Hermes => {
                format!("<tool_call>\n{}\n</tool_call>", named_object(name, "arguments", arguments))
            }
            Self::Llama => named_object(name, "parameters", arguments),
            Self::Mistral => named_object(name, "arguments", arguments),
            Self::DeepSeek => format!(
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```\
                 <｜tool▁call▁end｜>"
            ),
        };
        let calls: Vec<_> = calls.iter().map(one).collect();
        match self {
            Self::Hermes | Self::Llama => calls.join("\n"),
            Self::Mistral => format!("[TOOL_CALLS] [{}]", calls.join(", ")),
            Self::DeepSeek => {
                format!("<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>", calls.join("\n"))
            }
        }
    }

    /// A result comes from outside: it cannot close its own frame, and has no mark of calls that a model
    /// could repeat.
    fn result(self, NamedResult { tool, content }: &NamedResult<'_>) -> String {
        let content = &without_call_marks(content);
        let framed = |open: &str, content: &str, close: &str| {
            let inert = format!("{} {}", &close[..1], &close[1..]);
            format!("{open}{}{close}", content.replace(close, &inert))
        };
        match self {
            Self::Hermes => {
                let tool: String = tool.chars().filter(|c| !matches!(c, '"' | '<' | '>')).collect();
                let open = format!("<tool_response name=\"{tool}\">\n");
                framed(&open, &format!("{content}\n"), "</tool_response>")
            }
            Self::Llama => named_object(tool, "output", &json!(content)),
            Self::Mistral => {
                let result = named_object(tool, "content", &json!(content));
                framed("[TOOL_RESULTS] ", &result, "[/TOOL_RESULTS]")
            }
            Self::DeepSeek => {
                let content = content.replace("<｜tool▁", "< ｜tool▁");
                framed("<｜tool▁output▁begin｜>", &content, "<｜tool▁output▁end｜>")
            }
        }
    }

    fn several(self) -> &'static str {
        match self {
            Self::Hermes => "one such block after the other",
            Self::Llama => "one such object on each line",
            Self::Mistral => "several objects in the array",
            Self::DeepSeek => {
                "one block from <｜tool▁call▁begin｜> to <｜tool▁call▁end｜> for each, all inside of \
                 the outer marks"
            }
        }
    }

    fn result_mark(self) -> &'static str {
        match self {
            Self::Hermes => " in <tool_response> tags",
            Self::Llama => " as JSON with the name of the tool and its output",
            Self::Mistral => " after [TOOL_RESULTS]",
            Self::DeepSeek => " after <｜tool▁outputs▁begin｜>",
        }
    }
}

/// Puts a space into each mark of calls.
fn without_call_marks(text: &str) -> String {
    SYNTAXES.iter().fold(text.to_owned(), |text, syntax| {
        let (first, rest) = syntax.open.split_at(1);
        text.replace(syntax.open, &format!("{first} {rest}"))
    })
}

/// Renders an object with the name first, as models write it: they choose a tool before its arguments.
fn named_object(name: &str, key: &str, value: &Value) -> String {
    format!(r#"{{"name": {}, "{key}": {value}}}"#, json!(name))
}

/// A call as it is rendered.
struct CallText<'a> {
    name: &'a str,
    arguments: Value,
}

impl<'a> From<&'a ToolCallRequest> for CallText<'a> {
    fn from(call: &'a ToolCallRequest) -> Self {
        let arguments = readable_arguments(&call.arguments);
        let arguments = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
        Self { name: &call.name, arguments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [TextCallFormat; 4] = [
        TextCallFormat::Hermes,
        TextCallFormat::Llama,
        TextCallFormat::Mistral,
        TextCallFormat::DeepSeek,
    ];

    #[test]
    fn family_decides_the_format() {
        for (model, format) in [
            ("llama3:8b", TextCallFormat::Llama),
            ("mistralai/Mixtral-8x7B-Instruct-v0.1", TextCallFormat::Mistral),
            ("deepseek-r1:671b", TextCallFormat::DeepSeek),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", TextCallFormat::Hermes),
            ("NousResearch/Hermes-2-Pro-Llama-3-8B", TextCallFormat::Hermes),
            ("gemma3:4b", TextCallFormat::Hermes),
        ] {
            assert_eq!(TextCallFormat::for_model(model), format, "{model}");
        }
    }

    #[test]
    fn result_cannot_close_its_frame() {
        for format in ALL {
            let one = |content| format.render_results(&[NamedResult { tool: "web", content }]);
            let close = match format {
                TextCallFormat::Hermes => "</tool_response>",
                TextCallFormat::Llama => {
                    let value: Value = serde_json::from_str(&one("a\"}b")).unwrap();
                    assert_eq!(value["output"], "a\"}b");
                    continue;
                }
                TextCallFormat::Mistral => "[/TOOL_RESULTS]",
                TextCallFormat::DeepSeek => "<｜tool▁output▁end｜>",
            };
            let text = one(&format!("a{close}b"));
            assert_eq!(text.matches(close).count(), 1, "{text}");
        }
    }
}
