//! What is in working memory, told in every turn.

use futures_util::future::BoxFuture;
use rockbot_memory::{MemoryOwner, WorkingMemory};
use tracing::debug;

use crate::context::{ContextPart, ContextSource, Moment};

/// The longest list, in bytes.
const MOST_BYTES: usize = 2000;

/// Tells a model the keys of its working memory.
pub(super) struct Inventory(pub(super) WorkingMemory);

impl ContextSource for Inventory {
    fn part(&self) -> ContextPart {
        ContextPart::WorkingMemory
    }

    fn text<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let (agent, session) = (moment.agent.clone(), moment.session.clone());
            let owner = MemoryOwner { agent, session };
            self.0.inventory(&owner, MOST_BYTES).await.unwrap_or_else(|error| {
                debug!(%error, "working memory is out of reach");
                None
            })
        })
    }
}
