//! Comparison of the tools that the handlers of one pool announce. They share a queue.
//!
//! A call goes to whichever handler has capacity. If that one lacks the tool, the call fails with
//! `tool_not_found`; if it has another definition, the arguments may not fit.

use std::collections::{BTreeMap, BTreeSet};

use metrics::gauge;
use rockbot_contracts::{HandlerPool, ToolRegistration};
use tracing::{info, warn};

use super::known_handler::KnownHandler;

/// Maximum number of tool names in a log line.
const MAX_LOGGED: usize = 20;

/// A tool that the handlers of one pool do not all announce alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MismatchedTool {
    /// Pool of the handlers.
    pub pool: HandlerPool,
    /// Name of the tool.
    pub name: String,
    /// Handlers that announce it, as `service/instance`.
    pub handlers: Vec<String>,
    /// Handlers that do not announce it.
    pub missing_from: Vec<String>,
    /// The handlers that announce it have different definitions.
    pub definitions_differ: bool,
}

/// Returns the tools that not all of the handlers of a pool announce with the same definition, by pool and
/// name.
#[must_use]
pub fn mismatched_tools<'a>(
    handlers: impl IntoIterator<Item = &'a KnownHandler>,
) -> Vec<MismatchedTool> {
    let mut pools: BTreeMap<&HandlerPool, Vec<&KnownHandler>> = BTreeMap::new();
    for handler in handlers {
        pools.entry(&handler.pool).or_default().push(handler);
    }
    pools.into_iter().flat_map(|(pool, handlers)| mismatched_in(pool, &handlers)).collect()
}

fn mismatched_in(pool: &HandlerPool, handlers: &[&KnownHandler]) -> Vec<MismatchedTool> {
    // The common case, decided without a comparison of tools.
    if handlers.windows(2).all(|pair| pair[0].fingerprint == pair[1].fingerprint) {
        return Vec::new();
    }
    let mut tools: BTreeMap<&str, Announced<'_>> = BTreeMap::new();
    for (index, handler) in handlers.iter().enumerate() {
        for tool in handler.tools.iter() {
            let announced = tools.entry(&tool.name).or_insert_with(|| Announced::new(tool));
            announced.differs |= announced.first != tool;
            announced.by.insert(index);
        }
    }
    let is_mismatched = |tool: &Announced<'_>| tool.differs || tool.by.len() < handlers.len();
    let mismatched = tools.into_iter().filter(|(_, tool)| is_mismatched(tool));
    mismatched.map(|(name, tool)| tool.describe(pool, name, handlers)).collect()
}

/// The announcements of one tool.
struct Announced<'a> {
    first: &'a ToolRegistration,
    differs: bool,
    /// Positions of the handlers that announce it.
    by: BTreeSet<usize>,
}

impl<'a> Announced<'a> {
    fn new(first: &'a ToolRegistration) -> Self {
        Self { first, differs: false, by: BTreeSet::new() }
    }

    fn describe(
        &self,
        pool: &HandlerPool,
        name: &str,
        handlers: &[&KnownHandler],
    ) -> MismatchedTool {
        let names = |announces: bool| {
            let handlers = handlers.iter().enumerate();
            handlers
                .filter(|(index, _)| self.by.contains(index) == announces)
                .map(|(_, handler)| handler.name())
                .collect()
        };
        MismatchedTool {
            pool: pool.clone(),
            name: name.to_owned(),
            handlers: names(true),
            missing_from: names(false),
            definitions_differ: self.differs,
        }
    }
}

/// Reports mismatched tools in the log, whenever they change, and in
/// `rockbot_catalog_mismatched_tools`.
#[derive(Debug, Default)]
pub(super) struct MismatchReport {
    last: Vec<MismatchedTool>,
}

impl MismatchReport {
    pub(super) fn update<'a>(&mut self, handlers: impl IntoIterator<Item = &'a KnownHandler>) {
        let mismatched = mismatched_tools(handlers);
        gauge!("rockbot_catalog_mismatched_tools").set(mismatched.len() as f64);
        if mismatched == self.last {
            return;
        }
        if mismatched.is_empty() {
            info!("handlers announce the same tools again");
        } else {
            let names = mismatched.iter().take(MAX_LOGGED).map(|tool| tool.name.as_str());
            let tools = names.collect::<Vec<_>>().join(", ");
            warn!(
                count = mismatched.len(),
                tools,
                "handlers of one pool announce different tools; calls may reach a handler without \
                 the tool: run the same tools in all of them"
            );
        }
        self.last = mismatched;
    }
}
