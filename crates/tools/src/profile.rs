//! Profiles: the tools that an entry point may use.

use std::sync::LazyLock;

use rockbot_contracts::ToolSource;

use crate::filter::matches;

/// The tools that a turn may use, depending on its entry point.
///
/// A profile permits a tool if the tool's name or source is allowed and neither is denied. In a
/// pattern `*` matches any text, so `*` matches everything and `mcp:*` every MCP server.
///
/// A profile is a security boundary: a turn that no user supervises must not widen its own rights.
/// Profiles are therefore part of the code, and neither configuration nor a model can change them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolProfile {
    name: &'static str,
    allowed: ToolSet,
    denied: ToolSet,
}

/// A set of tools, given by patterns of sources and names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSet {
    sources: Vec<&'static str>,
    names: Vec<&'static str>,
}

impl ToolSet {
    /// Creates a set of the tools with these sources.
    #[must_use]
    pub fn from_sources(patterns: &[&'static str]) -> Self {
        Self { sources: patterns.to_vec(), names: Vec::new() }
    }

    /// Creates a set of the tools with these names.
    #[must_use]
    pub fn from_names(patterns: &[&'static str]) -> Self {
        Self { sources: Vec::new(), names: patterns.to_vec() }
    }

    fn extend(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.names.extend(other.names);
    }

    fn contains(&self, name: &str, source: &str) -> bool {
        let any = |patterns: &[&str], text| patterns.iter().any(|pattern| matches(pattern, text));
        any(&self.names, name) || any(&self.sources, source)
    }
}

impl ToolProfile {
    /// Creates a profile without tools.
    #[must_use]
    pub fn deny_all(name: &'static str) -> Self {
        Self { name, allowed: ToolSet::default(), denied: ToolSet::default() }
    }

    /// Creates a profile with all tools.
    #[must_use]
    pub fn allow_all(name: &'static str) -> Self {
        Self::deny_all(name).allowing(ToolSet::from_sources(&["*"]))
    }

    /// Renames the profile.
    #[must_use]
    pub fn with_name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Allows more tools. Denied tools stay denied.
    #[must_use]
    pub fn allowing(mut self, tools: ToolSet) -> Self {
        self.allowed.extend(tools);
        self
    }

    /// Denies tools. A denied tool cannot be allowed again.
    #[must_use]
    pub fn denying(mut self, tools: ToolSet) -> Self {
        self.denied.extend(tools);
        self
    }

    /// Returns the profile with this name. Profiles are recorded by their names.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let known = [
            Self::main(),
            Self::scheduled(),
            Self::subagent(),
            Self::peer(),
            Self::a2a_synthesis(),
        ];
        known.into_iter().find(|profile| profile.name == name)
    }

    /// Returns the name, for users and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns `true` if the profile permits the tool with this name and source.
    #[must_use]
    pub fn permits(&self, name: &str, source: &ToolSource) -> bool {
        let source = source.text();
        self.allowed.contains(name, &source) && !self.denied.contains(name, &source)
    }

    /// A profile without tools, for the name of a profile that this build does not know.
    pub(crate) fn unknown() -> &'static Self {
        static UNKNOWN: LazyLock<ToolProfile> = LazyLock::new(|| ToolProfile::deny_all("Unknown"));
        &UNKNOWN
    }

    /// `Main`: all tools. For turns that a user started.
    #[must_use]
    pub fn main() -> &'static Self {
        static MAIN: LazyLock<ToolProfile> = LazyLock::new(|| ToolProfile::allow_all("Main"));
        &MAIN
    }

    /// `Scheduled`: without starting sub-agents, and without adding or removing MCP servers.
    #[must_use]
    pub fn scheduled() -> &'static Self {
        static SCHEDULED: LazyLock<ToolProfile> = LazyLock::new(|| {
            ToolProfile::main()
                .clone()
                .with_name("Scheduled")
                .denying(ToolSet::from_sources(&["subagent"]))
                .denying(ToolSet::from_names(&["mcp_register_server", "mcp_unregister_server"]))
        });
        &SCHEDULED
    }

    /// `Subagent`: like `Scheduled`, and without cancelling scheduled tasks.
    #[must_use]
    pub fn subagent() -> &'static Self {
        static SUBAGENT: LazyLock<ToolProfile> = LazyLock::new(|| {
            ToolProfile::scheduled()
                .clone()
                .with_name("Subagent")
                .denying(ToolSet::from_names(&["cancel_scheduled_task"]))
        });
        &SUBAGENT
    }

    /// `Peer`: like `Subagent`, and without scheduling tasks. For work of another agent, which no user
    /// attends.
    #[must_use]
    pub fn peer() -> &'static Self {
        static PEER: LazyLock<ToolProfile> = LazyLock::new(|| {
            ToolProfile::subagent()
                .clone()
                .with_name("Peer")
                .denying(ToolSet::from_names(&["schedule_task"]))
        });
        &PEER
    }

    /// `A2ASynthesis`: without calling other agents. For turns about a message from another agent,
    /// because two agents could otherwise reply to each other forever.
    #[must_use]
    pub fn a2a_synthesis() -> &'static Self {
        static A2A_SYNTHESIS: LazyLock<ToolProfile> = LazyLock::new(|| {
            ToolProfile::main()
                .clone()
                .with_name("A2ASynthesis")
                .denying(ToolSet::from_sources(&["a2a"]))
        });
        &A2A_SYNTHESIS
    }
}

/// Reason why a turn starts. Each has a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryPoint {
    /// Message of a user.
    UserTurn,
    /// Work delegated by another agent's model.
    Subagent,
    /// Due scheduled task.
    ScheduledTask,
    /// Result from another agent.
    A2aResult,
    /// Error from another agent.
    A2aError,
    /// Request for input from another agent.
    A2aInputRequired,
    /// Result from another agent after its deadline.
    LateA2aReply,
    /// Results of sub-agents.
    SubagentResult,
    /// Work for another agent of the bus.
    A2aTask,
}

impl EntryPoint {
    /// All entry points.
    pub const ALL: [Self; 9] = [
        Self::UserTurn,
        Self::Subagent,
        Self::ScheduledTask,
        Self::A2aResult,
        Self::A2aError,
        Self::A2aInputRequired,
        Self::LateA2aReply,
        Self::SubagentResult,
        Self::A2aTask,
    ];

    /// Returns `true` for turns of delegated work, which its record continues, and not its user.
    #[must_use]
    pub const fn is_handed_over(self) -> bool {
        matches!(self, Self::Subagent | Self::A2aTask)
    }

    /// Returns the profile of such a turn.
    #[must_use]
    pub fn profile(self) -> &'static ToolProfile {
        match self {
            Self::UserTurn => ToolProfile::main(),
            Self::Subagent => ToolProfile::subagent(),
            Self::A2aTask => ToolProfile::peer(),
            Self::ScheduledTask | Self::SubagentResult => ToolProfile::scheduled(),
            Self::A2aResult | Self::A2aError | Self::A2aInputRequired | Self::LateA2aReply => {
                ToolProfile::a2a_synthesis()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deny_wins_over_allowed_name_or_source() {
        let profile = ToolProfile::deny_all("test")
            .allowing(ToolSet::from_sources(&["files", "mcp:*"]))
            .allowing(ToolSet::from_names(&["web_search", "bash"]))
            .denying(ToolSet::from_names(&["bash", "write_*"]))
            .denying(ToolSet::from_sources(&["mcp:git*"]));
        for (name, source, expected) in [
            ("read_file", ToolSource::Files, true),
            ("web_search", ToolSource::Web, true),
            ("web_browse", ToolSource::Web, false),
            ("bash", ToolSource::Files, false),
            ("write_file", ToolSource::Files, false),
            ("now", ToolSource::Mcp("time".into()), true),
            ("log", ToolSource::Mcp("github".into()), false),
            ("find", ToolSource::McpManagement, true),
            ("x", ToolSource::Other("filesystem".into()), false),
        ] {
            assert_eq!(profile.permits(name, &source), expected, "{name} of {source}");
        }
    }

    #[test]
    fn denied_tool_stays_denied_after_composition() {
        let bash = ToolSet::from_names(&["bash"]);
        let profile = ToolProfile::allow_all("test").denying(bash.clone()).allowing(bash);
        assert!(!profile.permits("bash", &ToolSource::Files));
        let deny_all = ToolProfile::deny_all("test");
        assert!(!deny_all.permits("bash", &ToolSource::Files));
    }

    #[test]
    fn recorded_profiles_are_found_by_name() {
        for entry in EntryPoint::ALL {
            assert_eq!(ToolProfile::named(entry.profile().name()), Some(entry.profile()));
        }
        assert_eq!(ToolProfile::named("Admin"), None);
    }

    #[test]
    fn turns_on_messages_of_agents_call_no_agent() {
        for entry in [
            EntryPoint::A2aResult,
            EntryPoint::A2aError,
            EntryPoint::A2aInputRequired,
            EntryPoint::LateA2aReply,
        ] {
            assert!(!entry.profile().permits("invoke_agent", &ToolSource::A2a), "{entry:?}");
        }
    }

    #[test]
    fn turns_of_handed_over_work_start_no_subagents() {
        for entry in [EntryPoint::SubagentResult, EntryPoint::A2aTask, EntryPoint::Subagent] {
            assert!(!entry.profile().permits("spawn_subagent", &ToolSource::Subagent), "{entry:?}");
        }
    }

    #[test]
    fn only_user_turns_get_main_profile() {
        for entry in EntryPoint::ALL {
            let by_user = entry == EntryPoint::UserTurn;
            assert_eq!(entry.profile().name() == "Main", by_user, "{entry:?}");
        }
    }
}
