//! Execution of the tool.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::{Call, CallService, RawArguments, ResolvedCall};
use crate::{arguments, failure::ToolFailure, result::ToolResult};

/// Runs the tool and catches its panics.
#[derive(Debug, Clone, Copy)]
pub struct Execute;

impl CallService<Call> for Execute {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let ResolvedCall { context, arguments, tool, .. } = *call;
        let arguments = match arguments {
            RawArguments::Valid(value) => value,
            RawArguments::Text(text) => arguments::parse(&text)?.value,
        };
        // `call` itself may panic, not only the future that it returns.
        let outcome = AssertUnwindSafe(async { tool.tool().call(arguments, &context).await });
        outcome.catch_unwind().await.unwrap_or_else(|panic| {
            let message = panic
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            tracing::error!(
                tool_call_id = %context.tool_call_id,
                tool = %context.tool_name,
                "tool panicked"
            );
            Err(ToolFailure::failed_with_source("the tool crashed", message))
        })
    }
}
