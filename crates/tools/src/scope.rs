//! What one turn may use.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use rockbot_contracts::{AgentName, ToolRegistration, ToolSource};

use crate::{filter::ToolFilter, profile::ToolProfile};

/// How often work is handed over from agent to agent.
pub const MAX_HANDOVERS: usize = 3;

/// What one turn may use: what its kind of work may, and what its agent may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolScope {
    /// All of them must permit a tool. At least one.
    profiles: Vec<&'static ToolProfile>,
    filter: ToolFilter,
    /// The agents that handed the work over to each other; the one that works is the last.
    agents: Vec<AgentName>,
}

/// Why a tool is outside of a scope, in words for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The work may not use it.
    #[error("a turn of the profile {0} may not use that tool; use another")]
    ByProfile(&'static str),
    /// The definition of the agent does not permit it.
    #[error("this agent may not use that tool; use another")]
    ByFilter,
    /// The tool is an agent that waits for this work, or does it.
    #[error("that agent waits for this very work; do it with other tools")]
    InACircle,
    /// Too many agents handed the work over already.
    #[error("this work was handed over {MAX_HANDOVERS} times already; do it with other tools")]
    TooDeep,
}

impl ToolScope {
    /// What both allow.
    #[must_use]
    pub fn new(profile: &'static ToolProfile, filter: ToolFilter) -> Self {
        Self { profiles: vec![profile], filter, agents: Vec::new() }
    }

    /// Every tool: for a process that serves calls, whose askers are bound by their own scopes.
    #[must_use]
    pub fn everything() -> Arc<Self> {
        static EVERYTHING: LazyLock<Arc<ToolScope>> =
            LazyLock::new(|| Arc::new(ToolScope::new(ToolProfile::main(), ToolFilter::default())));
        EVERYTHING.clone()
    }

    /// The same for a turn of this agent, which is no tool of its own.
    #[must_use]
    pub fn of_agent(mut self, agent: AgentName) -> Self {
        self.agents.push(agent);
        self
    }

    /// The same, and nothing that the work may not use which handed this over: that is no way around
    /// a profile. The filter of an agent does not bind another agent.
    #[must_use]
    pub fn on_behalf_of(mut self, asking: &Self) -> Self {
        self.agents.splice(..0, asking.agents.iter().cloned());
        for profile in &asking.profiles {
            if !self.profiles.contains(profile) {
                self.profiles.push(profile);
            }
        }
        self
    }

    /// Whether the turn may use the tool of this name and source.
    ///
    /// # Errors
    /// Why it may not.
    pub fn judge(&self, name: &str, source: &ToolSource) -> Result<(), Refused> {
        let denies = |profile: &&&ToolProfile| !profile.permits(name, source);
        if let Some(profile) = self.profiles.iter().find(denies) {
            return Err(Refused::ByProfile(profile.name()));
        }
        if !self.filter.permits(name) {
            return Err(Refused::ByFilter);
        }
        let ToolSource::Agent(agent) = source else { return Ok(()) };
        if self.agents.iter().any(|working| working.as_str() == agent) {
            return Err(Refused::InACircle);
        }
        if self.agents.len() > MAX_HANDOVERS { Err(Refused::TooDeep) } else { Ok(()) }
    }

    /// The same as a yes or no.
    #[must_use]
    pub fn permits(&self, tool: &ToolRegistration) -> bool {
        self.judge(&tool.name, &tool.source).is_ok()
    }
}

/// The names of the profiles.
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
    fn a_tool_must_please_the_profile_and_the_filter() {
        let filter = ToolFilter { deny: vec!["ba*".to_owned()], ..ToolFilter::default() };
        let scope = ToolScope::new(ToolProfile::subagent(), filter);
        let judge = |name| scope.judge(name, &ToolSource::Internal);
        assert_eq!(judge("read"), Ok(()));
        assert_eq!(judge("bash"), Err(Refused::ByFilter));
        assert_eq!(judge("mcp_register_server"), Err(Refused::ByProfile("Subagent")));
    }

    #[test]
    fn work_that_is_handed_over_gains_nothing() {
        let ask = ToolRegistration { source: ToolSource::A2a, ..registration("invoke_agent") };
        let nothing = ToolFilter { allow: Vec::new(), deny: Vec::new() };
        let asking = ToolScope::new(ToolProfile::a2a_synthesis(), nothing);
        let child = ToolScope::new(ToolProfile::subagent(), ToolFilter::default());
        assert!(child.permits(&ask));
        let child = child.on_behalf_of(&asking);
        assert!(!child.permits(&ask));
        assert!(child.permits(&registration("read")), "it has tools of its own");
        assert_eq!(child.to_string(), "Subagent+A2ASynthesis");
    }

    #[test]
    fn agents_ask_each_other_neither_in_a_circle_nor_without_end() {
        let judge = |scope: &ToolScope, agent: &str| {
            scope.judge(&format!("agent__{agent}"), &ToolSource::Agent(agent.to_owned()))
        };
        let turn = |agent: &str| {
            ToolScope::new(ToolProfile::main(), ToolFilter::default())
                .of_agent(AgentName::new(agent).unwrap())
        };
        let mut scope = turn("a0");
        for handovers in 1..=MAX_HANDOVERS {
            let next = format!("a{handovers}");
            assert_eq!(judge(&scope, &next), Ok(()));
            scope = turn(&next).on_behalf_of(&scope);
            for asked in 0..=handovers {
                let refused = judge(&scope, &format!("a{asked}"));
                assert_eq!(refused, Err(Refused::InACircle), "{handovers} asks {asked}");
            }
        }
        assert_eq!(judge(&scope, "another"), Err(Refused::TooDeep));
        assert_eq!(scope.judge("bash", &ToolSource::Files), Ok(()));
    }
}
