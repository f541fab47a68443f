//! Agents that announce themselves to other agents.

use serde::{Deserialize, Serialize};

use crate::{ids::AgentName, message::Message, tool::null_is_default};

/// Maximum number of skills of a card that are read.
pub const MAX_SKILLS: usize = 64;

/// An agent and its skills, announced on `discovery.announce`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    /// Name of the agent.
    pub agent_name: AgentName,
    /// Its purpose.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Version of its program.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
    /// Its skills.
    #[serde(default, deserialize_with = "null_is_default")]
    pub skills: Vec<AgentSkill>,
    /// The agent stopped.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_deregistering: bool,
}

/// A skill of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSkill {
    /// Id by which it is asked for.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Description of its work.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Keywords.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Examples of requests.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// Request to all agents to announce themselves, on `discovery.refresh`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryRefresh {}

impl Message for AgentCard {
    const TYPE: &'static str = "AgentCard";
}

impl Message for DiscoveryRefresh {
    const TYPE: &'static str = "DiscoveryRefresh";
}
