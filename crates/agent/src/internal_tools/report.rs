//! `agent__final_report`: ends the turn.

use futures_util::future::BoxFuture;
use rockbot_tools::{ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{InternalTools, ReportFormat};
use crate::{
    builtin_tool::{BuiltinDefinition, parse_arguments},
    tool_names::FINAL_REPORT,
};

/// Largest metadata, in bytes of JSON.
const MAX_METADATA_BYTES: usize = 16 * 1024;

/// A final report.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct FinalReport {
    status: ReportStatus,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    content_json: Option<Value>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReportStatus {
    Success,
    Failure,
    Partial,
}

impl FinalReport {
    /// Reads the arguments of an accepted call.
    pub(crate) fn parse(arguments: &str) -> Option<Self> {
        serde_json::from_str(arguments).ok()
    }

    /// Returns the answer. A task that did not succeed is named.
    pub(crate) fn text(&self) -> String {
        let content = match (&self.content, &self.content_json) {
            // Another program reads it.
            (None, Some(content)) => return content.to_string(),
            (Some(content), _) => content.clone(),
            (None, None) => String::new(),
        };
        match self.status {
            ReportStatus::Success => content,
            ReportStatus::Failure => format!("{content}\n\n(Reported as failed.)"),
            ReportStatus::Partial => format!("{content}\n\n(Reported as done in part.)"),
        }
    }
}

/// Returns the text of a report that does not match the definition.
pub(crate) fn text_of_invalid(arguments: &str) -> String {
    let Ok(arguments) = serde_json::from_str::<Value>(arguments) else {
        return arguments.to_owned();
    };
    let content = arguments.get("content").or_else(|| arguments.get("content_json"));
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(content) => content.to_string(),
        None => arguments.to_string(),
    }
}

/// Returns the definition of the tool for the format of an agent.
pub(super) fn definition(settings: &InternalTools) -> BuiltinDefinition {
    let mut arguments = json!({
        "status": {"type": "string", "enum": ["success", "failure", "partial"],
            "description": "Whether the task succeeded."},
        "format": {"type": "string", "enum": [settings.report_format.as_str()]},
        "metadata": {"type": "object", "description": "Further facts, recorded with the call."},
    });
    let required: &'static [&'static str] = if settings.report_format == ReportFormat::Json {
        let any = || json!({"type": "object"});
        arguments["content_json"] = settings.report_schema.clone().unwrap_or_else(any);
        &["status", "content_json"]
    } else {
        let description = "The whole answer, as the user reads it.";
        arguments["content"] =
            json!({"type": "string", "minLength": 1, "description": description});
        &["status", "content"]
    };
    BuiltinDefinition {
        name: FINAL_REPORT,
        description: "Give the final answer. It ends your turn, so call it once, after all other work.",
        arguments,
        required,
        source: ToolSource::Internal,
        hints: ToolHints::READ_ONLY,
    }
}

/// Checks a report. The turn then ends with it.
pub(super) fn check<'a>(
    _: &'a InternalTools,
    arguments: Value,
    _: &'a ToolContext,
) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
    let checked = parse_arguments::<FinalReport>(arguments).and_then(|report| {
        let bytes = report.metadata.map_or(0, |metadata| Value::Object(metadata).to_string().len());
        if bytes > MAX_METADATA_BYTES {
            return Err(ToolFailure::invalid("metadata must have at most 16 KiB"));
        }
        Ok(ToolResult::text(r#"{"status":"ok"}"#))
    });
    Box::pin(std::future::ready(checked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_a_task_that_did_not_succeed() {
        let text = |arguments: Value| FinalReport::parse(&arguments.to_string()).unwrap().text();
        assert_eq!(text(json!({"status": "success", "content": "Done."})), "Done.");
        let failed = text(json!({"status": "failure", "content": "No."}));
        assert_eq!(failed, "No.\n\n(Reported as failed.)");
        let object = json!({"status": "failure", "content_json": {"a": 1}});
        assert_eq!(text(object), r#"{"a":1}"#);
        assert_eq!(FinalReport::parse(r#"{"content": "x"}"#), None);
    }

    #[test]
    fn invalid_report_has_the_text_of_its_content() {
        assert_eq!(text_of_invalid(r#"{"content": "so far"}"#), "so far");
        assert_eq!(text_of_invalid(r#"{"content_json": {"a": 1}}"#), r#"{"a":1}"#);
        assert_eq!(text_of_invalid("no JSON"), "no JSON");
    }
}
