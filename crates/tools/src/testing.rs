//! Small tools for the tests of this crate.

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use serde_json::{Value, json};

use crate::{
    failure::ToolFailure,
    result::ToolResult,
    tool::{Tool, ToolContext},
};

/// A definition without parameters.
pub(crate) fn registration(name: &str) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: "a tool of a test".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

/// Says its arguments.
pub(crate) struct Echo(pub(crate) ToolRegistration);

impl Tool for Echo {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move { Ok(ToolResult::text(arguments.to_string())) })
    }
}
