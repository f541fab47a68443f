//! Keeps outputs in the store and finds them again.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use rockbot_store::{Entry, Expected, Key, Store, Write};
use serde_json::json;
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};
use tracing::{debug, info, warn};

use super::{
    TOOL_OUTPUT,
    error::KeepError,
    handle::{Handle, Owner},
    read::KeptOutput,
    record::Record,
    section::OutputsSection,
};
use crate::context::ToolContext;

/// Pieces that are on their way to or from the store at once.
const AT_ONCE: usize = 4;
/// Outputs that are looked at in whole at once, for keys of JSON.
const WHOLE_AT_ONCE: usize = 2;
/// Handles that are named when several outputs had to go.
const NAMED: usize = 5;

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
    /// gets too much; if they can't go now, they do so with the next one.
    ///
    /// # Errors
    /// See [`KeepError`]. Takes no longer than `store_timeout`, or than the call may take.
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
        let (deadline, owner) = (Instant::now() + within, Owner::of(context));
        let written = timeout_at(deadline, self.write(&owner, text)).await;
        let (handle, record) = written.map_err(|_| KeepError::Slow(within))??;
        let (tool_call_id, tool) = (&context.tool_call_id, &context.tool_name);
        info!(%tool_call_id, %tool, bytes, "kept an output that is too large");
        let mut gone = Vec::new();
        let made = timeout_at(deadline, self.make_room(&owner, &mut gone)).await;
        if let Err(error) = made.unwrap_or(Err(KeepError::Slow(within))) {
            warn!(%tool_call_id, %tool, %error, "older outputs can't be removed now");
        }
        let message = self.message(&handle, &record, &gone);
        Ok(Kept { handle: handle.as_str().to_owned(), message })
    }

    async fn write(&self, owner: &Owner, text: String) -> Result<(Handle, Record), KeepError> {
        let (record, pieces) = spawn_blocking(move || Record::of(text))
            .await
            .map_err(|error| KeepError::Unusable(error.to_string()))?;
        let handle = Handle::generate()
            .ok_or_else(|| KeepError::Unusable("the system gives no random numbers".to_owned()))?;
        let ttl = self.section.keep();
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
        Ok((handle, record))
    }

    /// Removes the oldest outputs of an owner that has too many, and adds their handles to `gone`.
    async fn make_room(&self, owner: &Owner, gone: &mut Vec<Handle>) -> Result<(), KeepError> {
        let mut kept = self.records(owner).await?;
        kept.sort_by_key(|(_, _, entry)| std::cmp::Reverse(entry.version));
        let mut bytes = 0;
        for (index, (handle, record, _)) in kept.into_iter().enumerate() {
            bytes += record.extent().bytes;
            let fits = index < self.section.session_outputs && bytes <= self.section.session_bytes;
            if !fits {
                self.remove(owner, &handle, &record).await?;
                gone.push(handle);
            }
        }
        Ok(())
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
        let minutes = self.section.keep().as_secs().div_ceil(60);
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

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_store::{Clock, MemoryStore, Prefix, StoreError, Timestamp, Written};

    use super::*;

    /// A store that lists nothing: it is down by then, or takes for ever.
    struct Listless {
        inner: MemoryStore,
        answers: bool,
    }

    impl Store for Listless {
        fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
            self.inner.get(key)
        }

        fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
            self.inner.write(write)
        }

        fn remove<'a>(
            &'a self,
            key: &'a Key,
            expected: Expected,
        ) -> BoxFuture<'a, Result<bool, StoreError>> {
            self.inner.remove(key, expected)
        }

        fn list<'a>(
            &'a self,
            _: &'a Prefix,
            _: Option<&'a Key>,
            _: usize,
        ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
            Box::pin(async {
                if !self.answers {
                    std::future::pending::<()>().await;
                }
                Err(StoreError::Unavailable { reason: "it is down".to_owned() })
            })
        }

        fn sweep(&self, most: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
            self.inner.sweep(most)
        }

        fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
            self.inner.now()
        }

        fn close(&self) -> BoxFuture<'_, ()> {
            self.inner.close()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_output_is_kept_also_when_older_ones_cannot_go() {
        for answers in [true, false] {
            let store = Listless { inner: MemoryStore::new(Clock::System), answers };
            let outputs = Outputs::new(Arc::new(store), OutputsSection::default());
            let agent = AgentName::new("assistant").unwrap();
            let context = ToolContext::new("verbose", SessionId::generate(), agent);
            let kept = outputs.keep(&context, "a text".to_owned()).await.unwrap();
            let output = outputs.open(&context, &kept.handle).await.unwrap().unwrap();
            assert_eq!(output.whole().await.unwrap().as_deref(), Some("a text"));
        }
    }
}
