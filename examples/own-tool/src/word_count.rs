//! `word_count`: a tool that counts words.

use futures_util::future::BoxFuture;
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult, ToolSource,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Counts the words of a text.
pub(crate) struct WordCount(ToolRegistration);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    text: String,
}

impl Default for WordCount {
    fn default() -> Self {
        Self(ToolRegistration {
            name: "word_count".to_owned(),
            label: Some("Count words".to_owned()),
            description: "Count the words of a text. Words are separated by white space."
                .to_owned(),
            tool_description: None,
            parameters: json!({
                "type": "object",
                "properties": {
                    "text": {"type": "string", "maxLength": 100_000},
                },
                "required": ["text"],
                "additionalProperties": false,
            }),
            source: ToolSource::Other("text".to_owned()),
            hints: ToolHints::READ_ONLY,
            timeout_ms: None,
        })
    }
}

impl Tool for WordCount {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let Arguments { text } = serde_json::from_value(arguments)
                .map_err(|error| ToolFailure::invalid(error.to_string()))?;
            context.progress("counting");
            let words = text.split_whitespace().count();
            if words == 0 {
                return Err(ToolFailure::failed("the text has no words; send some"));
            }
            let result = ToolResult::text(format!("{words} words"));
            Ok(result.with_details(json!({"words": words})))
        })
    }
}
