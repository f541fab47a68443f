//! Announced tools in the registry of a caller.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use rockbot_bus::Requester;
use rockbot_contracts::{HandlerPool, ToolRegistration, outside_text::plain};
use rockbot_tools::registry::{RegisterError, ToolRegistry};
use tracing::{debug, warn};

use super::snapshot::CatalogSnapshot;
use crate::remote::RemoteTool;

/// Longest name in a log message, in characters.
const MAX_LOGGED_NAME_CHARS: usize = 100;

/// Updates a registry with the announced tools. Changes only tools that it registered.
pub(super) struct RegistrySync {
    registry: Arc<ToolRegistry>,
    requester: Arc<Requester>,
    registered: BTreeMap<String, PoolTool>,
    /// Definitions that the registry has rejected, so that each is compiled and reported once.
    rejected: BTreeMap<String, PoolTool>,
}

/// A tool and the pool that runs it.
type PoolTool = (HandlerPool, ToolRegistration);

impl RegistrySync {
    pub(super) fn new(registry: Arc<ToolRegistry>, requester: Arc<Requester>) -> Self {
        Self { registry, requester, registered: BTreeMap::new(), rejected: BTreeMap::new() }
    }

    /// Registers the tools of `catalog`, each of the pool that owns its name. Compiles new definitions.
    pub(super) fn update(&mut self, catalog: &CatalogSnapshot) {
        let mut wanted: BTreeMap<&str, (&HandlerPool, &ToolRegistration)> = BTreeMap::new();
        for handler in catalog.handlers() {
            for tool in handler.tools.iter() {
                // If handlers of the pool announce different definitions, that of the lowest instance id
                // counts.
                if catalog.owner(&tool.name) == Some(&handler.pool)
                    && let Entry::Vacant(entry) = wanted.entry(&tool.name)
                {
                    entry.insert((&handler.pool, tool));
                }
            }
        }
        self.registered.retain(|name, _| {
            let stays = wanted.contains_key(name.as_str());
            if !stays {
                self.registry.unregister(name);
            }
            stays
        });
        let is_current = |known: &PoolTool, (pool, tool): &(&HandlerPool, &ToolRegistration)| {
            known.0 == **pool && known.1 == **tool
        };
        self.rejected.retain(|name, known| {
            wanted.get(name.as_str()).is_some_and(|tool| is_current(known, tool))
        });
        for (name, tool) in wanted {
            let known = self.registered.get(name).or_else(|| self.rejected.get(name));
            if !known.is_some_and(|known| is_current(known, &tool)) {
                self.register(tool.0, tool.1);
            }
        }
    }

    /// Registers a tool, or puts it in place of its previous definition.
    fn register(&mut self, pool: &HandlerPool, tool: &ToolRegistration) {
        let name = &tool.name;
        let remote = RemoteTool::new(tool.clone(), self.requester.clone(), pool.invoke_key());
        let registered = if self.registered.contains_key(name) {
            self.registry.replace(Arc::new(remote))
        } else {
            self.registry.register(Arc::new(remote))
        };
        match registered {
            Ok(()) => {
                self.registered.insert(name.clone(), (pool.clone(), tool.clone()));
            }
            // The tool may have become available in another way, and may be removed again.
            Err(error @ RegisterError::Duplicate { .. }) => {
                debug!(%error, "announced tool not registered");
            }
            Err(error) => {
                if self.registered.remove(name).is_some() {
                    self.registry.unregister(name);
                }
                let logged = plain(name, MAX_LOGGED_NAME_CHARS);
                warn!(tool = %logged, %pool, %error, "announced tool rejected");
                self.rejected.insert(name.clone(), (pool.clone(), tool.clone()));
            }
        }
    }
}
