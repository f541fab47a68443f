//! Configuration section of processes that run tools.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU16,
    sync::Arc,
};

use rockbot_contracts::{
    HandlerPool, PoolName,
    identity::{CallerPolicy, User},
};
use rockbot_tools::{
    call_section::CallSection,
    layers::{
        CallAccount, CallPolicies, LayerOptions, ResultCache, stack::DEFAULT_MAX_RESULT_BYTES,
    },
    limits::{fleet::FleetStore, queue::Queue},
    period::Period,
    redaction::Redactor,
};
use serde::Deserialize;
use tracing::warn;

use crate::{
    family::Family,
    invoke::{AdmissionLimits, InvokeOptions, policy_queue_key, server_queue_key},
    queue_section::QueueSection,
};

/// Section `[handler]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSection {
    /// Pool of a tool handler. Default: the unnamed one.
    pub pool: Option<PoolName>,
    /// Families of tools that a tool handler runs. Default files and scripts, for the unnamed pool only.
    pub families: Option<Vec<Family>>,
    /// Maximum number of calls that run at once. Default 64, at least 1.
    pub concurrency: u16,
    /// Maximum number of calls that run at once of a tool in no queue. Default three quarters of
    /// `concurrency`, so that a hung tool leaves capacity for the others.
    pub per_tool: Option<u16>,
    /// Maximum number of calls that wait in the handler, beyond the running ones; at most half of them for
    /// one tool in no queue. Default sixteen times `concurrency`.
    pub backlog: Option<u16>,
    /// Maximum duration of a call of a tool for which no section has a timeout. Default: none.
    pub tool_timeout: Option<Period>,
    /// Largest result, in bytes of content. Default 1 MiB.
    pub max_result_bytes: usize,
    /// Accept only requests that the broker validated as sent by an agent's or the command line program's
    /// user. Default false; always true in the production profile.
    pub require_identity: bool,
    /// Broker user of the handler, from the URL of the bus.
    #[serde(skip)]
    pub user: Option<String>,
    /// Queues of tools with shared bounds, by name.
    pub queues: BTreeMap<String, QueueSection>,
    /// Policies of single tools, by name.
    pub tools: BTreeMap<String, CallSection>,
    /// Policies that the tools of an MCP server share, by the case-insensitive name of the server or of a
    /// source such as `files`.
    pub servers: BTreeMap<String, CallSection>,
    /// Size of the result cache, in bytes; 0 disables it. Default 64 MiB.
    pub cache_bytes: u64,
}

impl Default for HandlerSection {
    fn default() -> Self {
        Self {
            pool: None,
            families: None,
            concurrency: 64,
            per_tool: None,
            backlog: None,
            tool_timeout: None,
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
    /// Validates the section. Returns the problems, as messages for an operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = self.validate_families();
        if self.concurrency == 0 {
            problems.push("handler.concurrency: must be at least 1".to_owned());
        }
        if self.per_tool == Some(0) {
            problems.push("handler.per_tool: must be at least 1".to_owned());
        }
        let max = 3 * 1024 * 1024;
        if !(1024..=max).contains(&self.max_result_bytes) {
            problems.push(format!("handler.max_result_bytes: must be 1024 to {max}"));
        }
        let mut queue_of_tool = BTreeMap::new();
        for (name, queue) in &self.queues {
            if queue.concurrency == 0 {
                problems.push(format!("handler.queues.{name}.concurrency: must be at least 1"));
            }
            for tool in self.tools_in(name) {
                if let Some(other) = queue_of_tool.insert(tool, name) {
                    problems.push(format!(
                        "handler.queues.{name}: tool {tool} is already in queue {other}"
                    ));
                }
            }
        }
        let mut servers = BTreeMap::new();
        for name in self.servers.keys() {
            if let Some(other) = servers.insert(name.to_lowercase(), name) {
                problems.push(format!(
                    "handler.servers.{name}: is a duplicate of {other}; names are case-insensitive"
                ));
            }
        }
        for (kind, sections) in [("tools", &self.tools), ("servers", &self.servers)] {
            for (name, section) in sections {
                let path = format!("handler.{kind}.{name}");
                problems.extend(section.validate(&path));
                let unknown = |queue: &&String| !self.queues.contains_key(*queue);
                if let Some(queue) = section.queue.as_ref().filter(unknown) {
                    problems
                        .push(format!("{path}.queue: section [handler.queues.{queue}] is missing"));
                }
            }
        }
        problems
    }

    fn validate_families(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match (&self.families, &self.pool) {
            (None, Some(pool)) => problems.push(format!(
                "handler.families: is required for pool {pool}; list what its handlers run, for \
                 example [\"files\"]"
            )),
            (Some(families), _) if families.is_empty() => {
                problems.push("handler.families: must have at least one family".to_owned());
            }
            (Some(families), _) => {
                let mut known = BTreeSet::new();
                let repeated = families.iter().filter(|family| !known.insert(**family));
                problems.extend(
                    repeated.map(|family| format!("handler.families: {family} is listed twice")),
                );
            }
            (None, None) => {}
        }
        problems
    }

    /// Validates the section of a process that is no tool handler, so belongs to no pool. Returns the
    /// problems, as messages for an operator.
    #[must_use]
    pub fn validate_without_pool(&self) -> Vec<String> {
        let mut problems = self.validate();
        for (key, is_set) in [("pool", self.pool.is_some()), ("families", self.families.is_some())]
        {
            if is_set {
                problems.push(format!("handler.{key}: only tool handlers have it; remove it"));
            }
        }
        problems
    }

    /// Returns the pool of a tool handler.
    #[must_use]
    pub fn pool(&self) -> HandlerPool {
        self.pool.clone().into()
    }

    /// Returns the families of tools that a tool handler runs.
    #[must_use]
    pub fn families(&self) -> &[Family] {
        self.families.as_deref().unwrap_or(&Family::DEFAULT)
    }

    /// Returns the problem of a broker user of the fleet that may not serve the pool, as a message for an
    /// operator.
    #[must_use]
    pub fn validate_user(&self, user: &str) -> Option<String> {
        let pool = self.pool();
        if pool.may_be_served_by(Some(user)) {
            return None;
        }
        let service = User::service_of(user).map_or_else(String::new, |own| own.to_string());
        Some(format!(
            "bus.url: user {user} ({service}) does not serve the {pool} pool; use the one of {}",
            pool.user()
        ))
    }

    /// Sets the broker user of the handler. With `users_required`, every client has its own broker user,
    /// and a request without a validated one is rejected.
    pub fn identify(&mut self, user: Option<String>, users_required: bool) {
        self.user = user;
        self.require_identity |= users_required;
    }

    /// Returns the options of the handler.
    #[must_use]
    pub fn options(&self) -> InvokeOptions {
        let mut options = InvokeOptions::new(self.concurrency);
        let AdmissionLimits { per_tool, queues, weights, .. } = &mut options.admission;
        *weights = self.weights();
        if let Some(running) = self.per_tool {
            per_tool.running = running.into();
        }
        queues.extend(self.queues.iter().map(|(name, queue)| {
            let tools = self.tools_in(name).cloned();
            let in_queue = |server: &&CallSection| server.queue.as_ref() == Some(name);
            let servers = self.servers.iter().filter(|(_, server)| in_queue(server));
            let servers = servers.map(|(server, _)| server_queue_key(server));
            let in_policy = std::iter::once(policy_queue_key(name));
            (tools.chain(servers).chain(in_policy).collect(), queue.limits())
        }));
        if self.require_identity {
            options.callers = CallerPolicy::Known;
        }
        options.user = self.user.as_deref().map(Into::into);
        match self.backlog {
            Some(backlog) => options.with_backlog(backlog),
            None => options,
        }
    }

    /// Returns the tools of a queue, from its own section and from theirs.
    fn tools_in<'a>(&'a self, queue: &'a String) -> impl Iterator<Item = &'a String> {
        let listed = self.queues.get(queue).into_iter().flat_map(|section| &section.tools);
        let names_queue = |(_, tool): &(&String, &CallSection)| tool.queue.as_ref() == Some(queue);
        listed.chain(self.tools.iter().filter(names_queue).map(|(tool, _)| tool))
    }

    /// Returns the layers that every call passes through. `fleet` stores the limits that all handlers
    /// share, and `redactor` removes the secrets of this process from errors.
    ///
    /// Queues are not included, not even those of the tools' own policies: a handler's admission control
    /// applies them.
    #[must_use]
    pub fn layers(&self, fleet: Option<&FleetStore>, redactor: Arc<Redactor>) -> LayerOptions {
        let mut policies = CallPolicies::default();
        policies.ignore_queues();
        self.build_layers(policies, &BTreeMap::new(), fleet, redactor)
    }

    /// Returns the layers with these queues of the section, for calls that do not pass a handler's admission
    /// control.
    #[must_use]
    pub fn layers_with_queues(
        &self,
        queues: &BTreeMap<String, Arc<Queue>>,
        fleet: Option<&FleetStore>,
        redactor: Arc<Redactor>,
    ) -> LayerOptions {
        self.build_layers(CallPolicies::default(), queues, fleet, redactor)
    }

    /// Creates the configured queues, by name.
    #[must_use]
    pub fn queues(&self) -> BTreeMap<String, Arc<Queue>> {
        self.queues.iter().map(|(name, section)| (name.clone(), section.queue(name))).collect()
    }

    /// Returns the weights of tools, servers and queues.
    fn weights(&self) -> HashMap<String, NonZeroU16> {
        let tools = self.tools.iter().map(|(name, tool)| (name.clone(), tool.weight));
        let servers =
            self.servers.iter().map(|(name, server)| (server_queue_key(name), server.weight));
        let queues = self.queues.iter().map(|(name, queue)| (policy_queue_key(name), queue.weight));
        let weights = tools.chain(servers).chain(queues);
        weights.filter_map(|(name, weight)| Some((name, weight?))).collect()
    }

    /// Returns the layers with `policies`, to which those of the sections are added.
    fn build_layers(
        &self,
        mut policies: CallPolicies,
        queues: &BTreeMap<String, Arc<Queue>>,
        fleet: Option<&FleetStore>,
        redactor: Arc<Redactor>,
    ) -> LayerOptions {
        let sections = self.tools.iter().chain(&self.servers);
        let ignored = sections.filter(|(_, section)| section.fleet.is_some() && fleet.is_none());
        for (name, _) in ignored {
            warn!(%name, "fleet limit not enforced: no shared store is configured");
        }
        policies.set_default_timeout(self.tool_timeout.and_then(Period::duration));
        for (name, section) in &self.tools {
            policies.set_tool(name, section.policy(name, &format!("tool:{name}"), queues, fleet));
        }
        for (name, section) in &self.servers {
            let scope = format!("server:{}", name.to_lowercase());
            policies.set_server(name, section.policy(name, &scope, queues, fleet));
        }
        LayerOptions {
            max_result_bytes: self.max_result_bytes,
            policies: Arc::new(policies),
            cache: (self.cache_bytes > 0).then(|| ResultCache::new(self.cache_bytes)),
            redactor,
            account: Some(Arc::new(CallAccount::default())),
            logs: true,
            ..LayerOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockbot_tools::limits::{CallPolicy, Tenant};

    #[test]
    fn tool_in_two_queues_is_a_problem() {
        let queue = |tools: &[&str]| QueueSection {
            tools: tools.iter().map(ToString::to_string).collect(),
            concurrency: 0,
            waiting: None,
            wait: None,
            weight: None,
        };
        let queues = [("a", queue(&["bash"])), ("b", queue(&["search", "bash"]))];
        let queues = queues.map(|(name, queue)| (name.to_owned(), queue)).into();
        let section = HandlerSection { queues, ..HandlerSection::default() };
        assert_eq!(
            section.validate(),
            [
                "handler.queues.a.concurrency: must be at least 1",
                "handler.queues.b.concurrency: must be at least 1",
                "handler.queues.b: tool bash is already in queue a",
            ]
        );
    }

    #[test]
    fn named_pool_needs_families() {
        let check = |section: serde_json::Value, expected: &[&str]| {
            let section: HandlerSection = serde_json::from_value(section).unwrap();
            let problems = section.validate();
            assert_eq!(problems.len(), expected.len(), "{problems:?}");
            for (problem, text) in problems.iter().zip(expected) {
                assert!(problem.contains(text), "{problem}");
            }
        };
        check(serde_json::json!({}), &[]);
        check(serde_json::json!({"pool": "web", "families": ["web", "rest"]}), &[]);
        check(serde_json::json!({"families": ["files"]}), &[]);
        check(serde_json::json!({"pool": "web"}), &["is required for pool web"]);
        check(serde_json::json!({"families": []}), &["at least one family"]);
        check(serde_json::json!({"families": ["web", "web"]}), &["web is listed twice"]);
        for bad in [serde_json::json!({"pool": "Web"}), serde_json::json!({"families": ["wisp"]})] {
            assert!(serde_json::from_value::<HandlerSection>(bad).is_err());
        }
        let bridge = HandlerSection { pool: "web".parse().ok(), ..HandlerSection::default() };
        let problems = bridge.validate_without_pool();
        assert!(problems.iter().any(|problem| problem.starts_with("handler.pool: only tool")));
    }

    #[test]
    fn broker_user_must_serve_the_pool() {
        let section = HandlerSection { pool: "web".parse().ok(), ..HandlerSection::default() };
        for user in ["guest", "rockbot.tool-handler.web"] {
            assert_eq!(section.validate_user(user), None);
        }
        let problem = section.validate_user("rockbot.tool-handler").unwrap();
        assert!(problem.contains("use the one of tool-handler web"), "{problem}");
        let unnamed = HandlerSection::default();
        assert_eq!(unnamed.validate_user("rockbot.tool-handler"), None);
        assert!(unnamed.validate_user("rockbot.tool-handler.web").is_some());
    }

    #[test]
    fn tool_and_server_sections_assign_queues() {
        let section: HandlerSection = serde_json::from_value(serde_json::json!({
            "queues": {"slow": {"tools": ["bash"], "concurrency": 1}},
            "tools": {"search": {"queue": "slow"}, "echo": {"queue": "fast"}},
            "servers": {"GitHub": {"queue": "slow"}},
        }))
        .unwrap();
        assert_eq!(
            section.validate(),
            ["handler.tools.echo.queue: section [handler.queues.fast] is missing"]
        );
        let queues = section.options().admission.queues;
        assert_eq!(
            queues[0].0,
            ["bash", "search", &server_queue_key("github"), &policy_queue_key("slow")]
        );
    }

    #[test]
    fn weights_of_tools_servers_and_queues_divide_the_capacity() {
        let section: HandlerSection = serde_json::from_value(serde_json::json!({
            "queues": {"slow": {"weight": 3}},
            "tools": {"search": {"weight": 2}, "echo": {}},
            "servers": {"GitHub": {"weight": 4}},
        }))
        .unwrap();
        let mut weights: Vec<_> = section.options().admission.weights.into_iter().collect();
        weights.sort();
        let expected = [("queue:slow", 3), ("search", 2), ("server:github", 4)];
        let expected = expected.map(|(name, weight)| (name.to_owned(), weight));
        assert_eq!(
            weights.iter().map(|(name, weight)| (name.clone(), weight.get())).collect::<Vec<_>>(),
            expected
        );
        let zero = serde_json::json!({"tools": {"search": {"weight": 0}}});
        assert!(serde_json::from_value::<HandlerSection>(zero).is_err());
    }

    /// Returns the effective policy of a tool with the definition `own`, from a `tool` and a `server`
    /// section.
    fn effective_policy(section: serde_json::Value, own: &CallPolicy) -> CallPolicy {
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
    fn cache_ttl_and_tenant_are_inherited_separately() {
        let own = CallPolicy {
            cache: Some("1h".parse().unwrap()),
            cache_for: None,
            ..CallPolicy::default()
        };
        for (section, ttl, tenant) in [
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
            let policy = effective_policy(section, &own);
            assert_eq!((policy.cache, policy.cache_for), (Some(ttl.parse().unwrap()), tenant));
        }
    }

    #[test]
    fn tool_and_server_of_same_name_have_separate_limits() {
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
        for scope in ["tool:web", "server:web"] {
            assert!(policies.contains(&format!("{scope:?}")), "{policies}");
        }
    }

    #[test]
    fn server_names_differing_in_case_are_duplicates() {
        let section: HandlerSection =
            serde_json::from_value(serde_json::json!({"servers": {"Web": {}, "web": {}}})).unwrap();
        assert_eq!(
            section.validate(),
            ["handler.servers.web: is a duplicate of Web; names are case-insensitive"]
        );
    }

    #[test]
    fn impossible_limits_are_problems() {
        let section: HandlerSection = serde_json::from_value(serde_json::json!({
            "tools": {"bash": {
                "rate": {"calls": 4_000_000_000_u32, "per": "1s"},
                "breaker": {"failures": 0, "open": "0s"},
                "fleet": {"concurrency": 65},
            }},
        }))
        .unwrap();
        assert_eq!(
            section.validate(),
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
