//! Repeated requests: one turn for all requests of the same identity.
//!
//! A request has an identity by its `Idempotency-Key`, or because the client of OpenAI counts its attempts. The
//! ids of its conversation and message are recorded in the store, so that any gateway sends the same message
//! again, and the agent recognizes it.

use std::{sync::Arc, time::Duration};

use axum::http::HeaderMap;
use rockbot_contracts::{InstanceId, MessageId, SessionId};
use rockbot_store::{Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, Version};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{conversation::Place, error::ApiError, scope::Scope};
use crate::store_limit::STORE_TIMEOUT;

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
    /// Set if the message certainly did not arrive.
    #[serde(default)]
    is_unsent: bool,
}

/// A request whose message is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BegunRequest {
    pub(super) sending: Sending,
    earlier: Earlier,
}

/// The knowledge of earlier requests of the same identity.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Earlier {
    /// None sent the message. The record of this request has this version, unless it has no identity.
    Unsent(Option<Version>),
    /// One was recorded, and may have sent it.
    Recorded,
    /// None was found, but one may have sent a message.
    Unknown,
}

impl BegunRequest {
    /// Returns whether an earlier request of the same identity was recorded.
    pub(super) fn is_repeated(&self) -> bool {
        self.earlier == Earlier::Recorded
    }

    /// Returns whether no earlier request of the same identity sent the message.
    pub(super) fn is_first(&self) -> bool {
        matches!(self.earlier, Earlier::Unsent(_))
    }
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

    /// Returns whether the client counts it as a further attempt.
    const fn is_retry(&self) -> bool {
        matches!(self, Self::Attempt { is_first: false, .. })
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
    fn session_id(&self, scope: &Scope, place: &Place) -> SessionId {
        let derived = match self {
            Self::Key { name } if place.is_start => {
                SessionId::new(scope.id("session", [name.as_bytes()])).ok()
            }
            _ => None,
        };
        derived.unwrap_or_else(|| place.session.clone())
    }

    /// Returns how a request is sent that was not recorded before.
    pub(super) fn new_sending(&self, scope: &Scope, place: &Place) -> Sending {
        Sending {
            session: self.session_id(scope, place),
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
    ) -> Result<BegunRequest, ApiError> {
        let (name, ttl, must_be_recorded, replaces) = match repetition {
            Repetition::None => {
                return Ok(BegunRequest { sending: new, earlier: Earlier::Unsent(None) });
            }
            Repetition::Key { name } => (name, KEY_TTL, true, false),
            Repetition::Attempt { name, is_first } => (name, ATTEMPT_TTL, false, *is_first),
        };
        let record = Record {
            body: body.to_owned(),
            sending: new.clone(),
            reader: self.instance.clone(),
            is_unsent: false,
        };
        let write = self.record(name, record, ttl, replaces, repetition.is_retry());
        let recorded = timeout(STORE_TIMEOUT, write).await;
        match recorded {
            Ok(Ok(Some((found, _)))) if found.body != body => Err(ApiError::key_conflict()),
            Ok(Ok(Some((found, earlier)))) => Ok(BegunRequest { sending: found.sending, earlier }),
            Ok(Err(error)) if must_be_recorded => {
                warn!(%error, "request with a key not recorded; refused");
                Err(ApiError::store().maybe_executed())
            }
            Err(_) | Ok(Ok(None)) if must_be_recorded => Err(ApiError::store().maybe_executed()),
            Ok(Err(_) | Ok(None)) | Err(_) => {
                debug!("request not recorded; another attempt runs another turn");
                let is_retry = repetition.is_retry();
                let earlier = if is_retry { Earlier::Unknown } else { Earlier::Unsent(None) };
                Ok(BegunRequest { sending: new, earlier })
            }
        }
    }

    /// Returns the record that applies, and the knowledge of earlier requests; `None` after too many attempts.
    async fn record(
        &self,
        name: &str,
        new: Record,
        ttl: Duration,
        replaces: bool,
        is_retry: bool,
    ) -> Result<Option<(Record, Earlier)>, DocumentError> {
        let mut found: Option<Document<Record>> = None;
        for _ in 0..WRITE_ATTEMPTS {
            let (record, expected) = match &found {
                _ if replaces => (new.clone(), Expected::Anything),
                None => (new.clone(), Expected::Absent),
                Some(found) if found.value.body != new.body => {
                    return Ok(Some((found.value.clone(), Earlier::Recorded)));
                }
                Some(found) => {
                    let (reader, is_unsent) = (new.reader.clone(), false);
                    let record = Record { reader, is_unsent, ..found.value.clone() };
                    (record, Expected::Version(found.version))
                }
            };
            match self.records.put(&[name], &record, Some(ttl), expected).await? {
                PutOutcome::Done(version) => {
                    let earlier = match found {
                        Some(found) if !replaces && !found.value.is_unsent => Earlier::Recorded,
                        // An earlier attempt may have been sent without a record.
                        None if is_retry => Earlier::Unknown,
                        _ => Earlier::Unsent(Some(version)),
                    };
                    return Ok(Some((record, earlier)));
                }
                PutOutcome::Conflict(current) => found = current,
            }
        }
        Ok(None)
    }

    /// Returns the error of a request whose message did not arrive, with the effect of all requests of the same
    /// identity. Without them, the next one counts as the first.
    pub(super) async fn failed(
        &self,
        repetition: &Repetition,
        begun: &BegunRequest,
        body: &str,
        error: ApiError,
    ) -> ApiError {
        let (name, version) = match (&begun.earlier, repetition.name()) {
            (Earlier::Unsent(Some(version)), Some(name)) => (name, *version),
            (Earlier::Unsent(_), _) => return error,
            (Earlier::Recorded | Earlier::Unknown, _) => return error.maybe_executed(),
        };
        let record = Record {
            body: body.to_owned(),
            sending: begun.sending.clone(),
            reader: self.instance.clone(),
            is_unsent: true,
        };
        // Unless another gateway received the request since, and may send the message.
        let (name, expected) = ([name], Expected::Version(version));
        let put = self.records.put(&name, &record, Some(ATTEMPT_TTL), expected);
        match timeout(STORE_TIMEOUT, put).await {
            Ok(Ok(PutOutcome::Done(_))) => error,
            Ok(Ok(PutOutcome::Conflict(_)) | Err(_)) | Err(_) => error.maybe_executed(),
        }
    }

    /// Returns the error of a request that is not recorded, with the effect of earlier requests of the same identity.
    pub(super) async fn refused(&self, repetition: &Repetition, error: ApiError) -> ApiError {
        if self.may_be_sent(repetition).await { error.maybe_executed() } else { error }
    }

    /// Returns whether an earlier request of the same identity may have sent its message.
    async fn may_be_sent(&self, repetition: &Repetition) -> bool {
        let Some(name) = repetition.name() else { return false };
        if matches!(repetition, Repetition::Attempt { is_first: true, .. }) {
            return false;
        }
        match timeout(STORE_TIMEOUT, self.records.get(&[name])).await {
            Ok(Ok(Some(found))) => !found.value.is_unsent,
            Ok(Ok(None)) => repetition.is_retry(),
            Ok(Err(_)) | Err(_) => true,
        }
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
