//! The writer of one conversation's log.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use rockbot_contracts::SessionId;
use rockbot_store::{
    Appended, Log, LogName, LogPosition, MAX_APPEND_BYTES, MAX_APPEND_ENTRIES, MAX_LOG_ENTRY_BYTES,
    StoreError,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tracing::{info, warn};

use super::{
    codec::{decode, encode},
    entry::ConversationEntry,
    error::{ConversationError, EntryProblem},
    retry::Backoff,
};

/// Maximum number of appends that wait.
const CAPACITY: usize = 64;

/// Appends the entries of one conversation, in order. Entries that arrive while an append is in flight go
/// together in the next one.
///
/// It stops at the first failure: a later entry must not be recorded without an earlier one. Dropping it
/// abandons an append in flight, whose entries are either recorded or not.
#[derive(Debug)]
pub(crate) struct Recorder {
    session: SessionId,
    requests: mpsc::Sender<Request>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Request {
    entries: Vec<Bytes>,
    done: oneshot::Sender<Result<u64, ConversationError>>,
}

/// Log and limits of a recorder.
#[derive(Clone)]
pub(crate) struct RecorderTarget {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) name: LogName,
    pub(crate) session: SessionId,
    /// Time to live of the log after each append.
    pub(crate) retention: Duration,
    /// Time for which an append is retried while the store is unavailable.
    pub(crate) store_timeout: Duration,
}

impl Recorder {
    /// Starts a recorder whose first entry has the position `next`.
    pub(crate) fn start(target: RecorderTarget, next: LogPosition) -> Self {
        let (requests, waiting) = mpsc::channel(CAPACITY);
        let session = target.session.clone();
        let task = tokio::spawn(Writer { target, next, failed: None }.run(waiting));
        Self { session, requests, task }
    }

    /// Records an entry durably, and returns its number. The text of a result or an answer that is too
    /// large is truncated in `entry`.
    ///
    /// # Errors
    /// [`ConversationError::Fenced`] if another process changed the log, [`ConversationError::NotFound`] if
    /// it was deleted, [`ConversationError::Store`] if the store was unavailable for too long. The recorder
    /// records nothing more then.
    ///
    /// # Cancellation
    /// The entry is recorded also when the future is dropped.
    pub(crate) async fn record(
        &self,
        entry: &mut ConversationEntry,
    ) -> Result<u64, ConversationError> {
        let bytes = encode(entry).map_err(|problem| self.unwritable(problem))?;
        self.append(vec![bytes]).await
    }

    /// Records several entries in one append. See [`record`](Self::record).
    pub(crate) async fn record_all(
        &self,
        entries: &mut [ConversationEntry],
    ) -> Result<u64, ConversationError> {
        let encoded = entries.iter_mut().map(encode).collect::<Result<Vec<_>, _>>();
        let encoded = encoded.map_err(|problem| self.unwritable(problem))?;
        let mut first = None;
        for part in encoded.chunks(MAX_APPEND_BYTES / MAX_LOG_ENTRY_BYTES) {
            let number = self.append(part.to_vec()).await?;
            first.get_or_insert(number);
        }
        Ok(first.unwrap_or_default())
    }

    async fn append(&self, entries: Vec<Bytes>) -> Result<u64, ConversationError> {
        let (done, appended) = oneshot::channel();
        let closed = || ConversationError::Store(StoreError::Closed);
        self.requests.send(Request { entries, done }).await.map_err(|_| closed())?;
        appended.await.map_err(|_| closed())?
    }

    fn unwritable(&self, problem: EntryProblem) -> ConversationError {
        ConversationError::Unwritable { session: self.session.clone(), problem }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task that appends.
struct Writer {
    target: RecorderTarget,
    next: LogPosition,
    failed: Option<ConversationError>,
}

/// The outcome of an append that did not fail.
enum Attempt {
    /// The next entry has this position.
    Appended(LogPosition),
    /// The entries belong at this position, after feedback.
    Later(LogPosition),
}

impl Writer {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let Some(request) = requests.recv().await else { return };
                waiting.push_back(request);
            }
            while let Ok(request) = requests.try_recv() {
                waiting.push_back(request);
            }
            let group = next_group(&mut waiting);
            let entries: Vec<Bytes> =
                group.iter().flat_map(|request| &request.entries).cloned().collect();
            let appended = self.append(entries).await;
            let mut number = appended.clone().unwrap_or_default();
            for Request { entries, done } in group {
                let count = entries.len() as u64;
                let _ = done.send(appended.clone().map(|_| number));
                number += count;
            }
        }
    }

    /// Appends the entries, and returns the number of the first.
    async fn append(&mut self, entries: Vec<Bytes>) -> Result<u64, ConversationError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let count = entries.len() as u64;
        match self.append_with_retries(self.next, entries).await {
            Ok(next) => {
                self.next = next;
                Ok(next.number - count)
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Appends the entries, and returns the position after the last.
    async fn append_with_retries(
        &self,
        mut at: LogPosition,
        entries: Vec<Bytes>,
    ) -> Result<LogPosition, ConversationError> {
        let RecorderTarget { session, store_timeout, .. } = &self.target;
        let (mut backoff, mut may_be_appended) = (Backoff::new(*store_timeout), false);
        loop {
            let error = match self.try_append(at, &entries, may_be_appended).await {
                Ok(Attempt::Appended(next)) => return Ok(next),
                Ok(Attempt::Later(next)) => {
                    at = next;
                    continue;
                }
                Err(error @ ConversationError::Store(_)) => error,
                Err(error) => return Err(error),
            };
            may_be_appended |=
                matches!(error, ConversationError::Store(StoreError::Unconfirmed { .. }));
            if !backoff.wait_after(&error).await {
                warn!(session_id = %session, %error, "recording a conversation failed");
                let reason = error.to_string();
                let unconfirmed = ConversationError::Store(StoreError::Unconfirmed { reason });
                return Err(if may_be_appended { unconfirmed } else { error });
            }
        }
    }

    /// Appends the entries once. `may_be_appended` is true if an earlier attempt was not confirmed.
    async fn try_append(
        &self,
        at: LogPosition,
        entries: &[Bytes],
        may_be_appended: bool,
    ) -> Result<Attempt, ConversationError> {
        let RecorderTarget { log, name, session, retention, .. } = &self.target;
        let next = match log.append(name, at, entries.to_vec(), Some(*retention)).await? {
            Appended::Done { next } => return Ok(Attempt::Appended(next)),
            Appended::Conflict { next } => next,
        };
        let is_same_log = at.log.is_none_or(|log| next.log == Some(log));
        if next.log.is_none() || !is_same_log {
            return Err(ConversationError::NotFound { session: session.clone() });
        }
        if may_be_appended && self.is_appended(at.number, entries).await? {
            let number = at.number + entries.len() as u64;
            return Ok(Attempt::Appended(LogPosition { number, ..next }));
        }
        if next.number > at.number && self.is_feedback(at.number, next.number).await? {
            return Ok(Attempt::Later(next));
        }
        info!(session_id = %session, at = at.number, "conversation continued by another process");
        Err(ConversationError::Fenced { session: session.clone() })
    }

    /// Returns `true` if the entries from `at` to `next` are all feedback, which any process may add.
    async fn is_feedback(&self, at: u64, next: u64) -> Result<bool, ConversationError> {
        let RecorderTarget { log, name, .. } = &self.target;
        let count = usize::try_from(next - at).unwrap_or(usize::MAX);
        let page = log.read(name, at, count).await?;
        let is_feedback = |value: &[u8]| {
            decode(value).is_ok_and(|one| matches!(one.entry, ConversationEntry::Feedback(_)))
        };
        Ok(page.len() == count && page.iter().all(|entry| is_feedback(&entry.value)))
    }

    /// Returns `true` if the log has exactly these entries from `at`.
    async fn is_appended(&self, at: u64, entries: &[Bytes]) -> Result<bool, ConversationError> {
        let RecorderTarget { log, name, .. } = &self.target;
        let (mut number, mut left) = (at, entries);
        while !left.is_empty() {
            let page = log.read(name, number, left.len()).await?;
            if page.is_empty() || page.iter().zip(left).any(|(entry, own)| entry.value != own) {
                return Ok(false);
            }
            left = &left[page.len().min(left.len())..];
            number += page.len() as u64;
        }
        Ok(true)
    }
}

/// Takes the requests that fit into one append.
fn next_group(waiting: &mut VecDeque<Request>) -> Vec<Request> {
    let (mut group, mut count, mut bytes) = (Vec::new(), 0, 0);
    while let Some(request) = waiting.front() {
        count += request.entries.len();
        bytes += request.entries.iter().map(Bytes::len).sum::<usize>();
        if !group.is_empty() && (count > MAX_APPEND_ENTRIES || bytes > MAX_APPEND_BYTES) {
            break;
        }
        group.extend(waiting.pop_front());
    }
    group
}
