//! Tools that a turn may use.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use rockbot_contracts::{AgentName, ToolRegistration, ToolSource};

use crate::{filter::ToolFilter, profile::ToolProfile};

/// Maximum number of handovers between agents within one piece of work.
pub const MAX_HANDOVERS: usize = 3;

/// Tools that a turn may use: those that both its profile and its agent's filter permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolScope {
    /// Profiles, at least one. A tool needs the permission of each.
    profiles: Vec<&'static ToolProfile>,
    filter: ToolFilter,
    /// Chain of agents that handed over the work. The last one is the current agent.
    agents: Vec<AgentName>,
}

/// Reason why a tool is outside of a scope, addressed to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// A profile does not permit the tool.
    #[error("a turn of the profile {0} may not use that tool; use another")]
    DeniedByProfile(&'static str),
    /// The agent's filter does not permit the tool.
    #[error("this agent may not use that tool; use another")]
    DeniedByFilter,
    /// The tool is an agent that is already in the chain.
    #[error("that agent already works on this request; use other tools")]
    Cycle,
    /// The chain of agents is too long.
    #[error("this request was already handed over {MAX_HANDOVERS} times; use other tools")]
    TooManyHandovers,
}

impl ToolScope {
    /// Creates a scope from a profile and a filter.
    #[must_use]
    pub fn new(profile: &'static ToolProfile, filter: ToolFilter) -> Self {
        Self { profiles: vec![profile], filter, agents: Vec::new() }
    }

    /// Returns a scope of all tools, for tool handlers: callers enforce their own scopes.
    #[must_use]
    pub fn everything() -> Arc<Self> {
        static EVERYTHING: LazyLock<Arc<ToolScope>> =
            LazyLock::new(|| Arc::new(ToolScope::new(ToolProfile::main(), ToolFilter::default())));
        EVERYTHING.clone()
    }

    /// Sets the agent of the turn, which must not call itself as a tool.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentName) -> Self {
        self.agents.push(agent);
        self
    }

    /// Restricts the scope to that of the turn that handed over the work, so that a handover cannot
    /// bypass a profile. The parent's filter does not apply: it is specific to the parent's agent.
    #[must_use]
    pub fn with_parent(mut self, parent: &Self) -> Self {
        self.agents.splice(..0, parent.agents.iter().cloned());
        for profile in &parent.profiles {
            if !self.profiles.contains(profile) {
                self.profiles.push(profile);
            }
        }
        self
    }

    /// Checks that the turn may use the tool with this name and source.
    ///
    /// # Errors
    /// Returns the reason why it may not.
    pub fn check(&self, name: &str, source: &ToolSource) -> Result<(), ScopeError> {
        let denies = |profile: &&&ToolProfile| !profile.permits(name, source);
        if let Some(profile) = self.profiles.iter().find(denies) {
            return Err(ScopeError::DeniedByProfile(profile.name()));
        }
        if !self.filter.permits(name) {
            return Err(ScopeError::DeniedByFilter);
        }
        let ToolSource::Agent(agent) = source else { return Ok(()) };
        if self.agents.iter().any(|working| working.as_str() == agent) {
            return Err(ScopeError::Cycle);
        }
        if self.agents.len() > MAX_HANDOVERS { Err(ScopeError::TooManyHandovers) } else { Ok(()) }
    }

    /// Returns `true` if the turn may use the tool.
    #[must_use]
    pub fn permits(&self, tool: &ToolRegistration) -> bool {
        self.check(&tool.name, &tool.source).is_ok()
    }
}

/// Writes the names of the profiles.
impl fmt::Display for ToolScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.profiles.iter().map(|profile| profile.name()).collect();
        f.write_str(&names.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolSource;

    use super::*;
    use crate::testing::registration;

    #[test]
    fn tool_needs_permission_of_profile_and_filter() {
        let filter = ToolFilter { deny: vec!["ba*".to_owned()], ..ToolFilter::default() };
        let scope = ToolScope::new(ToolProfile::subagent(), filter);
        let check = |name| scope.check(name, &ToolSource::Internal);
        assert_eq!(check("read"), Ok(()));
        assert_eq!(check("bash"), Err(ScopeError::DeniedByFilter));
        assert_eq!(check("mcp_register_server"), Err(ScopeError::DeniedByProfile("Subagent")));
    }

    #[test]
    fn handover_does_not_widen_scope() {
        let ask = ToolRegistration { source: ToolSource::A2a, ..registration("invoke_agent") };
        let nothing = ToolFilter { allow: Vec::new(), deny: Vec::new() };
        let parent = ToolScope::new(ToolProfile::a2a_synthesis(), nothing);
        let child = ToolScope::new(ToolProfile::subagent(), ToolFilter::default());
        assert!(child.permits(&ask));
        let child = child.with_parent(&parent);
        assert!(!child.permits(&ask));
        assert!(child.permits(&registration("read")), "it has tools of its own");
        assert_eq!(child.to_string(), "Subagent+A2ASynthesis");
    }

    #[test]
    fn handovers_reject_cycles_and_long_chains() {
        let check = |scope: &ToolScope, agent: &str| {
            scope.check(&format!("agent__{agent}"), &ToolSource::Agent(agent.to_owned()))
        };
        let turn = |agent: &str| {
            ToolScope::new(ToolProfile::main(), ToolFilter::default())
                .with_agent(AgentName::new(agent).unwrap())
        };
        let mut scope = turn("a0");
        for handovers in 1..=MAX_HANDOVERS {
            let next = format!("a{handovers}");
            assert_eq!(check(&scope, &next), Ok(()));
            scope = turn(&next).with_parent(&scope);
            for previous in 0..=handovers {
                let error = check(&scope, &format!("a{previous}"));
                assert_eq!(error, Err(ScopeError::Cycle), "{handovers} calls {previous}");
            }
        }
        assert_eq!(check(&scope, "another"), Err(ScopeError::TooManyHandovers));
        assert_eq!(scope.check("bash", &ToolSource::Files), Ok(()));
    }
}
