//! Tools that a turn may use.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use rockbot_contracts::{AgentName, ToolRegistration, ToolSource};
use serde::{Deserialize, Serialize};

use crate::{
    failure::ToolFailure,
    filter::ToolFilter,
    profile::{EntryPoint, ToolProfile},
};

/// Maximum number of handovers between agents within one piece of work.
pub const MAX_HANDOVERS: usize = 3;

/// Maximum number of turns on results of delegated work, each of which delegates more, without a message
/// of a user.
pub const MAX_GENERATIONS: u32 = 3;

/// Name of the tool that reports on delegated work.
pub const REPORT_PROGRESS: &str = "report_progress";
/// Name of the tool that asks the agent that handed the work over.
pub const REQUEST_INPUT: &str = "request_input";
/// Name of the tool that passes the question of another agent on to the user.
pub const ASK_PERSON: &str = "agent__ask_person";

/// Tools that a turn may use: those that both its profile and its agent's filter permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolScope {
    /// Profiles, at least one. A tool needs the permission of each.
    profiles: Vec<&'static ToolProfile>,
    filter: ToolFilter,
    /// Further filters, of the steps that the turn is part of.
    steps: Vec<ToolFilter>,
    /// Chain of agents that delegated the work. The last one is the current agent.
    agents: Vec<AgentName>,
    /// The turn does delegated work, and may report on it.
    is_task: bool,
    /// Turns on results of delegated work since the last message of a user.
    generation: u32,
    /// Why the turn starts, if it is known.
    entry: Option<EntryPoint>,
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
    #[error("this request was already delegated {MAX_HANDOVERS} times; use other tools")]
    TooManyHandovers,
    /// The tool reports on delegated work, and the turn does none.
    #[error(
        "only a sub-agent or a task of another agent may use that tool; answer the user instead"
    )]
    NotATask,
    /// The tool asks the agent that handed the work over, and none did.
    #[error("only a task of another agent may use that tool; ask the user in your answer")]
    NotForAgent,
    /// The tool passes a question on, and the turn has none.
    #[error("there is no question of another agent to pass on; ask the user in your answer")]
    NoQuestion,
    /// Work and results went back and forth too often without a user.
    #[error(
        "this work went back and forth {MAX_GENERATIONS} times without a user; answer with what you have"
    )]
    TooManyGenerations,
}

impl From<ScopeError> for ToolFailure {
    fn from(error: ScopeError) -> Self {
        Self::NotPermitted { reason: error.to_string() }
    }
}

impl ToolScope {
    /// Creates a scope from a profile and a filter.
    #[must_use]
    pub fn new(profile: &'static ToolProfile, filter: ToolFilter) -> Self {
        let (profiles, agents) = (vec![profile], Vec::new());
        let (is_task, generation, entry) = (false, 0, None);
        Self { profiles, filter, steps: Vec::new(), agents, is_task, generation, entry }
    }

    /// Returns a scope of all tools, for tool handlers: callers enforce their own scopes.
    #[must_use]
    pub fn everything() -> Arc<Self> {
        static EVERYTHING: LazyLock<Arc<ToolScope>> =
            LazyLock::new(|| Arc::new(ToolScope::new(ToolProfile::main(), ToolFilter::default())));
        EVERYTHING.clone()
    }

    /// Restricts the scope to the tools that this filter permits too.
    #[must_use]
    pub fn with_step(mut self, filter: ToolFilter) -> Self {
        self.steps.push(filter);
        self
    }

    /// Restricts the scope to the tools that the steps of `parent` permit, a turn of the same agent.
    #[must_use]
    pub fn with_steps_of(mut self, parent: &Self) -> Self {
        self.steps.extend(parent.steps.iter().cloned());
        self
    }

    /// Sets the agent of the turn, which must not call itself as a tool.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentName) -> Self {
        self.agents.push(agent);
        self
    }

    /// Restricts the scope to that of the turn that delegated the work, so that a delegation cannot
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

    /// Restricts the scope to that of the turn that delegated the work, as
    /// [`with_parent`](Self::with_parent), from its [`RecordedScope`]. Lets the turn report on its work.
    #[must_use]
    pub fn with_recorded_parent(mut self, parent: &RecordedScope) -> Self {
        self.is_task = true;
        for name in &parent.profiles {
            // Nothing is known about a profile of another version, so it permits nothing.
            let profile = ToolProfile::named(name).unwrap_or_else(ToolProfile::unknown);
            if !self.profiles.contains(&profile) {
                self.profiles.push(profile);
            }
        }
        // The last one is the agent of this turn too.
        let agents = parent.agents.iter().filter(|agent| !self.agents.contains(agent)).cloned();
        let agents: Vec<_> = agents.collect();
        self.agents.splice(..0, agents);
        self
    }

    /// Sets the number of turns on results of delegated work since the last message of a user.
    #[must_use]
    pub fn with_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// Sets why the turn starts, for tools that only turns of one kind may use.
    #[must_use]
    pub fn with_entry(self, entry: EntryPoint) -> Self {
        Self { entry: Some(entry), ..self }
    }

    /// Returns the agents that handed the work over, the current one last.
    #[must_use]
    pub fn agents(&self) -> &[AgentName] {
        &self.agents
    }

    /// Returns what limits work that the turn delegates.
    #[must_use]
    pub fn to_recorded(&self) -> RecordedScope {
        let profiles = self.profiles.iter().map(|profile| profile.name().to_owned()).collect();
        RecordedScope { profiles, agents: self.agents.clone() }
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
        if !self.filter.permits(name) || self.steps.iter().any(|step| !step.permits(name)) {
            return Err(ScopeError::DeniedByFilter);
        }
        if *source == ToolSource::Internal {
            self.check_internal(name)?;
        }
        let hands_over =
            matches!(source, ToolSource::Subagent | ToolSource::A2a | ToolSource::Wisp);
        if hands_over && self.generation > MAX_GENERATIONS {
            return Err(ScopeError::TooManyGenerations);
        }
        let ToolSource::Agent(agent) = source else { return Ok(()) };
        if self.agents.iter().any(|working| working.as_str() == agent) {
            return Err(ScopeError::Cycle);
        }
        if self.agents.len() > MAX_HANDOVERS { Err(ScopeError::TooManyHandovers) } else { Ok(()) }
    }

    /// Checks that an internal tool fits the kind of the turn.
    fn check_internal(&self, name: &str) -> Result<(), ScopeError> {
        let is_entry = |entry: EntryPoint| self.entry == Some(entry);
        match name {
            REPORT_PROGRESS if !self.is_task => Err(ScopeError::NotATask),
            REQUEST_INPUT if !is_entry(EntryPoint::A2aTask) => Err(ScopeError::NotForAgent),
            ASK_PERSON if !is_entry(EntryPoint::A2aInputRequired) => Err(ScopeError::NoQuestion),
            _ => Ok(()),
        }
    }

    /// Returns `true` if the turn may use the tool.
    #[must_use]
    pub fn permits(&self, tool: &ToolRegistration) -> bool {
        self.check(&tool.name, &tool.source).is_ok()
    }
}

/// The scope of a turn that delegated work, as it is recorded with the work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedScope {
    /// Names of its profiles.
    pub profiles: Vec<String>,
    /// Chain of agents that delegated the work.
    pub agents: Vec<AgentName>,
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
    fn step_needs_permission_of_both_filters() {
        let filter = ToolFilter { deny: vec!["bash".to_owned()], ..ToolFilter::default() };
        let step =
            ToolFilter { allow: vec!["bash".to_owned(), "read".to_owned()], deny: Vec::new() };
        let scope = ToolScope::new(ToolProfile::main(), filter).with_step(step);
        let permits = |name| scope.check(name, &ToolSource::Internal).is_ok();
        assert_eq!(["read", "bash", "write"].map(permits), [true, false, false]);
        // A step of that turn cannot use more.
        let any = ToolScope::new(ToolProfile::subagent(), ToolFilter::default());
        let inner = any.with_step(ToolFilter::default()).with_steps_of(&scope);
        let permits = |name| inner.check(name, &ToolSource::Internal).is_ok();
        assert_eq!(["read", "bash", "write"].map(permits), [true, true, false]);
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
    fn recorded_scope_limits_handed_over_work() {
        let agent = AgentName::new("a").unwrap();
        let parent = ToolScope::new(ToolProfile::a2a_synthesis(), ToolFilter::default());
        let recorded = parent.with_agent(agent.clone()).to_recorded();
        let child = ToolScope::new(ToolProfile::subagent(), ToolFilter::default())
            .with_agent(agent)
            .with_recorded_parent(&recorded);
        assert_eq!(child.to_string(), "Subagent+A2ASynthesis");
        assert!(child.check("invoke_agent", &ToolSource::A2a).is_err());
        assert_eq!(child.check("agent__a", &ToolSource::Agent("a".into())), Err(ScopeError::Cycle));
        assert_eq!(child.check(REPORT_PROGRESS, &ToolSource::Internal), Ok(()));
        let unknown = RecordedScope { profiles: vec!["Newer".into()], ..RecordedScope::default() };
        let child = ToolScope::new(ToolProfile::subagent(), ToolFilter::default())
            .with_recorded_parent(&unknown);
        assert!(child.check("read_file", &ToolSource::Files).is_err());
    }

    #[test]
    fn only_tasks_report_and_generations_are_bounded() {
        let scope = ToolScope::new(ToolProfile::main(), ToolFilter::default());
        let report = scope.check(REPORT_PROGRESS, &ToolSource::Internal);
        assert_eq!(report, Err(ScopeError::NotATask));
        for (generation, expected) in
            [(MAX_GENERATIONS, Ok(())), (MAX_GENERATIONS + 1, Err(ScopeError::TooManyGenerations))]
        {
            let scope = scope.clone().with_generation(generation);
            assert_eq!(scope.check("invoke_agent", &ToolSource::A2a), expected);
            assert_eq!(scope.check("read_file", &ToolSource::Files), Ok(()));
        }
    }

    #[test]
    fn questions_are_asked_by_turns_of_their_kind() {
        for entry in EntryPoint::ALL {
            let scope = ToolScope::new(entry.profile(), ToolFilter::default()).with_entry(entry);
            let may = |name| scope.check(name, &ToolSource::Internal).is_ok();
            assert_eq!(may(REQUEST_INPUT), entry == EntryPoint::A2aTask, "{entry:?}");
            assert_eq!(may(ASK_PERSON), entry == EntryPoint::A2aInputRequired, "{entry:?}");
        }
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
