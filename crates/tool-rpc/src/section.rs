//! The section of the configuration that every process which runs tools has.

use std::{collections::BTreeMap, sync::Arc};

use rockbot_contracts::identity::CallerPolicy;
use rockbot_tools::{
    call_section::CallSection,
    layers::{
        CallAccount, CallPolicies, LayerOptions, ResultCache, stack::DEFAULT_MAX_RESULT_BYTES,
    },
    limits::{
        fleet::FleetStore,
        queue::{Queue, QueueRules},
    },
    period::Period,
    redaction::Redactor,
};
use serde::Deserialize;
use tracing::warn;

use crate::invoke::{AdmissionLimits, InvokeOptions, QueueLimits, queue_of_server};

/// `[handler]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSection {
    /// Calls that run at once. Default 64, at least 1.
    pub concurrency: u16,
    /// Calls of one tool that run at once, of tools in no queue. Default three quarters of
    /// `concurrency`, so that one that hangs leaves room for the others.
    pub per_tool: Option<u16>,
    /// Calls that wait here for room, beyond those that run; at most half of them of one tool that is
    /// in no queue. Default sixteen times `concurrency`.
    pub backlog: Option<u16>,
    /// The largest result, in bytes of content. Default 1 MiB.
    pub max_result_bytes: usize,
    /// Whether to refuse a request whose sender is not a user that the broker knows as an agent or
    /// as the command line program. Default false; always true in the production profile.
    pub require_identity: bool,
    /// As whom the broker knows the handler. Taken from the URL of the bus, not from a file.
    #[serde(skip)]
    pub user: Option<String>,
    /// Tools that share bounds of their own, by the name of their queue.
    pub queues: BTreeMap<String, QueueSection>,
    /// What holds for the calls of single tools, by their names.
    pub tools: BTreeMap<String, CallSection>,
    /// What holds for the calls of all tools of an MCP server, by its name without regard to case,
    /// or of a source such as `files`. They share it.
    pub servers: BTreeMap<String, CallSection>,
    /// Room for kept results, in bytes. Default 64 MiB.
    pub cache_bytes: u64,
}

/// `[handler.queues.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// The tools in it, by name, beside those whose own section names the queue.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Calls of these tools that run at once, at least 1. Default twice as many as there are cores,
    /// at most 64.
    #[serde(default = "QueueSection::default_concurrency")]
    pub concurrency: u16,
    /// Calls of these tools that wait; one more is answered `overloaded`. Default: all that the
    /// handler takes.
    pub waiting: Option<u16>,
    /// How long a call waits before it is answered `overloaded`. Default: until its deadline.
    pub wait: Option<Period>,
}

impl QueueSection {
    fn default_concurrency() -> u16 {
        QueueRules::default().running.try_into().unwrap_or(u16::MAX)
    }
}

impl Default for HandlerSection {
    fn default() -> Self {
        Self {
            concurrency: 64,
            per_tool: None,
            backlog: None,
            max_result_bytes: DEFAULT_MAX_RESULT_BYTES,
            require_identity: false,
            user: None,
            queues: BTreeMap::new(),
            tools: BTreeMap::new(),
            servers: BTreeMap::new(),
            cache_bytes: 64 * 1024 * 1024,
        }
    }
}

impl HandlerSection {
    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.concurrency == 0 {
            problems.push("handler.concurrency: must be at least 1".to_owned());
        }
        if self.per_tool == Some(0) {
            problems.push("handler.per_tool: must be at least 1".to_owned());
        }
        let most = 3 * 1024 * 1024;
        if !(1024..=most).contains(&self.max_result_bytes) {
            problems.push(format!("handler.max_result_bytes: must be 1024 to {most}"));
        }
        let mut owners = BTreeMap::new();
        for (name, queue) in &self.queues {
            if queue.concurrency == 0 {
                problems.push(format!("handler.queues.{name}.concurrency: must be at least 1"));
            }
            for tool in self.tools_in(name) {
                if let Some(other) = owners.insert(tool, name) {
                    problems.push(format!("handler.queues.{name}: {tool} is in {other} already"));
                }
            }
        }
        let mut servers = BTreeMap::new();
        for name in self.servers.keys() {
            if let Some(other) = servers.insert(name.to_lowercase(), name) {
                problems.push(format!("handler.servers.{name}: it is the same as {other}"));
            }
        }
        for (kind, sections) in [("tools", &self.tools), ("servers", &self.servers)] {
            for (name, section) in sections {
                let at = format!("handler.{kind}.{name}");
                problems.extend(section.problems(&at));
                let unknown = |queue: &&String| !self.queues.contains_key(*queue);
                if let Some(queue) = section.queue.as_ref().filter(unknown) {
                    problems.push(format!("{at}.queue: there is no [handler.queues.{queue}]"));
                }
            }
        }
        problems
    }

    /// Takes over what the bus knows: as whom the broker knows the handler, and whether everybody on
    /// it is known, so that who is not is nobody.
    pub fn identify(&mut self, user: Option<String>, everybody_is_known: bool) {
        self.user = user;
        self.require_identity |= everybody_is_known;
    }

    /// How much the handler takes on.
    #[must_use]
    pub fn options(&self) -> InvokeOptions {
        let mut options = InvokeOptions::running(self.concurrency);
        let AdmissionLimits { each, queues, .. } = &mut options.admission;
        if let Some(per_tool) = self.per_tool {
            each.running = per_tool.into();
        }
        queues.extend(self.queues.iter().map(|(name, queue)| {
            let waiting = queue.waiting.map_or(usize::MAX, usize::from);
            let wait = queue.wait.and_then(Period::duration);
            let limits = QueueLimits { running: queue.concurrency.into(), waiting, wait };
            let tools = self.tools_in(name).cloned();
            let of_queue = |server: &&CallSection| server.queue.as_ref() == Some(name);
            let servers = self.servers.iter().filter(|(_, server)| of_queue(server));
            let servers = servers.map(|(server, _)| queue_of_server(server));
            (tools.chain(servers).collect(), limits)
        }));
        if self.require_identity {
            options.askers = CallerPolicy::Known;
        }
        options.user = self.user.as_deref().map(Into::into);
        match self.backlog {
            Some(backlog) => options.with_backlog(backlog),
            None => options,
        }
    }

    /// The tools that are in a queue, as its own section or theirs says.
    fn tools_in<'a>(&'a self, queue: &'a String) -> impl Iterator<Item = &'a String> {
        let listed = self.queues.get(queue).into_iter().flat_map(|section| &section.tools);
        let said = |(_, tool): &(&String, &CallSection)| tool.queue.as_ref() == Some(queue);
        listed.chain(self.tools.iter().filter(said).map(|(tool, _)| tool))
    }

    /// What every call passes through. `fleet` is where limits for all handlers are kept, and
    /// `redactor` knows the secrets of this process.
    ///
    /// Queues are not among it: in a handler, calls have waited for their turn before they get
    /// there.
    #[must_use]
    pub fn layers(&self, fleet: Option<&FleetStore>, redactor: Arc<Redactor>) -> LayerOptions {
        self.layers_of(&BTreeMap::new(), fleet, redactor)
    }

    /// The same with the queues, where there is no handler in front.
    #[must_use]
    pub fn layers_with_queues(
        &self,
        fleet: Option<&FleetStore>,
        redactor: Arc<Redactor>,
    ) -> LayerOptions {
        let queue = |(name, section): (&String, &QueueSection)| {
            let default = QueueRules::default();
            let waiting = section.waiting.map_or(default.waiting, usize::from);
            let wait = section.wait.and_then(Period::duration).unwrap_or(default.wait);
            let rules = QueueRules { running: section.concurrency.into(), waiting, wait };
            (name.clone(), Queue::new(name, rules))
        };
        self.layers_of(&self.queues.iter().map(queue).collect(), fleet, redactor)
    }

    fn layers_of(
        &self,
        queues: &BTreeMap<String, Arc<Queue>>,
        fleet: Option<&FleetStore>,
        redactor: Arc<Redactor>,
    ) -> LayerOptions {
        let mut policies = CallPolicies::default();
        let sections = self.tools.iter().chain(&self.servers);
        for (name, _) in sections.filter(|(_, one)| one.fleet.is_some() && fleet.is_none()) {
            warn!(%name, "its limit for the fleet does not hold: there is no store for it");
        }
        for (name, section) in &self.tools {
            policies.set_tool(name, section.policy(name, &format!("tool:{name}"), queues, fleet));
        }
        for (name, section) in &self.servers {
            let place = format!("server:{}", name.to_lowercase());
            policies.set_server(name, section.policy(name, &place, queues, fleet));
        }
        LayerOptions {
            max_result_bytes: self.max_result_bytes,
            policies: Arc::new(policies),
            cache: (self.cache_bytes > 0).then(|| ResultCache::new(self.cache_bytes)),
            redactor,
            account: Some(Arc::new(CallAccount::default())),
            ..LayerOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockbot_tools::limits::{CallPolicy, Tenant};

    #[test]
    fn a_tool_is_in_one_queue() {
        let queue = |tools: &[&str]| QueueSection {
            tools: tools.iter().map(ToString::to_string).collect(),
            concurrency: 0,
            waiting: None,
            wait: None,
        };
        let queues = [("a", queue(&["bash"])), ("b", queue(&["search", "bash"]))];
        let queues = queues.map(|(name, queue)| (name.to_owned(), queue)).into();
        let section = HandlerSection { queues, ..HandlerSection::default() };
        assert_eq!(
            section.problems(),
            [
                "handler.queues.a.concurrency: must be at least 1",
                "handler.queues.b.concurrency: must be at least 1",
                "handler.queues.b: bash is in a already",
            ]
        );
    }

    #[test]
    fn a_tool_or_a_server_says_which_queue_it_is_in() {
        let section: HandlerSection = serde_json::from_value(serde_json::json!({
            "queues": {"slow": {"tools": ["bash"], "concurrency": 1}},
            "tools": {"search": {"queue": "slow"}, "echo": {"queue": "fast"}},
            "servers": {"GitHub": {"queue": "slow"}},
        }))
        .unwrap();
        assert_eq!(
            section.problems(),
            ["handler.tools.echo.queue: there is no [handler.queues.fast]"]
        );
        let queues = section.options().admission.queues;
        assert_eq!(queues[0].0, ["bash", "search", &queue_of_server("github")]);
    }

    /// What holds for the call of a tool of a server whose configuration says the rest.
    fn held(section: serde_json::Value, own: &CallPolicy) -> CallPolicy {
        let section: CallSections = serde_json::from_value(section).unwrap();
        let policy =
            |one: &CallSection| one.policy("search", "tool:search", &BTreeMap::new(), None);
        policy(&section.tool).or(&policy(&section.server)).or(own)
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct CallSections {
        tool: CallSection,
        server: CallSection,
    }

    #[test]
    fn how_long_and_for_whom_results_are_kept_is_inherited_each_by_itself() {
        let own = CallPolicy {
            cache: Some("1h".parse().unwrap()),
            cache_for: None,
            ..CallPolicy::default()
        };
        for (section, keep, tenant) in [
            (
                serde_json::json!({"tool": {"cache": "5m"}, "server": {"cache_for": "session"}}),
                "5m",
                Some(Tenant::Session),
            ),
            (
                serde_json::json!({"tool": {"cache_for": "session"},
                    "server": {"cache": "5m", "cache_for": "everyone"}}),
                "5m",
                Some(Tenant::Session),
            ),
            (serde_json::json!({"server": {"cache_for": "session"}}), "1h", Some(Tenant::Session)),
            (serde_json::json!({"tool": {"cache": "off"}}), "off", None),
        ] {
            let held = held(section, &own);
            assert_eq!((held.cache, held.cache_for), (Some(keep.parse().unwrap()), tenant));
        }
    }

    #[test]
    fn a_tool_and_a_server_of_one_name_have_places_of_their_own() {
        let section: HandlerSection = serde_json::from_value(serde_json::json!({
            "tools": {"web": {"fleet": {"concurrency": 1}}},
            "servers": {"Web": {"fleet": {"concurrency": 1}}},
        }))
        .unwrap();
        let store = FleetStore {
            store: Arc::new(rockbot_store::MemoryStore::new(rockbot_store::Clock::System)),
            namespace: "rockbot".into(),
            instance: "one".into(),
        };
        let options = section.layers(Some(&store), Redactor::from_patterns());
        let policies = format!("{:?}", options.policies);
        for place in ["tool:web", "server:web"] {
            assert!(policies.contains(&format!("of: {place:?}")), "{policies}");
        }
    }

    #[test]
    fn a_server_is_named_once_whatever_the_case() {
        let section: HandlerSection =
            serde_json::from_value(serde_json::json!({"servers": {"Web": {}, "web": {}}})).unwrap();
        assert_eq!(section.problems(), ["handler.servers.web: it is the same as Web"]);
    }

    #[test]
    fn what_can_not_hold_is_told() {
        let section: HandlerSection = serde_json::from_value(serde_json::json!({
            "tools": {"bash": {
                "rate": {"calls": 1, "per": "off"},
                "breaker": {"failures": 0, "open": "0s"},
                "fleet": {"concurrency": 65},
            }},
        }))
        .unwrap();
        assert_eq!(
            section.problems(),
            [
                "handler.tools.bash.rate.per: must be at least a nanosecond for each call",
                "handler.tools.bash.breaker.failures: must be at least 1",
                "handler.tools.bash.breaker.open: must be longer than zero",
                "handler.tools.bash.fleet.concurrency: must be 1 to 64",
            ]
        );
        let unknown = serde_json::json!({"tools": {"bash": {"cash": "1h"}}});
        assert!(serde_json::from_value::<HandlerSection>(unknown).is_err());
    }
}
