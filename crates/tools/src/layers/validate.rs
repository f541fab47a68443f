//! Validation of arguments.

use super::{Call, CallService, RawArguments};
use crate::{arguments, failure::ToolFailure, result::ToolResult};

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
            let mut value = parsed.value;
            if let Err(invalid) = arguments::validate(call.tool.validator(), &value) {
                // Models write null for arguments that they omit.
                let schema = &call.tool.registration().parameters;
                let without_nulls = arguments::without_nulls(schema, &value).ok_or(invalid)?;
                arguments::validate(call.tool.validator(), &without_nulls)?;
                value = without_nulls;
            }
            call.arguments = RawArguments::Valid(value);
        }
        self.0.call(call).await
    }
}
