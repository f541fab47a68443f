//! Agents of the bus as services.

use std::{fmt, sync::Arc};

use rockbot_contracts::AgentName;

use super::{ServiceDirectory, ServiceEntry, ServiceKind};
use crate::discovery::AgentDirectory;

/// Longest summary, in characters.
const MAX_SUMMARY_CHARS: usize = 400;

/// The known agents, which the agent of the process can ask. Other agents of the process ask none.
pub struct AgentServices {
    agent: AgentName,
    directory: Arc<AgentDirectory>,
}

impl AgentServices {
    /// Returns the agents of `directory`, for the agent of the process.
    #[must_use]
    pub fn new(agent: AgentName, directory: Arc<AgentDirectory>) -> Self {
        Self { agent, directory }
    }
}

impl ServiceDirectory for AgentServices {
    fn services(&self, agent: &AgentName) -> Option<Vec<ServiceEntry>> {
        if *agent != self.agent {
            return None;
        }
        let known = self.directory.all().into_iter().map(|known| {
            let skills = known.card.skills;
            let words = skills.iter().flat_map(|skill| {
                let names = [&skill.name, &skill.description].into_iter();
                names.chain(&skill.tags).chain(&skill.examples)
            });
            let keywords: Vec<_> = words.map(String::as_str).collect();
            ServiceEntry {
                id: known.card.agent_name.to_string(),
                kind: ServiceKind::A2a,
                summary: known.card.description.chars().take(MAX_SUMMARY_CHARS).collect(),
                keywords: keywords.join(" "),
                offers: skills.iter().map(|skill| skill.id.clone()).collect(),
            }
        });
        Some(known.collect())
    }
}

impl fmt::Debug for AgentServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentServices").field("directory", &self.directory).finish_non_exhaustive()
    }
}
