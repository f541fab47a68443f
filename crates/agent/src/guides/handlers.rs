//! Guides that tool handlers announce.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::future::{BoxFuture, ready};
use rockbot_contracts::{HandlerPool, ToolGuide, ToolRegistration};
use rockbot_tool_rpc::HandlerView;
use rockbot_tools::{GuideEntry, GuideSource, ToolContext, ToolFailure, ToolRegistry};

use super::quote;
use crate::instructions::{author, runs_offered_tool};

/// The guides of the live handlers whose tools a turn may use.
///
/// A guide is listed under its name. When several pools announce guides under one name, each is listed as
/// `<name>@<pool>`, so that no pool hides the guide of another.
pub struct HandlerGuides {
    handlers: HandlerView,
    registry: Arc<ToolRegistry>,
}

impl HandlerGuides {
    /// Reads the handlers of `handlers`, whose tools are in `registry`.
    #[must_use]
    pub fn new(handlers: HandlerView, registry: Arc<ToolRegistry>) -> Self {
        Self { handlers, registry }
    }

    /// Returns the guides by the name in the list. The handlers of a pool are alike: the guide of its first
    /// one with that name counts.
    fn guides(&self, context: &ToolContext) -> BTreeMap<String, (HandlerPool, ToolGuide)> {
        let catalog = self.handlers.snapshot();
        let permits = |tool: &ToolRegistration| context.scope.permits(tool);
        let mut by_name = BTreeMap::<String, BTreeMap<HandlerPool, ToolGuide>>::new();
        for handler in catalog.handlers() {
            for guide in handler.guides.iter() {
                if runs_offered_tool(&catalog, &self.registry, handler, &guide.source, permits) {
                    let of_pools = by_name.entry(guide.name.clone()).or_default();
                    of_pools.entry(handler.pool.clone()).or_insert_with(|| guide.clone());
                }
            }
        }
        let mut listed = BTreeMap::new();
        for (name, of_pools) in by_name {
            let is_unique = of_pools.len() == 1;
            for (pool, guide) in of_pools {
                let name = if is_unique { name.clone() } else { format!("{name}@{pool}") };
                listed.insert(name, (pool, guide));
            }
        }
        listed
    }
}

impl GuideSource for HandlerGuides {
    fn list(&self, context: &ToolContext) -> Vec<GuideEntry> {
        let guides = self.guides(context).into_iter();
        guides.map(|(name, (_, guide))| GuideEntry { name, summary: guide.summary }).collect()
    }

    fn read<'a>(
        &'a self,
        name: &'a str,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Option<String>, ToolFailure>> {
        let guide = self.guides(context).remove(name);
        let text =
            guide.map(|(pool, guide)| quote(&guide.source.text(), &author(&pool), &guide.markdown));
        Box::pin(ready(Ok(text)))
    }
}

impl fmt::Debug for HandlerGuides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerGuides").finish_non_exhaustive()
    }
}
