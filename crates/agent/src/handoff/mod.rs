//! Handoffs: a turn passes the message of a user on to another agent of the team, which answers the user itself.

mod rules;
mod tool;

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use rockbot_contracts::{AgentName, SessionId, UserMessage};

pub use self::rules::RouterRules;
pub(crate) use self::tool::HandoffArguments;
use crate::{
    event::{ProgressSink, TurnAnswer},
    origin::TurnOrigin,
};

/// An agent that messages can be handed off to.
pub(crate) trait HandoffTarget: Send + Sync {
    /// Runs a turn of the agent. A message that was answered before has its recorded answer.
    fn answer(
        &self,
        origin: TurnOrigin,
        message: UserMessage,
        progress: ProgressSink,
    ) -> BoxFuture<'_, TurnAnswer>;
}

/// The agents of a process that messages can be handed off to. Created before the agents;
/// [`Team::with_destinations`](crate::Team::with_destinations) fills it.
#[derive(Default)]
pub struct Destinations(RwLock<BTreeMap<AgentName, Arc<dyn HandoffTarget>>>);

impl Destinations {
    /// Adds an agent.
    pub(crate) fn insert(&self, name: AgentName, target: Arc<dyn HandoffTarget>) {
        self.0.write().insert(name, target);
    }

    /// Removes an agent. A running turn of it ends as usual.
    pub(crate) fn remove(&self, name: &AgentName) {
        self.0.write().remove(name);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn HandoffTarget>> {
        let agents = self.0.read();
        let found = agents.iter().find(|(agent, _)| agent.as_str() == name);
        found.map(|(_, target)| target.clone())
    }
}

impl fmt::Debug for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Destinations").field(&self.0.read().keys().collect::<Vec<_>>()).finish()
    }
}

/// Returns the conversation of a destination for a conversation of the agent that hands off. It is kept for all
/// handoffs of that conversation. `None` if the ids are too long together.
pub(crate) fn session_of(session: &SessionId, destination: &str) -> Option<SessionId> {
    SessionId::new(format!("{session}.{destination}")).ok()
}
