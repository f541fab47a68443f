//! The live handlers of a fleet, from their announcements.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rockbot_contracts::{
    HandlerPool, InstanceId, ProviderInstructions, ScriptIsolation, ToolCatalog, ToolGuide,
    outside_text::{is_name, plain},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{EXPIRE_AFTER, known_handler::KnownHandler};

/// Maximum number of pools in the directory.
const MAX_POOLS: usize = 64;

/// Maximum number of handler processes of one pool.
const MAX_HANDLERS_OF_POOL: usize = 256;

/// Maximum size of the announcements of one pool, in bytes.
const MAX_BYTES_OF_POOL: usize = 64 * 1024 * 1024;

/// Maximum number of tools of one handler.
const MAX_TOOLS: usize = 2048;

/// Mechanism of an announced isolation without a name.
const UNKNOWN_MECHANISM: &str = "unknown";

/// The live handlers by pool and instance. A handler can't replace the announcement of another pool, because
/// its broker user announces for its own pool only. The limits are those of each pool, so that the handlers
/// of one do not crowd out the others.
#[derive(Debug, Clone, Default)]
pub(super) struct HandlerList(BTreeMap<HandlerKey, Arc<KnownHandler>>);

type HandlerKey = (HandlerPool, InstanceId);

impl HandlerList {
    /// Returns the handlers, ordered by pool and instance.
    pub(super) fn iter(&self) -> impl Iterator<Item = &KnownHandler> {
        self.0.values().map(Arc::as_ref)
    }

    /// Returns the pools with a handler, in order.
    pub(super) fn pools(&self) -> BTreeSet<&HandlerPool> {
        self.0.keys().map(|(pool, _)| pool).collect()
    }

    /// Applies an announcement of `bytes` bytes by the broker user `user`, whose clock is ahead by these
    /// seconds. Returns whether the handlers, their tools, their instructions or their guides changed; the isolation of
    /// scripts, as the load, is no such change.
    pub(super) fn apply(
        &mut self,
        catalog: ToolCatalog,
        user: Option<&str>,
        clock_ahead_seconds: i64,
        bytes: usize,
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
        let guides = bounded_guides(catalog.guides);
        let script_isolation = catalog.script_isolation.as_ref().map(bounded_isolation);
        let last_seen = Instant::now();
        let is_known = |known: &&Arc<KnownHandler>| {
            known.fingerprint == fingerprint
                && known.instructions == instructions
                && *known.guides == guides
        };
        if self.0.get(&key).is_some_and(|known| is_known(&known)) {
            if let Some(known) = self.0.get_mut(&key).map(Arc::make_mut) {
                (known.last_seen, known.load) = (last_seen, load);
                known.script_isolation = script_isolation;
                known.clock_ahead_seconds = clock_ahead_seconds;
            }
            return false;
        }
        if let Err(reason) = self.check_limits(&key, bytes) {
            warn!(%handler, pool = %key.0, instance = %key.1, reason, "announcement ignored");
            return false;
        }
        tools.truncate(MAX_TOOLS);
        let (pool, instance) = &key;
        info!(%handler, %pool, %instance, tools = tools.len(), "handler announced its tools");
        let known = KnownHandler {
            handler,
            instance: instance.clone(),
            pool: pool.clone(),
            tools: tools.into(),
            instructions,
            guides: guides.into(),
            script_isolation,
            version,
            load,
            user: user.map(str::to_owned),
            clock_ahead_seconds,
            bytes,
            fingerprint,
            last_seen,
        };
        self.0.insert(key, Arc::new(known));
        true
    }

    /// Fails when an announcement of `bytes` bytes by this handler exceeds a limit.
    fn check_limits(&self, key: &HandlerKey, bytes: usize) -> Result<(), String> {
        let pools = self.pools();
        if pools.len() >= MAX_POOLS && !pools.contains(&key.0) {
            return Err(format!("over {MAX_POOLS} pools"));
        }
        let (mut handlers, mut total) = (1_usize, bytes);
        for (other, known) in &self.0 {
            if other.0 == key.0 && other != key {
                handlers += 1;
                total = total.saturating_add(known.bytes);
            }
        }
        if handlers > MAX_HANDLERS_OF_POOL {
            return Err(format!("its pool has over {MAX_HANDLERS_OF_POOL} handlers"));
        }
        if total > MAX_BYTES_OF_POOL {
            return Err(format!(
                "the announcements of its pool have over {MAX_BYTES_OF_POOL} bytes"
            ));
        }
        Ok(())
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

/// Returns the guides, cleaned as outside text and within the limits of a catalog. Of two with one name, the
/// first remains.
fn bounded_guides(guides: Vec<ToolGuide>) -> Vec<ToolGuide> {
    let mut names = BTreeSet::new();
    let valid = guides.into_iter().filter(|one| one.is_valid_name() && is_name(&one.source.text()));
    let cleaned = valid.take(ToolGuide::MAX_ENTRIES).map(|one| ToolGuide {
        summary: plain(&one.summary, ToolGuide::MAX_SUMMARY).replace(['\n', '\r', '\t'], " "),
        markdown: plain(&one.markdown, ToolGuide::MAX_MARKDOWN).trim().to_owned(),
        ..one
    });
    cleaned.filter(|one| !one.markdown.is_empty() && names.insert(one.name.clone())).collect()
}

/// Returns the isolation of scripts, cleaned as outside text and within its limits.
fn bounded_isolation(isolation: &ScriptIsolation) -> ScriptIsolation {
    let line =
        |text: &str, limit| plain(text, limit).replace(['\n', '\r', '\t'], " ").trim().to_owned();
    let gaps = isolation.gaps.iter().take(ScriptIsolation::MAX_GAPS);
    let gaps = gaps.map(|gap| line(gap, ScriptIsolation::MAX_GAP));
    let mut mechanism = line(&isolation.mechanism, ScriptIsolation::MAX_MECHANISM);
    if mechanism.is_empty() {
        UNKNOWN_MECHANISM.clone_into(&mut mechanism);
    }
    ScriptIsolation { mechanism, gaps: gaps.filter(|gap| !gap.is_empty()).collect() }
}

#[cfg(test)]
pub(super) mod tests {
    use rockbot_contracts::{PoolName, ToolHints, ToolRegistration, ToolSource};
    use serde_json::json;

    use super::*;

    pub(in super::super) fn pool(name: &str) -> HandlerPool {
        HandlerPool::Named(PoolName::new(name).unwrap())
    }

    pub(in super::super) fn catalog(pool: &HandlerPool, instance: &str) -> ToolCatalog {
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
            guides: Vec::new(),
            script_isolation: None,
        }
    }

    #[tokio::test]
    async fn user_announces_only_for_the_pool_that_it_serves() {
        let (web, files) = (pool("web"), pool("files"));
        let mut handlers = HandlerList::default();
        let own = Some("rockbot.tool-handler.web");
        assert!(handlers.apply(catalog(&web, "h-1"), own, 0, 1000));
        let foreign =
            ["rockbot.tool-handler.files", "rockbot.tool-handler", "rockbot.agent.web", "r.cli"];
        for user in foreign.map(Some) {
            assert!(!handlers.apply(catalog(&web, "h-2"), user, 0, 1000), "{user:?}");
            let removal = ToolCatalog { tools: Vec::new(), ..catalog(&web, "h-1") };
            assert!(!handlers.apply(removal, user, 0, 1000), "{user:?}");
        }
        let files_user = Some("rockbot.tool-handler.files");
        assert!(handlers.apply(catalog(&files, "h-1"), files_user, 0, 1000), "same instance id");
        let removal = ToolCatalog { tools: Vec::new(), ..catalog(&files, "h-1") };
        assert!(handlers.apply(removal, files_user, 0, 1000));
        assert_eq!(handlers.iter().map(|known| &known.pool).collect::<Vec<_>>(), [&web]);
    }

    #[tokio::test]
    async fn announcement_with_key_of_no_pool_is_ignored() {
        let mut handlers = HandlerList::default();
        for key in ["tool.invoke.mcp", "user.message.assistant", "tool.invoke.pool.a.b"] {
            let invoke_key = Some(rockbot_contracts::RoutingKey::new(key).unwrap());
            let catalog = ToolCatalog { invoke_key, ..catalog(&HandlerPool::Unnamed, "h-1") };
            assert!(!handlers.apply(catalog, None, 0, 1000), "{key}");
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
        assert!(handlers.apply(with(hostile.into_iter().chain(many).collect()), None, 0, 1000));
        let known = handlers.iter().next().unwrap();
        assert_eq!(known.instructions.len(), ProviderInstructions::MAX_ENTRIES - 1);
        assert_eq!(known.instructions[0].text.chars().count(), ProviderInstructions::MAX_TEXT);
        let changed = vec![instructions("web", "Search first.")];
        assert!(handlers.apply(with(changed.clone()), None, 0, 1000), "the tools did not change");
        assert_eq!(handlers.iter().next().unwrap().instructions, changed);
        assert!(!handlers.apply(with(changed), None, 0, 1000));
    }

    #[tokio::test]
    async fn guides_are_bounded_and_follow_heartbeats() {
        let mut handlers = HandlerList::default();
        let guide = |name: &str, markdown: &str| ToolGuide {
            source: ToolSource::Web,
            name: name.to_owned(),
            summary: "two\nlines\u{1b}[31m".to_owned(),
            markdown: markdown.to_owned(),
        };
        let with = |guides| ToolCatalog { guides, ..catalog(&pool("web"), "h-1") };
        let hostile = [
            guide("a name", "has a space"),
            guide("a@b", "claims a pool"),
            guide("", "no name"),
            guide(&"x".repeat(65), "long name"),
            guide("empty", "\u{200b} "),
            guide("web", &"x".repeat(1_000_000)),
            guide("web", "again"),
        ];
        let many = (0..100).map(|number| guide(&format!("more{number}"), "text"));
        assert!(handlers.apply(with(hostile.into_iter().chain(many).collect()), None, 0, 1000));
        let guides = handlers.iter().next().unwrap().guides.clone();
        assert_eq!(guides.len(), ToolGuide::MAX_ENTRIES - 2, "those without text count");
        assert_eq!((guides[0].name.as_str(), guides[0].summary.as_str()), ("web", "two lines"));
        assert_eq!(guides[0].markdown.chars().count(), ToolGuide::MAX_MARKDOWN);
        let changed = vec![guide("web", "Search first.")];
        assert!(handlers.apply(with(changed.clone()), None, 0, 1000), "the tools did not change");
        assert!(!handlers.apply(with(changed), None, 0, 1000));
        let oversized = vec![guide("web", "Larger.")];
        assert!(!handlers.apply(with(oversized), None, 0, MAX_BYTES_OF_POOL + 1));
        assert_eq!(handlers.iter().next().unwrap().guides[0].markdown, "Search first.");
    }

    #[tokio::test]
    async fn script_isolation_is_bounded_and_no_catalog_change() {
        let mut handlers = HandlerList::default();
        let with = |mechanism: &str, gaps: &[&str]| ToolCatalog {
            script_isolation: Some(ScriptIsolation {
                mechanism: mechanism.to_owned(),
                gaps: gaps.iter().map(|gap| (*gap).to_owned()).collect(),
            }),
            ..catalog(&pool("web"), "h-1")
        };
        let known = |handlers: &HandlerList| {
            handlers.iter().next().and_then(|known| known.script_isolation.clone()).unwrap()
        };
        let long = "x".repeat(1_000_000);
        let gaps =
            [&["two\nlines\u{1b}[31m", "\u{200b} "], [long.as_str(); 100].as_slice()].concat();
        assert!(handlers.apply(with(&long, &gaps), None, 0, 1000));
        let ScriptIsolation { mechanism, gaps } = known(&handlers);
        assert_eq!(mechanism.chars().count(), ScriptIsolation::MAX_MECHANISM);
        assert_eq!(gaps.len(), ScriptIsolation::MAX_GAPS - 1, "those without text count");
        assert_eq!(gaps[0], "two lines");
        assert_eq!(gaps[1].chars().count(), ScriptIsolation::MAX_GAP);

        assert!(!handlers.apply(with(" \u{200b}", &["the network"]), None, 0, 1000));
        let ScriptIsolation { mechanism, gaps } = known(&handlers);
        assert_eq!(mechanism, "unknown");
        assert_eq!(gaps, ["the network"]);
        assert!(!handlers.apply(catalog(&pool("web"), "h-1"), None, 0, 1000));
        assert!(handlers.iter().all(|known| known.script_isolation.is_none()));
    }

    #[tokio::test]
    async fn full_pool_does_not_crowd_out_others() {
        let mut handlers = HandlerList::default();
        let web = pool("web");
        for number in 0..MAX_HANDLERS_OF_POOL {
            assert!(handlers.apply(catalog(&web, &format!("h-{number}")), None, 0, 1000));
        }
        assert!(!handlers.apply(catalog(&web, "one-more"), None, 0, 1000));
        assert!(handlers.apply(catalog(&pool("files"), "h-0"), None, 0, 1000));
        let changed = ToolCatalog { fingerprint: "changed".into(), ..catalog(&web, "h-0") };
        assert!(handlers.apply(changed, None, 0, 1000), "a known handler changes");
        for number in 2..MAX_POOLS {
            assert!(handlers.apply(catalog(&pool(&number.to_string()), "h-0"), None, 0, 1000));
        }
        assert!(!handlers.apply(catalog(&pool("late"), "h-0"), None, 0, 1000));
        assert!(handlers.apply(catalog(&pool("files"), "h-1"), None, 0, 1000));
    }

    #[tokio::test]
    async fn announcements_of_one_pool_are_bounded_in_size() {
        let mut handlers = HandlerList::default();
        let web = pool("web");
        assert!(handlers.apply(catalog(&web, "h-1"), None, 0, MAX_BYTES_OF_POOL - 1));
        assert!(!handlers.apply(catalog(&web, "h-2"), None, 0, 2));
        assert!(handlers.apply(catalog(&web, "h-3"), None, 0, 1));
        assert!(handlers.apply(catalog(&pool("files"), "h-2"), None, 0, MAX_BYTES_OF_POOL));
    }
}
