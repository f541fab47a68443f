//! What a confined file tool is: a definition, a limit, and blocking work on the root.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolRegistration, ToolResult};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    definition,
    root::Root,
    stop::{Stop, off_runtime},
};

/// The work of a tool with arguments `A` and limit `L`.
pub(super) type Work<A, L> = fn(&Root, &A, L, &Stop) -> Result<ToolResult, ToolFailure>;

/// A tool that works on files below the root, off the runtime's threads.
pub(super) struct FileTool<A, L> {
    pub(super) registration: ToolRegistration,
    pub(super) root: Arc<Root>,
    pub(super) limit: L,
    pub(super) work: Work<A, L>,
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
            let arguments: A = definition::arguments(arguments)?;
            let (root, limit, work) = (Arc::clone(&self.root), self.limit, self.work);
            off_runtime(context, move |stop| work(&root, &arguments, limit, stop)).await
        })
    }
}

impl<A, L> fmt::Debug for FileTool<A, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileTool").field(&self.registration.name).finish()
    }
}
