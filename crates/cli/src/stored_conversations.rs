//! The store of the embedded agent's conversations.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    AgentMemory, ConversationOptions, ConversationService, ConversationServiceBuilder,
    Conversations, Schedule, SessionData,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::AgentName;
use rockbot_service::exit;
use rockbot_store::{Clock, StoreUrl, Stores, Sweeper};
use rockbot_tools::Outputs;

use crate::{
    agent_memory,
    failure::{Failure, OrExit},
    print::note,
    render,
    settings::Settings,
};

/// Interval at which expired conversations are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The open store of an embedded agent's conversations.
pub(crate) struct ConversationStores {
    pub(crate) stores: Stores,
    pub(crate) url: StoreUrl,
    _sweeper: Sweeper,
}

impl ConversationStores {
    /// Opens the configured store.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        let url = settings.conversations_url().map_err(Failure::usage)?;
        let stores = rockbot_store_sql::connect_stores(&url, Clock::System).await;
        let stores =
            stores.map_err(|error| Failure::store("agent.conversations.store", &url, &error))?;
        let sweeper = Sweeper::start_for_logs(stores.log.clone(), SWEEP_INTERVAL);
        Ok(Self { stores, url, _sweeper: sweeper })
    }

    /// Notes that conversations end with this process, if they are kept in memory.
    pub(crate) fn note_if_in_memory(&self) {
        if matches!(self.url, StoreUrl::Memory) {
            let note = "conversations are kept in memory: nothing of them survives this process";
            note!("{}", render::dim(note));
        }
    }

    /// Returns a function that returns the conversations of an agent.
    pub(crate) fn factory(
        &self,
        settings: &Settings,
    ) -> impl Fn(&AgentName) -> Conversations + Send + Sync + 'static {
        let (Stores { store, log }, in_memory) =
            (self.stores.clone(), matches!(self.url, StoreUrl::Memory));
        let retention = settings.agent.conversations.retention;
        move |agent| {
            if in_memory {
                return Conversations::in_memory(agent.clone());
            }
            let options = ConversationOptions { retention, ..ConversationOptions::default() };
            Conversations::new(log.clone(), store.clone(), agent.clone(), options)
        }
    }

    /// Returns the scheduled tasks of an agent; `None` if scheduling is off.
    pub(crate) fn schedule(
        &self,
        settings: &Settings,
        agent: &AgentName,
        memory: Option<&AgentMemory>,
    ) -> Option<Arc<Schedule>> {
        let (conversations, section) = (self.factory(settings)(agent), settings.schedule.clone());
        section.enabled.then(|| Schedule::new(&conversations, section, memory))
    }

    pub(crate) async fn close(self) {
        self.stores.close().await;
    }
}

/// Purpose of requests about stored conversations.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// Reading conversations.
    Read,
    /// Deleting them, with their working memory and stored results.
    Delete,
    /// Scheduled tasks, in the time zone that the memory has.
    Schedule,
}

/// The store of the embedded agent's conversations, served without the agent.
pub(crate) struct StoredConversations {
    stores: ConversationStores,
    bus: Arc<MemoryBus>,
    service: ConversationService,
    memory: Option<AgentMemory>,
}

impl StoredConversations {
    /// Opens the store and serves requests about it on a bus of its own.
    pub(crate) async fn serve(
        settings: &Settings,
        agent: &AgentName,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let stores = ConversationStores::open(settings).await?;
        if matches!(stores.url, StoreUrl::Memory) {
            return Err(Failure::usage(
                "agent.conversations.store is \"memory:\", so that no conversation survives its \
                 process; set a file, such as sqlite:/var/lib/rockbot/conversations.db, or use --bus",
            ));
        }
        let bus = Arc::new(MemoryBus::new());
        let conversations = stores.factory(settings)(agent);
        let memory = match purpose {
            Purpose::Read => None,
            Purpose::Delete | Purpose::Schedule => agent_memory::open(settings).await?,
        };
        let data = match purpose {
            Purpose::Delete => SessionData {
                memory: memory.as_ref().map(|memory| memory.working().clone()),
                // The handler of the embedded fleet stores results beside the conversations.
                outputs: Some(Outputs::new(stores.stores.store.clone(), settings.outputs.clone())),
            },
            Purpose::Read | Purpose::Schedule => SessionData::default(),
        };
        let schedule = match purpose {
            Purpose::Schedule => stores.schedule(settings, agent, memory.as_ref()),
            Purpose::Read | Purpose::Delete => None,
        };
        let server = ConversationServiceBuilder::for_store(agent.clone(), conversations, data)
            .with_schedule(schedule);
        let service = server.serve(bus.clone()).await.or_exit(exit::SOFTWARE)?;
        Ok(Self { stores, bus, service, memory })
    }

    /// Returns the bus that requests are served on.
    pub(crate) fn bus(&self) -> Arc<dyn Bus> {
        self.bus.clone()
    }

    pub(crate) async fn close(self) {
        drop(self.service);
        self.bus.close().await;
        if let Some(memory) = self.memory {
            memory.close().await;
        }
        self.stores.close().await;
    }
}
