//! The keys in working memory, as context of every turn.

use futures_util::future::BoxFuture;
use rockbot_memory::{MemoryOwner, WorkingMemory};
use tracing::debug;

use crate::context::{ContextPart, ContextRequest, ContextSource};

/// Longest list, in bytes.
const MAX_BYTES: usize = 2000;

/// Adds the keys in working memory to the context.
pub(super) struct Inventory(pub(super) WorkingMemory);

impl ContextSource for Inventory {
    fn part(&self) -> ContextPart {
        ContextPart::WorkingMemory
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let (agent, session) = (request.agent.clone(), request.session.clone());
            let owner = MemoryOwner { agent, session };
            self.0.inventory(&owner, MAX_BYTES).await.unwrap_or_else(|error| {
                debug!(%error, "working memory unavailable");
                None
            })
        })
    }
}
