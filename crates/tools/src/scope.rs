//! What one turn may use.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use rockbot_contracts::ToolRegistration;

use crate::{filter::ToolFilter, profile::ToolProfile};

/// What one turn may use: what its kind of work may, and what its agent may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolScope {
    /// All of them must permit a tool. At least one.
    profiles: Vec<&'static ToolProfile>,
    filter: ToolFilter,
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
}

impl ToolScope {
    /// What both allow.
    #[must_use]
    pub fn new(profile: &'static ToolProfile, filter: ToolFilter) -> Self {
        Self { profiles: vec![profile], filter }
    }

    /// Every tool: for a process that serves calls, whose askers are bound by their own scopes.
    #[must_use]
    pub fn everything() -> Arc<Self> {
        static EVERYTHING: LazyLock<Arc<ToolScope>> =
            LazyLock::new(|| Arc::new(ToolScope::new(ToolProfile::main(), ToolFilter::default())));
        EVERYTHING.clone()
    }

    /// The same, and nothing that the work which asked for this one may not use: handing work over
    /// is no way around a profile. The filter of the asking agent does not bind another agent.
    #[must_use]
    pub fn on_behalf_of(mut self, asking: &Self) -> Self {
        for profile in &asking.profiles {
            if !self.profiles.contains(profile) {
                self.profiles.push(profile);
            }
        }
        self
    }

    /// Whether the turn may use a tool.
    ///
    /// # Errors
    /// Why it may not.
    pub fn judge(&self, tool: &ToolRegistration) -> Result<(), Refused> {
        if let Some(profile) = self.profiles.iter().find(|profile| !profile.permits(tool)) {
            return Err(Refused::ByProfile(profile.name()));
        }
        if self.filter.permits(&tool.name) { Ok(()) } else { Err(Refused::ByFilter) }
    }

    /// The same as a yes or no.
    #[must_use]
    pub fn permits(&self, tool: &ToolRegistration) -> bool {
        self.judge(tool).is_ok()
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
        assert_eq!(scope.judge(&registration("read")), Ok(()));
        assert_eq!(scope.judge(&registration("bash")), Err(Refused::ByFilter));
        let refused = scope.judge(&registration("mcp_register_server"));
        assert_eq!(refused, Err(Refused::ByProfile("Subagent")));
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
}
