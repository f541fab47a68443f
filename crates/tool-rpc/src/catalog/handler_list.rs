//! The live handlers of a fleet, from their announcements.

use std::collections::{BTreeMap, btree_map::Values};

use rockbot_contracts::{
    HandlerPool, InstanceId, ProviderInstructions, ToolCatalog,
    outside_text::{is_name, plain},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{EXPIRE_AFTER, known_handler::KnownHandler};

/// Maximum number of handler processes in the directory.
const MAX_HANDLERS: usize = 1024;

/// Maximum number of tools of one handler.
const MAX_TOOLS: usize = 2048;

/// The live handlers by pool and instance. A handler can't replace the announcement of another pool, because
/// its broker user announces for its own pool only.
#[derive(Debug, Default)]
pub(super) struct HandlerList(BTreeMap<(HandlerPool, InstanceId), KnownHandler>);

impl HandlerList {
    /// Returns the handlers, ordered by pool and instance.
    pub(super) fn iter(&self) -> Values<'_, (HandlerPool, InstanceId), KnownHandler> {
        self.0.values()
    }

    /// Applies an announcement of the broker user `user`, whose clock is ahead by these seconds. Returns
    /// whether the handlers, their tools or their instructions changed.
    pub(super) fn apply(
        &mut self,
        catalog: ToolCatalog,
        user: Option<&str>,
        clock_ahead_seconds: i64,
    ) -> bool {
        let Some(pool) = catalog.pool() else {
            warn!("announcement ignored: its key is not that of a handler pool");
            return false;
        };
        if !pool.may_be_served_by(user) {
            warn!(%pool, user, "announcement ignored: its user does not serve this pool");
            return false;
        }
        let ToolCatalog { handler, instance, mut tools, fingerprint, version, load, .. } = catalog;
        let key = (pool, instance);
        if tools.is_empty() {
            let removed = self.0.remove(&key).is_some();
            if removed {
                info!(%handler, pool = %key.0, instance = %key.1, "handler stopped");
            }
            return removed;
        }
        let instructions = bounded(catalog.instructions);
        let last_seen = Instant::now();
        if let Some(known) = self.0.get_mut(&key).filter(|known| known.fingerprint == fingerprint) {
            let changed = known.instructions != instructions;
            known.instructions = instructions;
            (known.last_seen, known.load) = (last_seen, load);
            known.clock_ahead_seconds = clock_ahead_seconds;
            return changed;
        }
        if self.0.len() >= MAX_HANDLERS && !self.0.contains_key(&key) {
            warn!(%handler, limit = MAX_HANDLERS, "handler ignored: too many handlers");
            return false;
        }
        tools.truncate(MAX_TOOLS);
        let (pool, instance) = &key;
        info!(%handler, %pool, %instance, tools = tools.len(), "handler announced its tools");
        let known = KnownHandler {
            handler,
            instance: instance.clone(),
            pool: pool.clone(),
            tools,
            instructions,
            version,
            load,
            user: user.map(str::to_owned),
            clock_ahead_seconds,
            fingerprint,
            last_seen,
        };
        self.0.insert(key, known);
        true
    }

    /// Removes the handlers without heartbeats. Returns whether there were any.
    pub(super) fn remove_expired(&mut self) -> bool {
        let before = self.0.len();
        self.0.retain(|(pool, instance), known| {
            let is_alive = known.last_seen.elapsed() < EXPIRE_AFTER;
            if !is_alive {
                warn!(handler = %known.handler, %pool, %instance, "handler removed: no heartbeat");
            }
            is_alive
        });
        self.0.len() != before
    }
}

/// Returns the instructions, cleaned as outside text and within the limits of a catalog.
fn bounded(instructions: Vec<ProviderInstructions>) -> Vec<ProviderInstructions> {
    let valid = instructions.into_iter().filter(|one| is_name(&one.source.text()));
    let cleaned = valid.take(ProviderInstructions::MAX_ENTRIES).map(|one| ProviderInstructions {
        text: plain(&one.text, ProviderInstructions::MAX_TEXT).trim().to_owned(),
        ..one
    });
    cleaned.filter(|one| !one.text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{PoolName, ToolHints, ToolRegistration, ToolSource};
    use serde_json::json;

    use super::*;

    fn pool(name: &str) -> HandlerPool {
        HandlerPool::Named(PoolName::new(name).unwrap())
    }

    fn catalog(pool: &HandlerPool, instance: &str) -> ToolCatalog {
        let tools = vec![ToolRegistration {
            name: "search".to_owned(),
            label: None,
            description: "Searches.".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Web,
            hints: ToolHints::default(),
            timeout_ms: None,
        }];
        ToolCatalog {
            handler: "tool-handler".to_owned(),
            instance: InstanceId::new(instance).unwrap(),
            fingerprint: ToolCatalog::fingerprint_of(&tools),
            tools,
            removed: Vec::new(),
            version: None,
            load: None,
            invoke_key: Some(pool.invoke_key()),
            instructions: Vec::new(),
        }
    }

    #[tokio::test]
    async fn user_announces_only_for_the_pool_that_it_serves() {
        let (web, files) = (pool("web"), pool("files"));
        let mut handlers = HandlerList::default();
        let own = Some("rockbot.tool-handler.web");
        assert!(handlers.apply(catalog(&web, "h-1"), own, 0));
        let foreign =
            ["rockbot.tool-handler.files", "rockbot.tool-handler", "rockbot.agent.web", "r.cli"];
        for user in foreign.map(Some) {
            assert!(!handlers.apply(catalog(&web, "h-2"), user, 0), "{user:?}");
            let removal = ToolCatalog { tools: Vec::new(), ..catalog(&web, "h-1") };
            assert!(!handlers.apply(removal, user, 0), "{user:?}");
        }
        let files_user = Some("rockbot.tool-handler.files");
        assert!(handlers.apply(catalog(&files, "h-1"), files_user, 0), "same instance id");
        let removal = ToolCatalog { tools: Vec::new(), ..catalog(&files, "h-1") };
        assert!(handlers.apply(removal, files_user, 0));
        assert_eq!(handlers.iter().map(|known| &known.pool).collect::<Vec<_>>(), [&web]);
    }

    #[tokio::test]
    async fn announcement_with_key_of_no_pool_is_ignored() {
        let mut handlers = HandlerList::default();
        for key in ["tool.invoke.mcp", "user.message.assistant", "tool.invoke.pool.a.b"] {
            let invoke_key = Some(rockbot_contracts::RoutingKey::new(key).unwrap());
            let catalog = ToolCatalog { invoke_key, ..catalog(&HandlerPool::Unnamed, "h-1") };
            assert!(!handlers.apply(catalog, None, 0), "{key}");
        }
        assert_eq!(handlers.iter().count(), 0);
    }

    #[tokio::test]
    async fn instructions_are_bounded_and_follow_heartbeats() {
        let mut handlers = HandlerList::default();
        let instructions = |source: &str, text: &str| ProviderInstructions {
            source: serde_json::from_value(json!(source)).unwrap(),
            text: text.to_owned(),
        };
        let with = |instructions| ToolCatalog { instructions, ..catalog(&pool("web"), "h-1") };
        let hostile = [
            instructions("bad\u{202e}source", "hidden"),
            instructions(&"x".repeat(1000), "long source"),
            instructions("web", "\u{1b}[31m \u{200b}"),
            instructions("web", &"x".repeat(1_000_000)),
        ];
        let many = (0..100).map(|number| instructions("rest", &number.to_string()));
        assert!(handlers.apply(with(hostile.into_iter().chain(many).collect()), None, 0));
        let known = handlers.iter().next().unwrap();
        assert_eq!(known.instructions.len(), ProviderInstructions::MAX_ENTRIES - 1);
        assert_eq!(known.instructions[0].text.chars().count(), ProviderInstructions::MAX_TEXT);
        let changed = vec![instructions("web", "Search first.")];
        assert!(handlers.apply(with(changed.clone()), None, 0), "the tools did not change");
        assert_eq!(handlers.iter().next().unwrap().instructions, changed);
        assert!(!handlers.apply(with(changed), None, 0));
    }
}
