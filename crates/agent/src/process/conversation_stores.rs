//! The store of conversations.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{AgentMemory, ConversationOptions, Conversations, Schedule, Sharing};
use rockbot_contracts::{AgentName, InstanceId};
use rockbot_service::{Health, ServeError, Shutdown};
use rockbot_store::{Clock, StoreUrl, Stores, Sweeper, reachable};

use super::{Settings, configuration_error, observed_log::ObservedLog, unavailable_error};

/// The interval between sweeps of expired conversations.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// The store of the conversations of all agents of the process.
pub(crate) struct ConversationStores {
    /// `None` for conversations that end with the process.
    stores: Option<Stores>,
    options: ConversationOptions,
    _sweepers: Vec<Sweeper>,
}

impl ConversationStores {
    /// Opens the store, and waits while it is unavailable. Returns `None` if the shutdown is requested
    /// first.
    pub(crate) async fn open(
        settings: &Settings,
        instance: InstanceId,
        shutdown: &Shutdown,
    ) -> Result<Option<Self>, ServeError> {
        let section = &settings.agent.conversations;
        let url = section.url(Some(&settings.bus.namespace)).map_err(configuration_error)?;
        let options = ConversationOptions {
            retention: section.retention,
            instance,
            ..ConversationOptions::default()
        };
        if matches!(url, StoreUrl::Memory) {
            return Ok(Some(Self { stores: None, options, _sweepers: Vec::new() }));
        }
        let opened =
            rockbot_store_sql::connect_stores_with_retry(&url, Clock::System, shutdown.requested());
        let opened = opened.await;
        let stores = opened.map_err(|error| {
            unavailable_error(format!("agent.conversations.store: {url}: {error}"))
        })?;
        let Some(Stores { store, log }) = stores else { return Ok(None) };
        let sweepers = vec![
            Sweeper::start(store.clone(), SWEEP_INTERVAL),
            Sweeper::start_for_logs(log.clone(), SWEEP_INTERVAL),
        ];
        let stores = Stores { store, log: Arc::new(ObservedLog::new(log)) };
        Ok(Some(Self { stores: Some(stores), options, _sweepers: sweepers }))
    }

    /// Makes readiness depend on the store.
    pub(crate) fn add_health_check(&self, health: &Health) {
        if let Some(Stores { store, .. }) = &self.stores {
            health.needs("conversations", reachable(store.clone()));
        }
    }

    /// Returns the conversations of an agent.
    pub(crate) fn conversations(&self, agent: &AgentName) -> Conversations {
        match &self.stores {
            Some(Stores { store, log }) => {
                let options = self.options.clone();
                Conversations::new(log.clone(), store.clone(), agent.clone(), options)
            }
            None => Conversations::in_memory(agent.clone()),
        }
    }

    /// Returns the scheduled tasks of the agent of the process; `None` if scheduling is off.
    pub(crate) fn schedule(
        &self,
        settings: &Settings,
        memory: Option<&AgentMemory>,
    ) -> Option<Arc<Schedule>> {
        let conversations = self.conversations(&settings.definition.name);
        let section = settings.schedule.clone();
        section.enabled.then(|| Schedule::new(&conversations, section, memory))
    }

    /// Returns how the processes of an agent share its conversations; `None` if they do not.
    pub(crate) fn sharing(&self, settings: &Settings) -> Option<Sharing> {
        let store = self.stores.as_ref()?.store.clone();
        let sharing = Sharing::new(store, self.options.instance.clone());
        let lease = settings.agent.conversations.lease;
        Some(Sharing { lease, ..sharing.with_user(settings.broker_user()) })
    }

    pub(crate) async fn close(&self) {
        if let Some(stores) = &self.stores {
            stores.close().await;
        }
    }
}
