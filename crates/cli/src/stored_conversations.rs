//! The store of the embedded agent's conversations.

use std::sync::Arc;

use rockbot_agent::{
    ConversationOptions, ConversationService, Conversations, serve_conversations,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::AgentName;
use rockbot_service::exit;
use rockbot_store::{Clock, StoreError, StoreUrl, Stores};

use crate::{
    failure::{Failure, OrExit},
    print::note,
    render,
    settings::Settings,
};

/// Opens the configured store of conversations.
pub(crate) async fn open(settings: &Settings) -> Result<Stores, Failure> {
    let url = settings.agent.conversations.url().map_err(Failure::usage)?;
    let stores = rockbot_store_sql::connect_stores(&url, Clock::System).await;
    stores.map_err(|error| store_failure(&url, &error))
}

/// Notes that conversations end with this process, if they are kept in memory.
pub(crate) fn note_if_in_memory(settings: &Settings) {
    if matches!(settings.agent.conversations.url(), Ok(StoreUrl::Memory)) {
        note!(
            "{}",
            render::dim("conversations are kept in memory: nothing of them survives this process")
        );
    }
}

/// Returns the failure for a store that cannot be opened: unavailable when it cannot be reached,
/// otherwise a configuration error.
fn store_failure(url: &StoreUrl, error: &StoreError) -> Failure {
    let message = format!("agent.conversations.store: {url}: {error}");
    match error {
        StoreError::Unavailable { .. } => Failure::unavailable(message),
        _ => Failure::usage(message),
    }
}

/// The store of the embedded agent's conversations, served without the agent.
pub(crate) struct StoredConversations {
    stores: Stores,
    bus: Arc<MemoryBus>,
    service: ConversationService,
}

impl StoredConversations {
    /// Opens the store and serves requests about it on a bus of its own.
    pub(crate) async fn serve(settings: &Settings, agent: &AgentName) -> Result<Self, Failure> {
        if matches!(settings.agent.conversations.url(), Ok(StoreUrl::Memory)) {
            return Err(Failure::usage(
                "agent.conversations.store is \"memory:\", so that no conversation survives its \
                 process; set a file, such as sqlite:/var/lib/rockbot/conversations.db, or use --bus",
            ));
        }
        let stores = open(settings).await?;
        let bus = Arc::new(MemoryBus::new());
        let options = ConversationOptions::default();
        let conversations = Conversations::new(stores.clone(), agent.clone(), options);
        let service = serve_conversations(conversations, bus.clone()).await;
        Ok(Self { stores, bus, service: service.or_exit(exit::SOFTWARE)? })
    }

    /// Returns the bus that requests are served on.
    pub(crate) fn bus(&self) -> Arc<dyn Bus> {
        self.bus.clone()
    }

    pub(crate) async fn close(self) {
        drop(self.service);
        self.bus.close().await;
        self.stores.close().await;
    }
}
