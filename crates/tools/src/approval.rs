//! Approval of calls by a user before they run.

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    HandlerPool, RoutingKey, ToolHints, ToolSource, period::duration, topology::RETAINED_TTL,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{context::ToolContext, filter::matches, hooks::Verdict};

/// Backend that decides whether a call may run.
pub trait Approver: Send + Sync + 'static {
    /// Decides about a call. The call waits for the decision.
    ///
    /// # Cancellation
    /// The future is dropped when the call is cancelled. A later response is ignored.
    fn decide<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Verdict>;
}

impl fmt::Debug for dyn Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Approver")
    }
}

/// The call to approve, exactly as it will run.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalRequest<'a> {
    /// Facts about the call.
    pub context: &'a ToolContext,
    /// Registered name of the tool; the model may have used another.
    pub name: &'a str,
    /// Source of the tool.
    pub source: &'a ToolSource,
    /// Side effects of the tool.
    pub hints: ToolHints,
    /// Routing key of its calls, if a handler announced the tool and its hints.
    pub announced_for: Option<&'a RoutingKey>,
    /// Digest of the tool's definition.
    pub fingerprint: &'a str,
    /// Validated arguments.
    pub arguments: &'a Value,
}

/// Effect of a rule, from lenient to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalPolicy {
    /// The call runs.
    #[default]
    Allow,
    /// A user must approve the call.
    Ask,
    /// The call is rejected.
    Deny,
}

/// A rule for some calls. A call matches if every given condition holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Pattern of the tool's name, where `*` matches any text.
    #[serde(default)]
    pub tool: Option<String>,
    /// Pattern of its source, such as `files` or `mcp:*`.
    #[serde(default)]
    pub source: Option<String>,
    /// Matches tools that may destroy data. Read-only tools never do.
    #[serde(default)]
    pub destructive: Option<bool>,
    /// Matches read-only tools.
    #[serde(default)]
    pub read_only: Option<bool>,
    /// Matches tools that interact with external systems.
    #[serde(default)]
    pub open_world: Option<bool>,
    /// Policy for matching calls. Required.
    pub policy: ApprovalPolicy,
}

/// `[approval]`: calls that a user must approve. By default none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalSection {
    /// Policy for calls that match no rule. Default `allow`.
    pub policy: ApprovalPolicy,
    /// Time that a user has to respond, from 1 s to 1 h. Default 2 min.
    #[serde(deserialize_with = "duration")]
    pub expiry: Duration,
    /// Pools of handlers whose announced hints count, as `*` or by name, the one without a name as
    /// `unnamed`. The hints of others count as the defaults. Default `unnamed`.
    pub trust_hints: Vec<String>,
    /// Rules; the first match decides. At most 256.
    pub rules: Vec<ApprovalRule>,
}

impl Default for ApprovalSection {
    fn default() -> Self {
        Self {
            policy: ApprovalPolicy::Allow,
            expiry: Duration::from_secs(120),
            trust_hints: vec![HandlerPool::Unnamed.to_string()],
            rules: Vec::new(),
        }
    }
}

impl ApprovalRule {
    /// Returns the conditions as they are configured.
    fn conditions(&self) -> String {
        let text = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("{name} = {value:?}"))
        };
        let flag = |name: &str, value: Option<bool>| value.map(|value| format!("{name} = {value}"));
        let conditions = [
            text("tool", &self.tool),
            text("source", &self.source),
            flag("destructive", self.destructive),
            flag("read_only", self.read_only),
            flag("open_world", self.open_world),
        ];
        let given: Vec<_> = conditions.into_iter().flatten().collect();
        if given.is_empty() { "every call".to_owned() } else { given.join(", ") }
    }

    fn matches_tool(&self, name: &str, source: &ToolSource, hints: ToolHints) -> bool {
        let pattern = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| matches(pattern, text))
        };
        let flag = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
        pattern(&self.tool, name)
            && pattern(&self.source, &source.to_string())
            && flag(self.destructive, hints.destructive && !hints.read_only)
            && flag(self.read_only, hints.read_only)
            && flag(self.open_world, hints.open_world)
    }
}

impl ApprovalSection {
    /// Returns the hints that count for the rules: those of a tool that a pool without trust announced are
    /// the defaults, so that no handler can evade a rule by what it announces.
    #[must_use]
    pub fn hints(&self, announced: ToolHints, announced_for: Option<&RoutingKey>) -> ToolHints {
        let Some(key) = announced_for else { return announced };
        let pool = HandlerPool::from_invoke_key(key).map(|pool| pool.to_string());
        let trusts = |trusted: &String| trusted == "*" || Some(trusted) == pool.as_ref();
        if self.trust_hints.iter().any(trusts) { announced } else { ToolHints::default() }
    }

    /// Returns the policy for calls of this tool.
    #[must_use]
    pub fn policy_for(&self, name: &str, source: &ToolSource, hints: ToolHints) -> ApprovalPolicy {
        let rule = self.rules.iter().find(|rule| rule.matches_tool(name, source, hints));
        rule.map_or(self.policy, |rule| rule.policy)
    }

    /// Describes what decides about calls of this tool: the first matching rule by its number and conditions, or
    /// the default policy.
    #[must_use]
    pub fn describe_policy_for(&self, name: &str, source: &ToolSource, hints: ToolHints) -> String {
        let mut rules = self.rules.iter().zip(1..);
        match rules.find(|(rule, _)| rule.matches_tool(name, source, hints)) {
            Some((rule, number)) => format!("rule {number}: {}", rule.conditions()),
            None => "default policy".to_owned(),
        }
    }

    /// Returns the policy of the first matching rule, if that rule names the tool or its source.
    #[must_use]
    pub fn named(
        &self,
        name: &str,
        source: &ToolSource,
        hints: ToolHints,
    ) -> Option<ApprovalPolicy> {
        let rule = self.rules.iter().find(|rule| rule.matches_tool(name, source, hints))?;
        (rule.tool.is_some() || rule.source.is_some()).then_some(rule.policy)
    }

    /// Returns `true` if every call may run.
    #[must_use]
    pub fn allows_all(&self) -> bool {
        let allows = |policy| policy == ApprovalPolicy::Allow;
        allows(self.policy) && self.rules.iter().all(|rule| allows(rule.policy))
    }

    /// Returns the errors of the section, for an operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(Duration::from_secs(1)..=RETAINED_TTL).contains(&self.expiry) {
            problems.push("approval.expiry: must be from 1s to 1h".to_owned());
        }
        if self.rules.len() > 256 {
            problems.push("approval.rules: more than 256 rules".to_owned());
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let too_long = |pattern: &Option<String>| {
                pattern.as_ref().is_some_and(|pattern| pattern.len() > 128)
            };
            if too_long(&rule.tool) || too_long(&rule.source) {
                problems.push(format!("approval.rules[{at}]: pattern longer than 128 bytes"));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn first_matching_rule_decides() {
        let section: ApprovalSection = serde_json::from_value(json!({"policy": "deny", "rules": [
            {"tool": "read_*", "policy": "allow"},
            {"source": "mcp:*", "read_only": true, "policy": "allow"},
            {"source": "mcp:*", "policy": "ask"},
            {"tool": "bash", "destructive": true, "policy": "ask"},
        ]}))
        .unwrap();
        let git = ToolSource::Mcp("git".to_owned());
        let check = |name, source: &ToolSource, hints, expected| {
            assert_eq!(section.policy_for(name, source, hints), expected, "{name} of {source}");
        };
        let (writes, reads) = (ToolHints::default(), ToolHints::READ_ONLY);
        check("read_file", &ToolSource::Files, writes, ApprovalPolicy::Allow);
        check("log", &git, reads, ApprovalPolicy::Allow);
        check("push", &git, writes, ApprovalPolicy::Ask);
        check("bash", &ToolSource::Files, writes, ApprovalPolicy::Ask);
        check("bash", &ToolSource::Files, reads, ApprovalPolicy::Deny);
        check("edit_file", &ToolSource::Files, writes, ApprovalPolicy::Deny);
        assert!(!section.allows_all() && ApprovalSection::default().allows_all());
    }

    #[test]
    fn hints_of_untrusted_pool_lower_no_restriction() {
        let section: ApprovalSection = serde_json::from_value(json!({"trust_hints": ["web"],
            "rules": [{"destructive": true, "policy": "ask"}, {"read_only": true, "policy": "allow"}]}))
        .unwrap();
        let policy = |key: Option<&str>| {
            let key = key.map(|key| RoutingKey::new(key).unwrap());
            let hints = section.hints(ToolHints::READ_ONLY, key.as_ref());
            section.policy_for("read", &ToolSource::Files, hints)
        };
        assert_eq!(policy(Some("tool.invoke.pool.other")), ApprovalPolicy::Ask);
        assert_eq!(policy(Some("tool.invoke")), ApprovalPolicy::Ask);
        assert_eq!(policy(Some("tool.invoke.pool.web")), ApprovalPolicy::Allow);
        assert_eq!(policy(None), ApprovalPolicy::Allow, "not announced by a handler");
        let default = ApprovalSection::default();
        let key = RoutingKey::new("tool.invoke").unwrap();
        assert_eq!(default.hints(ToolHints::READ_ONLY, Some(&key)), ToolHints::READ_ONLY);
    }

    #[test]
    fn default_allows_all_calls() {
        let section = ApprovalSection::default();
        assert!(section.validate().is_empty());
        let policy = section.policy_for("bash", &ToolSource::Files, ToolHints::default());
        assert_eq!(policy, ApprovalPolicy::Allow);
        // The broker retains a decision no longer than that. The error names it as 1h.
        assert_eq!(RETAINED_TTL, Duration::from_secs(3600));
        let validate = |expiry| ApprovalSection { expiry, ..ApprovalSection::default() }.validate();
        assert!(validate(RETAINED_TTL).is_empty());
        assert!(!validate(RETAINED_TTL + Duration::from_millis(1)).is_empty());
        assert!(!validate(Duration::ZERO).is_empty());
    }
}
