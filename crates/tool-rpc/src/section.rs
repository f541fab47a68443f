//! Configuration section of processes that run tools.

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

use crate::invoke::{AdmissionLimits, InvokeOptions, QueueLimits, server_queue_key};

/// Section `[handler]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSection {
    /// Maximum number of calls that run at once. Default 64, at least 1.
    pub concurrency: u16,
    /// Maximum number of calls that run at once of a tool in no queue. Default three quarters of
    /// `concurrency`, so that a hung tool leaves capacity for the others.
    pub per_tool: Option<u16>,
    /// Maximum number of calls that wait in the handler, beyond the running ones; at most half of them for
    /// one tool in no queue. Default sixteen times `concurrency`.
    pub backlog: Option<u16>,
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
    /// Size of the result cache, in bytes. Default 64 MiB.
    pub cache_bytes: u64,
}

/// Section `[handler.queues.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// Names of its tools, in addition to the tools whose own section names the queue.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Maximum number of calls of these tools that run at once, at least 1. Default twice the number of
    /// cores, at most 64.
    #[serde(default = "QueueSection::default_concurrency")]
    pub concurrency: u16,
    /// Maximum number of calls of these tools that wait; further calls fail with `overloaded`. Default: the
    /// backlog of the handler.
    pub waiting: Option<u16>,
    /// Maximum time that a call waits before it fails with `overloaded`. Default: until its deadline.
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
    /// Validates the section. Returns the problems, as messages for an operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
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
        let AdmissionLimits { per_tool, queues, .. } = &mut options.admission;
        if let Some(running) = self.per_tool {
            per_tool.running = running.into();
        }
        queues.extend(self.queues.iter().map(|(name, queue)| {
            let waiting = queue.waiting.map_or(usize::MAX, usize::from);
            let wait = queue.wait.and_then(Period::duration);
            let limits = QueueLimits { running: queue.concurrency.into(), waiting, wait };
            let tools = self.tools_in(name).cloned();
            let in_queue = |server: &&CallSection| server.queue.as_ref() == Some(name);
            let servers = self.servers.iter().filter(|(_, server)| in_queue(server));
            let servers = servers.map(|(server, _)| server_queue_key(server));
            (tools.chain(servers).collect(), limits)
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
    /// Queues are not included: a handler's admission control applies them.
    #[must_use]
    pub fn layers(&self, fleet: Option<&FleetStore>, redactor: Arc<Redactor>) -> LayerOptions {
        self.build_layers(&BTreeMap::new(), fleet, redactor)
    }

    /// Returns the layers with the queues, for calls that do not pass a handler's admission control.
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
        self.build_layers(&self.queues.iter().map(queue).collect(), fleet, redactor)
    }

    fn build_layers(
        &self,
        queues: &BTreeMap<String, Arc<Queue>>,
        fleet: Option<&FleetStore>,
        redactor: Arc<Redactor>,
    ) -> LayerOptions {
        let mut policies = CallPolicies::default();
        let sections = self.tools.iter().chain(&self.servers);
        let ignored = sections.filter(|(_, section)| section.fleet.is_some() && fleet.is_none());
        for (name, _) in ignored {
            warn!(%name, "fleet limit not enforced: no shared store is configured");
        }
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
        assert_eq!(queues[0].0, ["bash", "search", &server_queue_key("github")]);
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
