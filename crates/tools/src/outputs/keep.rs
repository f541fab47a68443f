//! Keeps outputs in the store and finds them again.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use rockbot_store::{Entry, Expected, InvalidKey, Key, Store, StoreError, Write};
use serde_json::json;
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};
use tracing::{debug, info};

use super::{
    handle::{Handle, Owner},
    read::KeptOutput,
    record::Record,
    section::OutputsSection,
    tool::TOOL_OUTPUT,
};
use crate::tool::ToolContext;

/// Pieces that are on their way to or from the store at once.
const AT_ONCE: usize = 4;
/// Outputs that are looked at in whole at once, for keys of JSON.
const WHOLE_AT_ONCE: usize = 2;
/// Handles that are named when several outputs had to go.
const NAMED: usize = 5;

/// Why a text was not kept, or not found.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It has more bytes than a conversation may have.
    #[error("the output has {bytes} bytes, over the limit of {limit} in outputs.session_bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The store has a problem.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store took too long.
    #[error("the store did not answer within {0:?}")]
    Slow(Duration),
    /// What is in the store is not what was put there, or could not be put there at all.
    #[error("the output can't be written or read: {0}")]
    Unusable(String),
}

impl From<InvalidKey> for KeepError {
    fn from(error: InvalidKey) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// What a model is told of an output that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What it is read by.
    pub handle: String,
    /// Handle, sizes and outline, for the model. About four kilobytes at most.
    pub message: String,
}

/// Outputs in a store, for every conversation of every agent. Needs a sweeper beside it.
pub struct Outputs {
    store: Arc<dyn Store>,
    section: OutputsSection,
    pub(super) whole: Semaphore,
}

impl Outputs {
    /// Keeps outputs in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, section: OutputsSection) -> Arc<Self> {
        Arc::new(Self { store, section, whole: Semaphore::new(WHOLE_AT_ONCE) })
    }

    /// How large a result may be that is not kept, in bytes, where no result is over `most`.
    #[must_use]
    pub fn shown_bytes(&self, most: usize) -> usize {
        if self.section.handle_mode { most.min(self.section.tool_response_max_bytes) } else { most }
    }

    /// The largest answer of `tool_output`, in bytes.
    pub(super) fn answer_bytes(&self) -> usize {
        self.section.tool_response_max_bytes
    }

    /// Keeps a text for the conversation and the agent of a call. The oldest of theirs go when it
    /// gets too much.
    ///
    /// # Errors
    /// See [`KeepError`]. Takes no longer than `store_timeout_ms`, or than the call may take.
    ///
    /// # Cancellation
    /// Dropping the future may leave pieces behind that nobody finds; they expire.
    pub async fn keep(&self, context: &ToolContext, text: String) -> Result<Kept, KeepError> {
        let (bytes, limit) = (text.len(), self.section.session_bytes);
        if bytes > limit {
            return Err(KeepError::TooLarge { bytes, limit });
        }
        // A call that ends too late is of no use.
        let within = self.section.store_timeout().min(context.remaining());
        let kept = timeout(within, self.write(context, text)).await;
        let kept = kept.map_err(|_| KeepError::Slow(within))??;
        info!(tool_call_id = %context.tool_call_id, tool = %context.tool_name, bytes,
            "kept an output that is too large");
        Ok(kept)
    }

    async fn write(&self, context: &ToolContext, text: String) -> Result<Kept, KeepError> {
        let (record, pieces) = spawn_blocking(move || Record::of(text))
            .await
            .map_err(|error| KeepError::Unusable(error.to_string()))?;
        let handle = Handle::generate()
            .ok_or_else(|| KeepError::Unusable("the system gives no random numbers".to_owned()))?;
        let (owner, ttl) = (Owner::of(context), self.section.keep());
        let mut writes = Vec::with_capacity(pieces.len());
        for (number, piece) in pieces.into_iter().enumerate() {
            writes.push(Write::new(owner.piece(&handle, number)?, piece).for_a_time(ttl));
        }
        stream::iter(writes)
            .map(|write| self.store.write(write))
            .buffer_unordered(AT_ONCE)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await?;
        // The record comes last: an output that is found is whole.
        let written =
            serde_json::to_vec(&record).map_err(|error| KeepError::Unusable(error.to_string()))?;
        self.store.write(Write::new(owner.record(&handle)?, written).for_a_time(ttl)).await?;
        let gone = self.make_room(&owner).await?;
        let message = self.message(&handle, &record, &gone);
        Ok(Kept { handle: handle.as_str().to_owned(), message })
    }

    /// Removes the oldest outputs of an owner that has too many, and returns their handles.
    async fn make_room(&self, owner: &Owner) -> Result<Vec<Handle>, KeepError> {
        let mut kept = self.records(owner).await?;
        kept.sort_by_key(|(_, _, entry)| std::cmp::Reverse(entry.version));
        let (mut bytes, mut gone) = (0, Vec::new());
        for (index, (handle, record, _)) in kept.into_iter().enumerate() {
            bytes += record.extent().bytes;
            let fits = index < self.section.session_outputs && bytes <= self.section.session_bytes;
            if !fits {
                self.remove(owner, &handle, &record).await?;
                gone.push(handle);
            }
        }
        Ok(gone)
    }

    async fn records(&self, owner: &Owner) -> Result<Vec<(Handle, Record, Entry)>, KeepError> {
        let (prefix, mut records) = (owner.records()?, Vec::new());
        let mut last: Option<Key> = None;
        loop {
            let page = self.store.list(&prefix, last.as_ref(), 100).await?;
            let Some((key, _)) = page.last() else { return Ok(records) };
            last = Some(key.clone());
            for (key, entry) in page {
                let handle = key.segments().next_back().as_deref().and_then(Handle::parse);
                let record = serde_json::from_slice(&entry.value).ok();
                match handle.zip(record) {
                    Some((handle, record)) => records.push((handle, record, entry)),
                    None => debug!("what is no record of an output is left alone"),
                }
            }
        }
    }

    async fn remove(
        &self,
        owner: &Owner,
        handle: &Handle,
        record: &Record,
    ) -> Result<(), KeepError> {
        // The record goes first: an output that is found is whole.
        self.store.remove(&owner.record(handle)?, Expected::Anything).await?;
        for number in 0..record.pieces.len() {
            self.store.remove(&owner.piece(handle, number)?, Expected::Anything).await?;
        }
        Ok(())
    }

    fn message(&self, handle: &Handle, record: &Record, gone: &[Handle]) -> String {
        let facts = json!({TOOL_OUTPUT: {
            "handle": handle.as_str(),
            "reason": "size_limit_exceeded",
            "bytes": record.extent().bytes,
            "lines": record.lines(),
            "tokens": record.tokens(),
        }});
        let minutes = self.section.keep_seconds.div_ceil(60);
        let mut message = format!(
            "{facts}\nThe result is too large to be shown. It is kept whole for {minutes} minutes: \
             read the parts you need with {TOOL_OUTPUT}(handle, mode).\n"
        );
        if !gone.is_empty() {
            let named: Vec<_> = gone.iter().take(NAMED).map(Handle::as_str).collect();
            message.push_str(&format!(
                "To make room, {} older outputs of this conversation are gone: {}\n",
                gone.len(),
                named.join(", ")
            ));
        }
        message.push('\n');
        message.push_str(&record.outline);
        message
    }

    /// The output of that handle, if the conversation and the agent of the call have one.
    pub(super) async fn open(
        &self,
        context: &ToolContext,
        handle: &str,
    ) -> Result<Option<KeptOutput>, KeepError> {
        let Some(handle) = Handle::parse(handle) else { return Ok(None) };
        let owner = Owner::of(context);
        let Some(entry) = self.store.get(&owner.record(&handle)?).await? else { return Ok(None) };
        let record = serde_json::from_slice(&entry.value)
            .map_err(|error| KeepError::Unusable(error.to_string()))?;
        Ok(Some(KeptOutput::new(self.store.clone(), owner, handle, record)))
    }

    pub(super) fn store_timeout(&self) -> Duration {
        self.section.store_timeout()
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("section", &self.section).finish_non_exhaustive()
    }
}
