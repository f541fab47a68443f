//! Validation of structured results against the schemas that their tools declare.

use std::{collections::HashMap, sync::Arc};

use metrics::counter;
use parking_lot::Mutex;
use rockbot_contracts::{ContentBlock, mcp::McpToolDefinition};
use rockbot_tools::{
    ArgumentSchema, ToolContext, ToolFailure, ToolResult, schema::output_violation,
};
use serde_json::Value;
use tracing::debug;

use crate::config::OutputViolations;

/// The compiled schemas of a listing, each since the first result of its tool.
#[derive(Default)]
pub(crate) struct OutputSchemas(Mutex<HashMap<String, Arc<ArgumentSchema>>>);

impl OutputSchemas {
    /// Validates the result of a tool. An error that the tool reports itself has no schema.
    ///
    /// # Errors
    /// When the result violates the schema and violations are refused. The tool has run.
    pub(crate) async fn check(
        &self,
        tool: &McpToolDefinition,
        treatment: OutputViolations,
        mut result: ToolResult,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Some(schema) = &tool.output_schema else { return Ok(result) };
        if result.is_error || treatment == OutputViolations::Ignore {
            return Ok(result);
        }
        let violation = match &result.details {
            None => Some("it is missing".to_owned()),
            Some(content) => match self.compiled(&tool.name, schema) {
                Some(schema) => output_violation(&schema, content, context).await,
                None => None,
            },
        };
        let Some(violation) = violation else { return Ok(result) };
        // At debug level: the violation names parts of the result.
        debug!(tool = %tool.name, %violation, "structured content violates the output schema");
        counter!("rockbot_mcp_output_violations_total").increment(1);
        let message = format!(
            "the structured content of the result violates the output schema of the tool: {violation}"
        );
        if treatment == OutputViolations::Refuse {
            return Err(ToolFailure::failed(message));
        }
        result.content.push(ContentBlock::Text { text: format!("[{message}]") });
        Ok(result)
    }

    fn compiled(&self, tool: &str, schema: &Value) -> Option<Arc<ArgumentSchema>> {
        if let Some(known) = self.0.lock().get(tool) {
            return Some(known.clone());
        }
        // Not under the lock: compiling a large schema takes milliseconds.
        let compiled = Arc::new(ArgumentSchema::compile(schema).ok()?);
        self.0.lock().insert(tool.to_owned(), compiled.clone());
        Some(compiled)
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, SessionId, ToolHints};
    use serde_json::json;

    use super::*;

    fn tool() -> McpToolDefinition {
        let schema = json!({"type": "object", "required": ["sum"],
            "properties": {"sum": {"type": "number"}, "note": {"type": "string"}}});
        McpToolDefinition {
            name: "add".to_owned(),
            model_name: "s__add".to_owned(),
            title: None,
            description: String::new(),
            parameters: json!({"type": "object"}),
            output_schema: Some(schema),
            hints: ToolHints::default(),
            timeout_ms: None,
        }
    }

    async fn check(
        treatment: OutputViolations,
        details: Option<Value>,
        is_error: bool,
    ) -> Result<String, ToolFailure> {
        let agent = AgentName::new("tester").unwrap();
        let context = ToolContext::new("add", SessionId::generate(), agent);
        let result = ToolResult { details, is_error, ..ToolResult::text("text") };
        let schemas = OutputSchemas::default();
        let checked = schemas.check(&tool(), treatment, result, &context).await?;
        Ok(checked.to_text().into_owned())
    }

    #[tokio::test]
    async fn violations_are_reported_or_refused() {
        let (report, refuse) = (OutputViolations::Report, OutputViolations::Refuse);
        for valid in [json!({"sum": 3}), json!({"sum": 3.5, "note": "n", "more": []})] {
            assert_eq!(check(report, Some(valid), false).await.unwrap(), "text");
        }
        let invalid = [
            (Some(json!({"sum": "three"})), "/sum"),
            (Some(json!({"sum": 3, "note": null})), "/note"),
            (Some(json!([3])), "structured content"),
            (None, "missing"),
        ];
        for (details, place) in invalid {
            let text = check(report, details.clone(), false).await.unwrap();
            assert!(text.starts_with("text") && text.contains(place), "{text}");
            let failure = check(refuse, details.clone(), false).await.unwrap_err().to_string();
            assert!(failure.contains(place), "{failure}");
            let ignored = check(OutputViolations::Ignore, details.clone(), false).await;
            assert_eq!(ignored.unwrap(), "text");
            assert_eq!(check(refuse, details, true).await.unwrap(), "text", "an error of the tool");
        }
    }
}
