//! Arguments are read and checked before anything runs.

use super::{Call, CallService, RawArguments};
use crate::{arguments, failure::ToolFailure, result::ToolResult};

/// Reads the arguments, repairs what is unambiguous, and checks them against the schema.
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
            let read = arguments::read(text)?;
            if read.repaired {
                tracing::info!(
                    tool_call_id = %call.context.tool_call_id,
                    tool = %call.context.tool_name,
                    "repaired the arguments, which were not quite JSON"
                );
            }
            let mut value = read.value;
            if let Err(invalid) = arguments::validate(call.tool.validator(), &value) {
                // Models write null for what they leave out.
                let schema = &call.tool.registration().parameters;
                let mended = arguments::without_nulls(schema, &value).ok_or(invalid)?;
                arguments::validate(call.tool.validator(), &mended)?;
                value = mended;
            }
            call.arguments = RawArguments::Valid(value);
        }
        self.0.call(call).await
    }
}
