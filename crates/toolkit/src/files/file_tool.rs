//! A confined file tool: a definition, a limit, and a blocking operation on the root.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolRegistration, ToolResult, parse_arguments,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    root::Root,
    stop::{StopCondition, run_blocking},
};

/// The operation of a tool with arguments `A` and limit `L`.
pub(super) type Operation<A, L> =
    fn(&Root, &A, L, &StopCondition) -> Result<ToolResult, ToolFailure>;

/// A tool that operates on files below the root, on a blocking thread.
pub(super) struct FileTool<A, L> {
    pub(super) registration: ToolRegistration,
    pub(super) root: Arc<Root>,
    pub(super) limit: L,
    pub(super) run: Operation<A, L>,
}

impl<A, L> Tool for FileTool<A, L>
where
    A: DeserializeOwned + Send + 'static,
    L: Copy + Send + Sync + 'static,
{
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let arguments: A = parse_arguments(arguments)?;
            let (root, limit, run) = (Arc::clone(&self.root), self.limit, self.run);
            run_blocking(context, move |stop| run(&root, &arguments, limit, stop)).await
        })
    }
}

impl<A, L> fmt::Debug for FileTool<A, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileTool").field(&self.registration.name).finish()
    }
}
