//! What the gateway remembers of conversations in its store: their owners, titles and shares, and the messages
//! that were sent. Their content is in the store of the agent.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, MessageId, SessionId};
use rockbot_store::{Expected, Key, Prefix, Store, StoreError, Version, Write, Written};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tracing::warn;

use crate::{api::schema::SpendingView, hex::hex};

/// Largest number of conversations of one person.
pub(crate) const MAX_CONVERSATIONS: usize = 500;
/// Retention of a conversation and its share after the last message.
const RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);
/// Retention of a message: the time in which it may be sent again.
const MESSAGE_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Attempts to change an entry that others change too.
const ATTEMPTS: usize = 8;
/// The first segment of all keys.
const ROOT: &str = "gateway";

/// A person, as part of keys: names have any length.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner(Arc<str>);

impl Owner {
    /// Creates the owner with the name of a person.
    pub(crate) fn new(subject: &str) -> Self {
        Self(digest(subject).into())
    }
}

/// A conversation of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) agent: AgentName,
    pub(crate) title: String,
    pub(crate) created_ms: u64,
    pub(crate) last_active_ms: u64,
    #[serde(default)]
    pub(crate) turns: u64,
    #[serde(default)]
    pub(crate) usage: Option<SpendingView>,
    #[serde(default)]
    pub(crate) share: Option<Share>,
}

/// A read-only share of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Share {
    pub(crate) id: String,
    pub(crate) created_ms: u64,
}

/// The conversation that a share shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    owner: String,
    pub(crate) conversation: SessionId,
}

impl Shared {
    pub(crate) fn owner(&self) -> Owner {
        Owner(self.owner.as_str().into())
    }
}

/// A message that was sent, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SentMessage {
    pub(crate) id: MessageId,
    pub(crate) conversation: SessionId,
    /// SHA-256 of the text.
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) answered: bool,
}

/// Access to the entries.
#[derive(Clone)]
pub(crate) struct Records {
    store: Arc<dyn Store>,
}

impl Records {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Returns the conversations of a person, in no order.
    pub(crate) async fn list(&self, owner: &Owner) -> Result<Vec<(SessionId, Record)>, StoreError> {
        let prefix = Prefix::new([ROOT, "conversation", &owner.0])?;
        let mut found = Vec::new();
        let mut after = None;
        while found.len() < 2 * MAX_CONVERSATIONS {
            let page = self.store.list(&prefix, after.as_ref(), MAX_CONVERSATIONS).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            let entries = page.into_iter().filter_map(|(key, entry)| {
                let id = SessionId::new(key.segments().next_back()?).ok()?;
                Some((id, decode(&entry.value)?))
            });
            found.extend(entries);
        }
        Ok(found)
    }

    /// Returns a conversation of a person.
    pub(crate) async fn get(
        &self,
        owner: &Owner,
        conversation: &SessionId,
    ) -> Result<Option<Record>, StoreError> {
        Ok(self.read(&conversation_key(owner, conversation)?).await?.map(|(record, _)| record))
    }

    /// Adds a conversation.
    pub(crate) async fn insert(
        &self,
        owner: &Owner,
        conversation: &SessionId,
        record: &Record,
    ) -> Result<(), StoreError> {
        let key = conversation_key(owner, conversation)?;
        self.put(key, record, RETENTION, Expected::Anything).await.map(drop)
    }

    /// Changes a conversation. Returns the changed one; `None` if it does not exist.
    pub(crate) async fn update(
        &self,
        owner: &Owner,
        conversation: &SessionId,
        change: impl Fn(&mut Record),
    ) -> Result<Option<Record>, StoreError> {
        let key = conversation_key(owner, conversation)?;
        for _ in 0..ATTEMPTS {
            let Some((mut record, version)) = self.read::<Record>(&key).await? else {
                return Ok(None);
            };
            change(&mut record);
            let expected = Expected::Version(version);
            if self.put(key.clone(), &record, RETENTION, expected).await? {
                return Ok(Some(record));
            }
        }
        Err(StoreError::Unavailable { reason: "an entry was changed too often".to_owned() })
    }

    /// Removes a conversation.
    pub(crate) async fn remove(
        &self,
        owner: &Owner,
        conversation: &SessionId,
    ) -> Result<(), StoreError> {
        let key = conversation_key(owner, conversation)?;
        self.store.remove(&key, Expected::Anything).await.map(drop)
    }

    /// Adds a share of a conversation.
    pub(crate) async fn insert_share(
        &self,
        share: &str,
        owner: &Owner,
        conversation: &SessionId,
    ) -> Result<(), StoreError> {
        let shared = Shared { owner: owner.0.to_string(), conversation: conversation.clone() };
        self.put(share_key(share)?, &shared, RETENTION, Expected::Anything).await.map(drop)
    }

    /// Returns the conversation that a share shows.
    pub(crate) async fn shared(&self, share: &str) -> Result<Option<Shared>, StoreError> {
        let Ok(key) = share_key(share) else { return Ok(None) };
        Ok(self.read(&key).await?.map(|(shared, _)| shared))
    }

    /// Ends a share.
    pub(crate) async fn remove_share(&self, share: &str) -> Result<(), StoreError> {
        self.store.remove(&share_key(share)?, Expected::Anything).await.map(drop)
    }

    /// Remembers a message under the key that its sender chose. Returns the message that was remembered first,
    /// and whether it is this one.
    pub(crate) async fn remember(
        &self,
        owner: &Owner,
        key: &str,
        message: SentMessage,
    ) -> Result<(SentMessage, bool), StoreError> {
        let key = message_key(owner, key)?;
        for _ in 0..ATTEMPTS {
            match self.put(key.clone(), &message, MESSAGE_RETENTION, Expected::Absent).await {
                Ok(true) => return Ok((message, true)),
                // It may have been written: the entry shows it.
                Ok(false) | Err(StoreError::Unconfirmed { .. }) => {}
                Err(error) => return Err(error),
            }
            if let Some((known, _)) = self.read::<SentMessage>(&key).await? {
                // Its own write, of which the store lost the confirm.
                let is_new = known.id == message.id;
                return Ok((known, is_new));
            }
        }
        Err(StoreError::Unavailable { reason: "an entry was changed too often".to_owned() })
    }

    /// Marks a message as answered: it need not be sent again.
    pub(crate) async fn mark_answered(
        &self,
        owner: &Owner,
        key: &str,
        message: SentMessage,
    ) -> Result<(), StoreError> {
        let message = SentMessage { answered: true, ..message };
        let key = message_key(owner, key)?;
        self.put(key, &message, MESSAGE_RETENTION, Expected::Anything).await.map(drop)
    }

    /// Forgets a message that was certainly not sent.
    pub(crate) async fn forget(&self, owner: &Owner, key: &str) -> Result<(), StoreError> {
        self.store.remove(&message_key(owner, key)?, Expected::Anything).await.map(drop)
    }

    async fn read<T: DeserializeOwned>(
        &self,
        key: &Key,
    ) -> Result<Option<(T, Version)>, StoreError> {
        let entry = self.store.get(key).await?;
        Ok(entry.and_then(|entry| Some((decode(&entry.value)?, entry.version))))
    }

    /// Writes an entry; returns `false` if the present one is not the expected.
    async fn put(
        &self,
        key: Key,
        value: &impl Serialize,
        ttl: Duration,
        expected: Expected,
    ) -> Result<bool, StoreError> {
        // These types have only text keys, so that encoding cannot fail.
        let value = serde_json::to_vec(value).unwrap_or_default();
        let write = Write::new(key, value).with_ttl(ttl).with_expected(expected);
        Ok(matches!(self.store.write(write).await?, Written::Done(_)))
    }
}

/// Returns the SHA-256 of a text in hexadecimal form.
pub(crate) fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    let decoded = serde_json::from_slice(value);
    decoded.inspect_err(|error| warn!(%error, "unreadable entry in the store ignored")).ok()
}

fn conversation_key(owner: &Owner, conversation: &SessionId) -> Result<Key, StoreError> {
    key(["conversation", &owner.0, conversation.as_str()])
}

fn message_key(owner: &Owner, message: &str) -> Result<Key, StoreError> {
    key(["message", &owner.0, message])
}

fn share_key(share: &str) -> Result<Key, StoreError> {
    Ok(Key::new([ROOT, "share", share])?)
}

fn key(segments: [&str; 3]) -> Result<Key, StoreError> {
    Ok(Key::new([ROOT].into_iter().chain(segments))?)
}
