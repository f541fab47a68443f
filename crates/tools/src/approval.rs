//! Which calls a person is asked about before they run.

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolSource, period::duration};
use serde::Deserialize;
use serde_json::Value;

use crate::{context::ToolContext, filter::matches, hooks::Verdict};

/// Says whether a call may run.
pub trait Approver: Send + Sync + 'static {
    /// Decides about one call, which waits for it.
    ///
    /// # Cancellation
    /// The future is dropped when the call is cancelled; nobody's answer counts then.
    fn decide<'a>(&'a self, question: ApprovalQuestion<'a>) -> BoxFuture<'a, Verdict>;
}

impl fmt::Debug for dyn Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Approver")
    }
}

/// The call that is decided about, exactly as it will run.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalQuestion<'a> {
    /// What the system says about the call.
    pub context: &'a ToolContext,
    /// The tool's own name, whatever the model called it.
    pub name: &'a str,
    /// Where the tool comes from.
    pub source: &'a ToolSource,
    /// What calling it may do.
    pub hints: ToolHints,
    /// Changes when the definition of the tool does.
    pub fingerprint: &'a str,
    /// Read and valid.
    pub arguments: &'a Value,
}

/// What a rule says about a call, the more lenient first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalPolicy {
    /// It runs.
    #[default]
    Allow,
    /// A person is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// What holds for some calls. All that is given must fit; what is not given fits everything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Pattern of the tool's name, where `*` stands for any text.
    #[serde(default)]
    pub tool: Option<String>,
    /// Pattern of its source, such as `files` or `mcp:*`.
    #[serde(default)]
    pub source: Option<String>,
    /// Whether it may destroy: not of tools that only read.
    #[serde(default)]
    pub destructive: Option<bool>,
    /// Whether it only reads.
    #[serde(default)]
    pub read_only: Option<bool>,
    /// Whether it reaches the world outside.
    #[serde(default)]
    pub open_world: Option<bool>,
    /// What holds then. A rule must say it.
    pub policy: ApprovalPolicy,
}

/// `[approval]`: which calls a person is asked about. By default none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalSection {
    /// What holds for calls that no rule fits. Default `allow`.
    pub policy: ApprovalPolicy,
    /// How long a person has to answer, from 1 s to 1 h. Default 2 min.
    #[serde(deserialize_with = "duration")]
    pub expiry: Duration,
    /// The first rule that fits holds. At most 256.
    pub rules: Vec<ApprovalRule>,
}

impl Default for ApprovalSection {
    fn default() -> Self {
        Self { policy: ApprovalPolicy::Allow, expiry: Duration::from_secs(120), rules: Vec::new() }
    }
}

impl ApprovalRule {
    fn fits(&self, name: &str, source: &ToolSource, hints: ToolHints) -> bool {
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
    /// What holds for calls of this tool.
    #[must_use]
    pub fn policy_for(&self, name: &str, source: &ToolSource, hints: ToolHints) -> ApprovalPolicy {
        let rule = self.rules.iter().find(|rule| rule.fits(name, source, hints));
        rule.map_or(self.policy, |rule| rule.policy)
    }

    /// What the first rule says that fits and names the tool or its source, if there is one.
    #[must_use]
    pub fn named(
        &self,
        name: &str,
        source: &ToolSource,
        hints: ToolHints,
    ) -> Option<ApprovalPolicy> {
        let rule = self.rules.iter().find(|rule| rule.fits(name, source, hints))?;
        (rule.tool.is_some() || rule.source.is_some()).then_some(rule.policy)
    }

    /// Whether it lets every call run.
    #[must_use]
    pub fn allows_all(&self) -> bool {
        let allows = |policy| policy == ApprovalPolicy::Allow;
        allows(self.policy) && self.rules.iter().all(|rule| allows(rule.policy))
    }

    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.expiry) {
            problems.push("approval.expiry: must be from 1s to 1h".to_owned());
        }
        if self.rules.len() > 256 {
            problems.push("approval.rules: has more than 256 rules".to_owned());
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let long = |one: &Option<String>| one.as_ref().is_some_and(|one| one.len() > 128);
            if long(&rule.tool) || long(&rule.source) {
                problems.push(format!("approval.rules[{at}]: a pattern may have 128 bytes"));
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
    fn the_first_rule_that_fits_holds() {
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
    fn nothing_is_asked_and_nothing_denied_by_default() {
        let section = ApprovalSection::default();
        assert!(section.problems().is_empty());
        let policy = section.policy_for("bash", &ToolSource::Files, ToolHints::default());
        assert_eq!(policy, ApprovalPolicy::Allow);
        assert!(!ApprovalSection { expiry: Duration::ZERO, ..section }.problems().is_empty());
    }
}
