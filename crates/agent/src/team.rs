//! Agents as tools: the other agents of a directory, each a tool in this process.

mod agent_tool;
mod watch;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use futures_util::{
    StreamExt,
    future::{BoxFuture, ready},
    stream,
};
use rockbot_contracts::{AgentName, UserMessage};
use rockbot_tools::{Tool, ToolProvider, ToolSource};
use tokio::{
    sync::watch::{Receiver, Sender},
    task::AbortHandle,
};
use tracing::info;

use self::agent_tool::AgentTool;
use crate::{
    agent::Agent,
    definition::AgentDefinition,
    event::{ProgressSink, TurnAnswer},
    handoff::{Destinations, HandoffTarget},
    origin::TurnOrigin,
    parts::AgentParts,
};

/// Number of members that shut down concurrently.
const CONCURRENT_SHUTDOWNS: usize = 64;

/// Creates the parts of an agent: model, tools and limits.
pub type AgentFactory = Arc<dyn Fn(AgentDefinition) -> AgentParts + Send + Sync>;

/// The agents beside the primary agent of a process. It provides each enabled agent that is not `primary`
/// as a tool `agent__{name}`. A call of the tool is a turn of that agent in this process.
///
/// The turn has its own conversation, which ends with the turn. It ends with the calling turn or at the
/// caller's deadline, and may use no tool that the profile of the caller denies. Agents cannot call each
/// other in a cycle, and the call depth is limited by
/// [`MAX_HANDOVERS`](rockbot_tools::scope::MAX_HANDOVERS).
///
/// Clones share the team. Dropping the last clone stops the watch.
#[derive(Clone)]
pub struct Team(Arc<Inner>);

struct Inner {
    own: AgentName,
    factory: AgentFactory,
    state: Mutex<State>,
    /// Receives the members, if messages may be handed off to them.
    destinations: OnceLock<Arc<Destinations>>,
    /// Counts the changes of the tools.
    changes: Sender<u64>,
}

#[derive(Default)]
struct State {
    definitions: Vec<AgentDefinition>,
    /// Overrides of `enabled` at run time.
    overrides: BTreeMap<AgentName, bool>,
    members: BTreeMap<AgentName, Member>,
    watch: Option<AbortHandle>,
}

struct Member {
    definition: AgentDefinition,
    agent: Agent,
    tool: Arc<dyn Tool>,
}

impl Team {
    /// Creates a team without members. `own` is the agent of the process, which is not a tool of itself.
    #[must_use]
    pub fn new(own: AgentName, factory: AgentFactory) -> Self {
        let (state, destinations) = (Mutex::default(), OnceLock::new());
        let changes = Sender::new(0);
        Self(Arc::new(Inner { own, factory, state, destinations, changes }))
    }

    /// Lets the agents with these `destinations` in their parts hand messages off to the members.
    #[must_use]
    pub fn with_destinations(self, destinations: Arc<Destinations>) -> Self {
        for (name, member) in &self.0.state().members {
            destinations.insert(name.clone(), Arc::new(member.agent.clone()));
        }
        // A second directory would be a mistake of the program; the first one stays.
        let _ = self.0.destinations.set(destinations);
        self
    }

    /// Replaces the definitions. Running turns keep their definition.
    pub fn set_definitions(&self, definitions: Vec<AgentDefinition>) {
        let mut state = self.0.state();
        state.definitions = definitions;
        self.0.reconcile(&mut state);
    }

    /// Overrides `enabled` of an agent until the process ends. Returns `true` if there is such an agent.
    pub fn set_enabled(&self, agent: &AgentName, enabled: bool) -> bool {
        let mut state = self.0.state();
        state.overrides.insert(agent.clone(), enabled);
        self.0.reconcile(&mut state);
        state.definitions.iter().any(|definition| definition.name == *agent)
    }

    /// Returns the agents that are tools now.
    #[must_use]
    pub fn members(&self) -> Vec<AgentName> {
        self.0.state().members.keys().cloned().collect()
    }

    /// Loads the definitions of a directory and reloads them after each change. Invalid definitions are
    /// logged and change nothing.
    pub fn watch(&self, folder: PathBuf) {
        let task = tokio::spawn(watch::run(Arc::downgrade(&self.0), folder));
        if let Some(before) = self.0.state().watch.replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Removes all members and waits up to `grace` for their turns.
    pub async fn shut_down(&self, grace: Duration) {
        let members = {
            let mut state = self.0.state();
            state.definitions.clear();
            if let Some(watch) = state.watch.take() {
                watch.abort();
            }
            let members: Vec<_> = state.members.values().map(|one| one.agent.clone()).collect();
            self.0.reconcile(&mut state);
            members
        };
        let ended: Vec<_> = members.iter().map(|agent| agent.shut_down(grace)).collect();
        let ended = stream::iter(ended).buffer_unordered(CONCURRENT_SHUTDOWNS);
        ended.for_each(|_| ready(())).await;
    }
}

impl Inner {
    /// Creates and removes members so that they match the definitions.
    fn reconcile(&self, state: &mut State) {
        let State { definitions, overrides, members, .. } = state;
        let mut is_changed = false;
        let is_tool = |one: &AgentDefinition| {
            let enabled = overrides.get(&one.name).copied().unwrap_or(one.enabled);
            enabled && !one.primary && one.name != self.own
        };
        let wanted: Vec<_> = definitions.iter().filter(|one| is_tool(one)).collect();
        members.retain(|name, member| {
            let stays = wanted.iter().any(|one| **one == member.definition);
            if !stays {
                is_changed = true;
                if let Some(destinations) = self.destinations.get() {
                    destinations.remove(name);
                }
                info!(agent = %name, "agent tool removed");
            }
            stays
        });
        for definition in wanted {
            if members.contains_key(&definition.name) {
                continue;
            }
            let agent = Agent::new((self.factory)(definition.clone()));
            let tool = AgentTool::new(agent.clone());
            info!(agent = %definition.name, tool = %tool.name(), "agent tool added");
            if let Some(destinations) = self.destinations.get() {
                destinations.insert(definition.name.clone(), Arc::new(agent.clone()));
            }
            let (tool, definition) = (Arc::new(tool), definition.clone());
            members.insert(definition.name.clone(), Member { definition, agent, tool });
            is_changed = true;
        }
        if is_changed {
            self.changes.send_modify(|version| *version += 1);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl ToolProvider for Team {
    /// All agents: each tool has the source of its own.
    fn source(&self) -> ToolSource {
        ToolSource::Agent("*".to_owned())
    }

    fn namespace(&self) -> Option<&str> {
        Some("agent")
    }

    fn list(&self) -> Vec<Arc<dyn Tool>> {
        self.0.state().members.values().map(|member| member.tool.clone()).collect()
    }

    fn changes(&self) -> Option<Receiver<u64>> {
        Some(self.0.changes.subscribe())
    }
}

impl HandoffTarget for Agent {
    fn answer(
        &self,
        origin: TurnOrigin,
        message: UserMessage,
        progress: ProgressSink,
    ) -> BoxFuture<'_, TurnAnswer> {
        Box::pin(self.run_turn(origin, message, progress))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(watch) = self.state().watch.take() {
            watch.abort();
        }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Team").field(&self.members()).finish()
    }
}
