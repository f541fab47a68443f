//! Which tools a kind of work may use.

use std::sync::LazyLock;

use rockbot_contracts::ToolSource;

use crate::filter::matches;

/// Which tools a kind of work may use, by their source and by their name.
///
/// A tool belongs to it when its name or its source is allowed and neither is denied. In a pattern
/// `*` stands for any text, so `*` is everything and `mcp:*` every MCP server.
///
/// A profile is a boundary: what works for a model without a person beside it must not widen its
/// own reach. So profiles are in the code, and no configuration and no model changes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolProfile {
    name: &'static str,
    allowed: Tools,
    denied: Tools,
}

/// Patterns of sources and of names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tools {
    sources: Vec<&'static str>,
    names: Vec<&'static str>,
}

impl Tools {
    /// The tools of these sources.
    #[must_use]
    pub fn of_sources(patterns: &[&'static str]) -> Self {
        Self { sources: patterns.to_vec(), names: Vec::new() }
    }

    /// The tools of these names.
    #[must_use]
    pub fn named(patterns: &[&'static str]) -> Self {
        Self { sources: Vec::new(), names: patterns.to_vec() }
    }

    fn join(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.names.extend(other.names);
    }

    fn contain(&self, name: &str, source: &str) -> bool {
        let any = |patterns: &[&str], text| patterns.iter().any(|pattern| matches(pattern, text));
        any(&self.names, name) || any(&self.sources, source)
    }
}

impl ToolProfile {
    /// No tool at all.
    #[must_use]
    pub fn nothing(name: &'static str) -> Self {
        Self { name, allowed: Tools::default(), denied: Tools::default() }
    }

    /// Every tool.
    #[must_use]
    pub fn everything(name: &'static str) -> Self {
        Self::nothing(name).with(Tools::of_sources(&["*"]))
    }

    /// The same under another name.
    #[must_use]
    pub fn renamed(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The same with these tools. What was denied stays denied.
    #[must_use]
    pub fn with(mut self, tools: Tools) -> Self {
        self.allowed.join(tools);
        self
    }

    /// The same without these tools, whatever is allowed before or after.
    #[must_use]
    pub fn without(mut self, tools: Tools) -> Self {
        self.denied.join(tools);
        self
    }

    /// Its name, for people and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the tool of this name and source belongs to it.
    #[must_use]
    pub fn permits(&self, name: &str, source: &ToolSource) -> bool {
        let source = source.text();
        self.allowed.contain(name, &source) && !self.denied.contain(name, &source)
    }

    /// `Main`: everything. For turns that a person began.
    #[must_use]
    pub fn main() -> &'static Self {
        static MAIN: LazyLock<ToolProfile> = LazyLock::new(|| ToolProfile::everything("Main"));
        &MAIN
    }

    /// `Scheduled`: starts no sub-agents, and adds and removes no MCP servers.
    #[must_use]
    pub fn scheduled() -> &'static Self {
        static SCHEDULED: LazyLock<ToolProfile> = LazyLock::new(|| {
            ToolProfile::main()
                .clone()
                .renamed("Scheduled")
                .without(Tools::of_sources(&["subagent"]))
                .without(Tools::named(&["mcp_register_server", "mcp_unregister_server"]))
        });
        &SCHEDULED
    }

    /// `Subagent`: like `Scheduled`, and it cancels no scheduled tasks.
    #[must_use]
    pub fn subagent() -> &'static Self {
        static SUBAGENT: LazyLock<ToolProfile> = LazyLock::new(|| {
            ToolProfile::scheduled()
                .clone()
                .renamed("Subagent")
                .without(Tools::named(&["cancel_scheduled_task"]))
        });
        &SUBAGENT
    }

    /// `A2ASynthesis`: asks no other agents. For turns about what another agent answered, which
    /// could else go back and forth for ever.
    #[must_use]
    pub fn a2a_synthesis() -> &'static Self {
        static A2A_SYNTHESIS: LazyLock<ToolProfile> = LazyLock::new(|| {
            ToolProfile::main().clone().renamed("A2ASynthesis").without(Tools::of_sources(&["a2a"]))
        });
        &A2A_SYNTHESIS
    }
}

/// Why a turn begins. Each names its profile, also those that nothing in this build begins yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryPoint {
    /// A person said something.
    UserTurn,
    /// A person judged an answer.
    Feedback,
    /// Another agent's model handed work over.
    Subagent,
    /// A scheduled task is due.
    ScheduledTask,
    /// Another agent answered.
    A2aResult,
    /// Another agent said how far it is.
    A2aStatus,
    /// Another agent failed.
    A2aError,
    /// Another agent wants to know something.
    A2aInputRequired,
    /// Another agent answered after its time was over.
    LateA2aReply,
}

impl EntryPoint {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::UserTurn,
        Self::Feedback,
        Self::Subagent,
        Self::ScheduledTask,
        Self::A2aResult,
        Self::A2aStatus,
        Self::A2aError,
        Self::A2aInputRequired,
        Self::LateA2aReply,
    ];

    /// What such a turn may use.
    #[must_use]
    pub fn profile(self) -> &'static ToolProfile {
        match self {
            Self::UserTurn | Self::Feedback => ToolProfile::main(),
            Self::Subagent => ToolProfile::subagent(),
            Self::ScheduledTask => ToolProfile::scheduled(),
            Self::A2aResult
            | Self::A2aStatus
            | Self::A2aError
            | Self::A2aInputRequired
            | Self::LateA2aReply => ToolProfile::a2a_synthesis(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_allowed_by_its_name_or_its_source_and_deny_wins() {
        let profile = ToolProfile::nothing("test")
            .with(Tools::of_sources(&["files", "mcp:*"]))
            .with(Tools::named(&["web_search", "bash"]))
            .without(Tools::named(&["bash", "write_*"]))
            .without(Tools::of_sources(&["mcp:git*"]));
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
    fn what_is_denied_once_is_not_allowed_again_by_composition() {
        let bash = Tools::named(&["bash"]);
        let profile = ToolProfile::everything("test").without(bash.clone()).with(bash);
        assert!(!profile.permits("bash", &ToolSource::Files));
        let nothing = ToolProfile::nothing("test");
        assert!(!nothing.permits("bash", &ToolSource::Files));
    }

    #[test]
    fn only_people_begin_turns_that_may_use_everything() {
        for entry in EntryPoint::ALL {
            let by_person = matches!(entry, EntryPoint::UserTurn | EntryPoint::Feedback);
            assert_eq!(entry.profile().name() == "Main", by_person, "{entry:?}");
        }
    }
}
