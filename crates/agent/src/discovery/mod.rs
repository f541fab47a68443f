//! Agents of the bus that can be asked: their announcements, and the directory of those that are known.
//!
//! - [`A2aRules`]: the callers that an agent works for, and its skills;
//! - [`AgentDirectory`]: the known agents, from announcements and from a file;
//! - `Discovery`: announces an agent, and receives the announcements of others.

mod announcer;
mod directory;
mod rules;
mod well_known;

pub(crate) use self::announcer::Discovery;
pub use self::{
    directory::{AgentDirectory, KnownAgent},
    rules::{A2aRules, SkillRule},
};
