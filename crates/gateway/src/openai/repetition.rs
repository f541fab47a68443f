//! Repeated requests: one turn for all requests of the same identity.
//!
//! A request has an identity by its `Idempotency-Key`, or because the client of OpenAI counts its attempts. The
//! ids of its conversation and message are recorded in the store, so that any gateway sends the same message
//! again, and the agent recognizes it.

use std::{sync::Arc, time::Duration};

use axum::http::HeaderMap;
use rockbot_contracts::{InstanceId, MessageId, SessionId};
use rockbot_store::{Document, DocumentError, DocumentStore, Expected, PutOutcome, Store};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{conversation::Place, error::ApiError, scope::Scope};

const KEY_HEADER: &str = "idempotency-key";
/// Header in which the clients of OpenAI count their attempts, from 0.
const ATTEMPT_HEADER: &str = "x-stainless-retry-count";
/// Longest key, in bytes.
const MAX_KEY_BYTES: usize = 255;
/// Time for which a key is recognized.
const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for which another attempt is recognized.
const ATTEMPT_TTL: Duration = Duration::from_secs(60 * 60);
/// Time for which a turn outlives its last reader, by the identity of the request.
const KEY_LINGER: Duration = Duration::from_secs(60);
const ATTEMPT_LINGER: Duration = Duration::from_secs(10);
/// Time limit for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to record a request while others record it too.
const WRITE_ATTEMPTS: usize = 16;

/// The identity of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Repetition {
    /// Nothing: every request is new.
    None,
    /// A key that the client chose.
    Key {
        /// Name of its record.
        name: String,
    },
    /// The client counts its attempts, and all have the same body.
    Attempt {
        /// Name of its record.
        name: String,
        /// Set on the first attempt.
        is_first: bool,
    },
}

/// The ids of a request's message, and the form of its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sending {
    pub(super) session: SessionId,
    pub(super) message: MessageId,
    /// Set if the text has the earlier messages.
    pub(super) with_earlier: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Hash of the body.
    body: String,
    #[serde(flatten)]
    sending: Sending,
    /// The gateway whose request came last. Only it cancels the turn when its client is gone.
    reader: InstanceId,
}

impl Repetition {
    /// Reads the headers of a request.
    ///
    /// # Errors
    /// When the key is empty or too long.
    pub(super) fn read(headers: &HeaderMap, scope: &Scope, body: &[u8]) -> Result<Self, ApiError> {
        if let Some(key) = headers.get(KEY_HEADER) {
            let key = key.as_bytes();
            if !(1..=MAX_KEY_BYTES).contains(&key.len()) {
                let message = format!("the Idempotency-Key must have 1 to {MAX_KEY_BYTES} bytes");
                return Err(ApiError::malformed(message));
            }
            return Ok(Self::Key { name: scope.id("key", [key]) });
        }
        let attempt = headers.get(ATTEMPT_HEADER).and_then(|count| count.to_str().ok());
        let attempt = attempt.and_then(|count| count.parse::<u32>().ok());
        Ok(attempt.map_or(Self::None, |count| Self::Attempt {
            name: scope.id("attempt", [body]),
            is_first: count == 0,
        }))
    }

    /// Returns the time for which the turn outlives its last reader.
    pub(super) fn linger(&self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Key { .. } => KEY_LINGER,
            Self::Attempt { .. } => ATTEMPT_LINGER,
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Key { name } | Self::Attempt { name, .. } => Some(name),
        }
    }

    /// Returns the id of a message. A key alone decides it, so that a gateway without its store sends the same.
    fn message_id(&self, scope: &Scope) -> MessageId {
        let derived = match self {
            Self::Key { name } => MessageId::new(scope.id("message", [name.as_bytes()])).ok(),
            Self::None | Self::Attempt { .. } => None,
        };
        derived.unwrap_or_else(MessageId::generate)
    }

    /// Returns the conversation of a request that starts one.
    fn session_id(&self, scope: &Scope, place: &Place, is_start: bool) -> SessionId {
        let derived = match self {
            Self::Key { name } if is_start => {
                SessionId::new(scope.id("session", [name.as_bytes()])).ok()
            }
            _ => None,
        };
        derived.unwrap_or_else(|| place.session.clone())
    }

    /// Returns how a request is sent that was not recorded before.
    pub(super) fn new_sending(&self, scope: &Scope, place: &Place, is_start: bool) -> Sending {
        Sending {
            session: self.session_id(scope, place, is_start),
            message: self.message_id(scope),
            with_earlier: place.lacks_earlier,
        }
    }
}

/// The requests of the last hours.
#[derive(Debug, Clone)]
pub(super) struct RequestLog {
    records: Arc<DocumentStore<Record>>,
    instance: InstanceId,
}

impl RequestLog {
    pub(super) fn new(store: Arc<dyn Store>, instance: InstanceId) -> Self {
        let records = Arc::new(DocumentStore::new(store, ["gateway", "openai-requests"]));
        Self { records, instance }
    }

    /// Records a request, and returns how it is sent: as it was before, if it was recorded.
    ///
    /// # Errors
    /// When its key was used for another body, or a key cannot be recorded.
    pub(super) async fn begin(
        &self,
        repetition: &Repetition,
        body: &str,
        new: Sending,
    ) -> Result<Sending, ApiError> {
        let (name, ttl, must_be_recorded, replaces) = match repetition {
            Repetition::None => return Ok(new),
            Repetition::Key { name } => (name, KEY_TTL, true, false),
            Repetition::Attempt { name, is_first } => (name, ATTEMPT_TTL, false, *is_first),
        };
        let record =
            Record { body: body.to_owned(), sending: new.clone(), reader: self.instance.clone() };
        let recorded = timeout(STORE_TIMEOUT, self.record(name, record, ttl, replaces)).await;
        match recorded {
            Ok(Ok(Some(found))) if found.body == body => Ok(found.sending),
            Ok(Ok(Some(_))) => Err(ApiError::key_conflict()),
            Ok(Err(error)) if must_be_recorded => {
                warn!(%error, "request with a key not recorded; refused");
                Err(ApiError::store())
            }
            Err(_) | Ok(Ok(None)) if must_be_recorded => Err(ApiError::store()),
            Ok(Err(_) | Ok(None)) | Err(_) => {
                debug!("request not recorded; another attempt runs another turn");
                Ok(new)
            }
        }
    }

    /// Returns the record that applies; `None` after too many attempts.
    async fn record(
        &self,
        name: &str,
        new: Record,
        ttl: Duration,
        replaces: bool,
    ) -> Result<Option<Record>, DocumentError> {
        let mut found: Option<Document<Record>> = None;
        for _ in 0..WRITE_ATTEMPTS {
            let (record, expected) = match &found {
                _ if replaces => (new.clone(), Expected::Anything),
                None => (new.clone(), Expected::Absent),
                Some(found) if found.value.body != new.body => {
                    return Ok(Some(found.value.clone()));
                }
                Some(found) => {
                    let record = Record { reader: new.reader.clone(), ..found.value.clone() };
                    (record, Expected::Version(found.version))
                }
            };
            match self.records.put(&[name], &record, Some(ttl), expected).await? {
                PutOutcome::Done(_) => return Ok(Some(record)),
                PutOutcome::Conflict(current) => found = current,
            }
        }
        Ok(None)
    }

    /// Returns whether the turn of a request may be cancelled when its readers in this process are gone: not if
    /// another gateway has a reader, or if that cannot be found out.
    pub(super) async fn may_cancel(&self, repetition: &Repetition) -> bool {
        let Some(name) = repetition.name() else { return true };
        let found = timeout(STORE_TIMEOUT, self.records.get(&[name])).await;
        match found {
            Ok(Ok(Some(found))) => found.value.reader == self.instance,
            Ok(Ok(None)) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }
}
