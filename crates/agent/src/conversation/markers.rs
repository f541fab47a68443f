//! Markers of messages whose answer was not published.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, MessageId, SessionId};
use rockbot_store::{Expected, Key, MAX_PAGE_ENTRIES, Prefix, Store, StoreError, Write};

use super::error::ConversationError;

/// First segment of the keys.
const SPACE: &str = "open";
/// Maximum number of markers that are listed.
const MAX_LISTED: usize = 10_000;

/// Entries `open/<agent>/<session>/<message>` of a store. A marker is written before its message is
/// recorded, and removed after the answer was published.
pub(super) struct Markers {
    store: Arc<dyn Store>,
    agent: String,
    retention: Duration,
}

impl Markers {
    pub(super) fn new(store: Arc<dyn Store>, agent: &AgentName, retention: Duration) -> Self {
        Self { store, agent: agent.to_string(), retention }
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) async fn write(
        &self,
        session: &SessionId,
        id: &MessageId,
    ) -> Result<(), ConversationError> {
        let write = Write::new(self.key(session, id)?, Vec::new()).with_ttl(self.retention);
        self.store.write(write).await?;
        Ok(())
    }

    pub(super) async fn remove(
        &self,
        session: &SessionId,
        id: &MessageId,
    ) -> Result<(), ConversationError> {
        self.store.remove(&self.key(session, id)?, Expected::Anything).await?;
        Ok(())
    }

    /// Returns the marked messages of a conversation, oldest first if their ids are ordered by time.
    pub(super) async fn of(
        &self,
        session: &SessionId,
    ) -> Result<Vec<MessageId>, ConversationError> {
        let prefix = Prefix::new([SPACE, &self.agent, session.as_str()]);
        let keys = self.keys(&prefix.map_err(|_| ConversationError::InvalidSession)?).await?;
        let id = |key: &Key| MessageId::new(key.segments().next_back()?).ok();
        Ok(keys.iter().filter_map(id).collect())
    }

    /// Returns the conversations with marked messages.
    pub(super) async fn sessions(&self) -> Result<Vec<SessionId>, ConversationError> {
        let prefix = Prefix::new([SPACE, &self.agent]);
        let keys = self.keys(&prefix.map_err(|_| ConversationError::InvalidSession)?).await?;
        let session = |key: &Key| SessionId::new(key.segments().nth_back(1)?).ok();
        let sessions: BTreeSet<SessionId> = keys.iter().filter_map(session).collect();
        Ok(sessions.into_iter().collect())
    }

    async fn keys(&self, prefix: &Prefix) -> Result<Vec<Key>, StoreError> {
        let mut keys = Vec::<Key>::new();
        while keys.len() < MAX_LISTED {
            let page = self.store.list(prefix, keys.last(), MAX_PAGE_ENTRIES).await?;
            if page.is_empty() {
                break;
            }
            keys.extend(page.into_iter().map(|(key, _)| key));
        }
        Ok(keys)
    }

    fn key(&self, session: &SessionId, id: &MessageId) -> Result<Key, ConversationError> {
        Key::new([SPACE, &self.agent, session.as_str(), id.as_str()])
            .map_err(|_| ConversationError::InvalidSession)
    }
}
