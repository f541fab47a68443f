//! The handlers of a fleet and the owners of their tools at one time.

use std::sync::Arc;

use rockbot_contracts::HandlerPool;

use super::{
    conflict::{self, PoolConflict},
    handler_list::HandlerList,
    known_handler::KnownHandler,
    tool_owners::ToolOwners,
};

/// The live handlers at one time, and the pool that owns each tool name.
#[derive(Debug, Clone, Default)]
pub struct CatalogSnapshot {
    handlers: HandlerList,
    owners: Arc<ToolOwners>,
}

impl CatalogSnapshot {
    pub(super) fn new(handlers: HandlerList, owners: Arc<ToolOwners>) -> Self {
        Self { handlers, owners }
    }

    /// Returns the handlers, ordered by pool and instance.
    pub fn handlers(&self) -> impl Iterator<Item = &KnownHandler> {
        self.handlers.iter()
    }

    /// Returns the pools with a handler, in order.
    #[must_use]
    pub fn pools(&self) -> Vec<HandlerPool> {
        self.handlers.pools().into_iter().cloned().collect()
    }

    /// Returns the pool that owns the name `tool`: its handlers receive the calls. `None` when no handler
    /// announces the tool.
    #[must_use]
    pub fn owner(&self, tool: &str) -> Option<&HandlerPool> {
        self.owners.owner(tool)
    }

    /// Returns the names that several pools announce, in order.
    ///
    /// The tool that reads [stored outputs](rockbot_tools::outputs) is no conflict: each handler of a shared
    /// store offers it, and reads what the others stored.
    #[must_use]
    pub fn conflicts(&self) -> Vec<PoolConflict> {
        conflict::pool_conflicts(&self.handlers, &self.owners)
    }
}
