//! Validation of arguments.

use super::{Call, CallService, RawArguments};
use crate::{arguments, failure::ToolFailure, result::ToolResult, schema};

/// Parses the arguments, repairs unambiguous damage, and validates them against the schema.
#[derive(Debug, Clone)]
pub struct Validate<S>(S);

impl<S> Validate<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for Validate<S> {
    async fn call(&self, mut call: Call) -> Result<ToolResult, ToolFailure> {
        if let RawArguments::Text(text) = &call.arguments {
            let parsed = arguments::parse(text)?;
            if parsed.repaired {
                tracing::info!(
                    tool_call_id = %call.context.tool_call_id,
                    tool = %call.context.tool_name,
                    "arguments repaired; they were not valid JSON"
                );
            }
            let accepted = schema::accept(call.tool.schema(), parsed.value, &call.context).await?;
            call.arguments = RawArguments::Valid(accepted);
        }
        self.0.call(call).await
    }
}
