//! Tools of the same name in different pools.
//!
//! A caller offers the tool of the pool that owns the name. The tools of the other pools are refused.

use std::{collections::BTreeMap, fmt};

use metrics::gauge;
use rockbot_contracts::{HandlerPool, ToolRegistration, ToolSource, outside_text::plain};
use rockbot_tools::outputs::TOOL_OUTPUT;
use tracing::{info, warn};

use super::{handler_list::HandlerList, tool_owners::ToolOwners};

/// Maximum number of conflicts in a log line.
const MAX_LOGGED: usize = 20;

/// Longest name in a log message, in characters.
const MAX_LOGGED_CHARS: usize = 100;

/// Origin of an announced tool. Written as "files in pool web".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOrigin {
    /// Source of the tool.
    pub source: ToolSource,
    /// Pool that runs it.
    pub pool: HandlerPool,
}

impl fmt::Display for ToolOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pool {
            HandlerPool::Unnamed => write!(f, "{} in the unnamed pool", self.source),
            HandlerPool::Named(name) => write!(f, "{} in pool {name}", self.source),
        }
    }
}

/// A tool name that several pools announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConflict {
    /// Name of the tools.
    pub name: String,
    /// Origin of the tool that callers offer.
    pub offered: ToolOrigin,
    /// Origins of the refused tools.
    pub refused: Vec<ToolOrigin>,
}

/// Returns the names that several pools announce, in order.
pub(super) fn pool_conflicts(handlers: &HandlerList, owners: &ToolOwners) -> Vec<PoolConflict> {
    let mut tools: BTreeMap<&str, BTreeMap<&HandlerPool, &ToolRegistration>> = BTreeMap::new();
    for handler in handlers.iter() {
        for tool in handler.tools.iter() {
            tools.entry(&tool.name).or_default().entry(&handler.pool).or_insert(tool);
        }
    }
    let conflicts = tools.into_iter().filter_map(|(name, mut pools)| {
        let mut definitions = pools.values();
        let first = definitions.next()?;
        if name == TOOL_OUTPUT && definitions.all(|tool| tool == first) {
            return None;
        }
        let origin = |(pool, tool): (&HandlerPool, &ToolRegistration)| ToolOrigin {
            source: tool.source.clone(),
            pool: pool.clone(),
        };
        let offered = origin(pools.remove_entry(owners.owner(name)?)?);
        let refused: Vec<_> = pools.into_iter().map(origin).collect();
        let conflict = PoolConflict { name: name.to_owned(), offered, refused };
        (!conflict.refused.is_empty()).then_some(conflict)
    });
    conflicts.collect()
}

/// Reports conflicts in the log, whenever they change, and in `rockbot_catalog_conflicting_tools`.
#[derive(Debug, Default)]
pub(super) struct ConflictReport {
    last: Vec<PoolConflict>,
}

impl ConflictReport {
    pub(super) fn update(&mut self, conflicts: Vec<PoolConflict>) {
        gauge!("rockbot_catalog_conflicting_tools").set(conflicts.len() as f64);
        if conflicts == self.last {
            return;
        }
        if conflicts.is_empty() {
            info!("pools announce different tools again");
        }
        for conflict in conflicts.iter().take(MAX_LOGGED) {
            let (offered, refused) = (&conflict.offered, &conflict.refused);
            let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
            warn!(
                tool = plain(&conflict.name, MAX_LOGGED_CHARS),
                offered = plain(&offered.to_string(), MAX_LOGGED_CHARS),
                refused = plain(&refused.join(", "), MAX_LOGGED_CHARS),
                "several pools announce the same tool; rename one of them"
            );
        }
        self.last = conflicts;
    }
}
