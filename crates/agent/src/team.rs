//! Agents as tools: the other agents of a folder, each a tool of this process.

mod agent_tool;
mod watch;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, future::ready, stream};
use rockbot_contracts::AgentName;
use rockbot_tools::ToolRegistry;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use self::agent_tool::AgentTool;
use crate::{
    agent::Agent,
    definition::AgentDefinition,
    parts::AgentParts,
};

/// Members whose end is awaited at once.
const MOST_AT_ONCE: usize = 64;

/// Makes the parts of an agent: its model, its tools and its bounds.
pub type Hire = Arc<dyn Fn(AgentDefinition) -> AgentParts + Send + Sync>;

/// The agents beside the one that a process runs. Each that is enabled and not primary is a tool
/// `agent__{name}` in the registry, whose call is a turn of that agent in this process.
///
/// Such a turn has a conversation of its own, which ends with it. It ends with the turn that called
/// it and by that turn's deadline, and may use nothing that the calling turn's profile denies.
/// Agents don't call each other in a circle, nor without end; see
/// [`MAX_HANDOVERS`](rockbot_tools::scope::MAX_HANDOVERS).
///
/// Clones share it. Dropping the last one stops watching; the tools stay.
#[derive(Clone)]
pub struct Team(Arc<Inner>);

struct Inner {
    own: AgentName,
    registry: Arc<ToolRegistry>,
    hire: Hire,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    definitions: Vec<AgentDefinition>,
    /// What was said of an agent at run time; it holds over its definition.
    switched: BTreeMap<AgentName, bool>,
    members: BTreeMap<AgentName, Member>,
    watch: Option<AbortHandle>,
}

struct Member {
    definition: AgentDefinition,
    agent: Agent,
    tool: String,
}

impl Team {
    /// A team without members, whose tools go into `registry`. `own` is the agent that the process
    /// runs and no tool of itself.
    #[must_use]
    pub fn new(own: AgentName, registry: Arc<ToolRegistry>, hire: Hire) -> Self {
        Self(Arc::new(Inner { own, registry, hire, state: Mutex::default() }))
    }

    /// Makes the tools those of these definitions. A turn that runs goes on as it began.
    pub fn follow(&self, definitions: Vec<AgentDefinition>) {
        let mut state = self.0.state();
        state.definitions = definitions;
        self.0.settle(&mut state);
    }

    /// Makes an agent a tool, or no tool any more, whatever its definition says, until the process
    /// ends. Whether there is such an agent.
    pub fn switch(&self, agent: &AgentName, enabled: bool) -> bool {
        let mut state = self.0.state();
        state.switched.insert(agent.clone(), enabled);
        self.0.settle(&mut state);
        state.definitions.iter().any(|definition| definition.name == *agent)
    }

    /// The agents that are tools now.
    #[must_use]
    pub fn members(&self) -> Vec<AgentName> {
        self.0.state().members.keys().cloned().collect()
    }

    /// Follows the definitions of a folder, now and whenever one changes. A change that can't be
    /// used is told in the log and changes nothing.
    pub fn watch(&self, folder: PathBuf) {
        let task = tokio::spawn(watch::run(Arc::downgrade(&self.0), folder));
        if let Some(before) = self.0.state().watch.replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Ends the turns of all members within `grace`, and lets none begin.
    pub async fn shut_down(&self, grace: Duration) {
        let members = {
            let mut state = self.0.state();
            state.definitions.clear();
            if let Some(watch) = state.watch.take() {
                watch.abort();
            }
            let members: Vec<_> = state.members.values().map(|one| one.agent.clone()).collect();
            self.0.settle(&mut state);
            members
        };
        let ended: Vec<_> = members.iter().map(|agent| agent.shut_down(grace)).collect();
        let ended = stream::iter(ended).buffer_unordered(MOST_AT_ONCE);
        ended.for_each(|_| ready(())).await;
    }
}

impl Inner {
    /// Makes the registry hold a tool for each agent that is to be one.
    fn settle(&self, state: &mut State) {
        let State { definitions, switched, members, .. } = state;
        let is_tool = |one: &AgentDefinition| {
            let enabled = switched.get(&one.name).copied().unwrap_or(one.enabled);
            enabled && !one.primary && one.name != self.own
        };
        let wanted: Vec<_> = definitions.iter().filter(|one| is_tool(one)).collect();
        members.retain(|name, member| {
            let stays = wanted.iter().any(|one| **one == member.definition);
            if !stays {
                self.registry.unregister(&member.tool);
                info!(agent = %name, "an agent is no tool any more");
            }
            stays
        });
        for definition in wanted {
            if members.contains_key(&definition.name) {
                continue;
            }
            let agent = Agent::new((self.hire)(definition.clone()));
            let tool = AgentTool::new(agent.clone());
            let name = tool.name().to_owned();
            match self.registry.register(Arc::new(tool)) {
                Ok(()) => {
                    info!(agent = %definition.name, tool = %name, "an agent is a tool");
                    let definition = definition.clone();
                    let member = Member { definition, agent, tool: name };
                    members.insert(member.definition.name.clone(), member);
                }
                Err(error) => warn!(%error, "an agent can't be a tool"),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
