//! `[router]` of a definition.

use std::collections::BTreeSet;

use rockbot_contracts::AgentName;
use serde::Deserialize;

/// Maximum number of destinations.
const MAX_DESTINATIONS: usize = 32;

/// The agents that an agent may hand the messages of users off to. Default: none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterRules {
    /// Names of agents of the same folder, at most 32. Those that are not enabled are refused.
    pub destinations: Vec<String>,
}

impl RouterRules {
    /// Returns the problem of the rules of agent `own`, if there is one.
    pub(crate) fn problem(&self, own: Option<&AgentName>) -> Option<&'static str> {
        let names: BTreeSet<_> = self.destinations.iter().collect();
        if names.len() > MAX_DESTINATIONS {
            return Some("names more than 32 agents");
        }
        if names.len() < self.destinations.len() {
            return Some("names an agent twice");
        }
        if self.destinations.iter().any(|name| AgentName::new(name.as_str()).is_err()) {
            return Some("has an invalid name of an agent");
        }
        let is_own = |name: &String| own.is_some_and(|own| own.as_str() == name);
        self.destinations.iter().any(is_own).then_some("names the agent itself")
    }
}
