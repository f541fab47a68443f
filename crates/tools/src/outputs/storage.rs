//! Storage of outputs.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use rockbot_contracts::{AgentName, SessionId};
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
    error::OutputError,
    handle::{Handle, Owner},
    record::Record,
    section::OutputsSection,
    stored_output::StoredOutput,
};
use crate::context::ToolContext;

/// Concurrent requests to the store per output.
const CONCURRENT_REQUESTS: usize = 4;
/// Outputs that are loaded completely at the same time, for JSON pointers.
const CONCURRENT_LOADS: usize = 2;
/// Maximum number of removed handles that a message names.
const MAX_NAMED: usize = 5;

/// A stored output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHandle {
    /// Handle.
    pub handle: String,
    /// Handle, sizes and outline, for the model. At most about 4 KB.
    pub message: String,
}

/// Outputs in a store, for all conversations and agents. Expired entries are removed by the store's
/// sweeper, which runs separately.
pub struct Outputs {
    store: Arc<dyn Store>,
    section: OutputsSection,
    pub(super) load_permits: Semaphore,
}

impl Outputs {
    /// Creates a storage in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, section: OutputsSection) -> Arc<Self> {
        Arc::new(Self { store, section, load_permits: Semaphore::new(CONCURRENT_LOADS) })
    }

    /// Returns the maximum size of a result that is not stored, in bytes. `max_bytes` is the limit of
    /// results.
    #[must_use]
    pub fn shown_bytes(&self, max_bytes: usize) -> usize {
        if self.section.handle_mode {
            max_bytes.min(self.section.tool_response_max_bytes)
        } else {
            max_bytes
        }
    }

    /// Returns the maximum size of a response of `tool_output`, in bytes.
    pub(super) fn response_bytes(&self) -> usize {
        self.section.tool_response_max_bytes
    }

    /// Stores a text for the conversation and the agent of a call. Their oldest outputs are removed when
    /// they exceed the quota; if the removal fails, it is repeated with the next output.
    ///
    /// # Errors
    /// See [`OutputError`]. Bounded by `store_timeout` and the deadline of the call.
    ///
    /// # Cancellation
    /// Dropping the future may leave unreferenced pieces behind. They expire.
    pub async fn store(
        &self,
        context: &ToolContext,
        text: String,
    ) -> Result<StoredHandle, OutputError> {
        let (bytes, limit) = (text.len(), self.section.session_bytes);
        if bytes > limit {
            return Err(OutputError::TooLarge { bytes, limit });
        }
        // After the deadline of the call the result is useless.
        let within = self.section.store_timeout().min(context.remaining());
        let (deadline, owner) = (Instant::now() + within, Owner::from_context(context));
        let written = timeout_at(deadline, self.write(&owner, text)).await;
        let (handle, record) = written.map_err(|_| OutputError::Slow(within))??;
        let (tool_call_id, tool) = (&context.tool_call_id, &context.tool_name);
        info!(%tool_call_id, %tool, bytes, "large output stored");
        let mut removed = Vec::new();
        let cleanup = timeout_at(deadline, self.enforce_quota(&owner, &mut removed)).await;
        if let Err(error) = cleanup.unwrap_or(Err(OutputError::Slow(within))) {
            warn!(%tool_call_id, %tool, %error, "removal of older outputs failed");
        }
        let message = self.message(&handle, &record, &removed);
        Ok(StoredHandle { handle: handle.as_str().to_owned(), message })
    }

    async fn write(&self, owner: &Owner, text: String) -> Result<(Handle, Record), OutputError> {
        let (record, pieces) = spawn_blocking(move || Record::from_text(text))
            .await
            .map_err(|error| OutputError::Unusable(error.to_string()))?;
        let handle = Handle::generate()
            .ok_or_else(|| OutputError::Unusable("no random numbers available".to_owned()))?;
        let ttl = self.section.ttl();
        let mut writes = Vec::with_capacity(pieces.len());
        for (number, piece) in pieces.into_iter().enumerate() {
            writes.push(Write::new(owner.piece(&handle, number)?, piece).with_ttl(ttl));
        }
        stream::iter(writes)
            .map(|write| self.store.write(write))
            .buffer_unordered(CONCURRENT_REQUESTS)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await?;
        // The record is written last, so that an output with a record is complete.
        let encoded = serde_json::to_vec(&record)
            .map_err(|error| OutputError::Unusable(error.to_string()))?;
        self.store.write(Write::new(owner.record(&handle)?, encoded).with_ttl(ttl)).await?;
        Ok((handle, record))
    }

    /// Removes the oldest outputs of an owner over its quota, and adds their handles to `removed`.
    async fn enforce_quota(
        &self,
        owner: &Owner,
        removed: &mut Vec<Handle>,
    ) -> Result<(), OutputError> {
        let mut outputs = self.records(owner).await?;
        outputs.sort_by_key(|(_, _, entry)| std::cmp::Reverse(entry.version));
        let mut bytes = 0;
        for (index, (handle, record, _)) in outputs.into_iter().enumerate() {
            bytes += record.extent().bytes;
            let fits = index < self.section.session_outputs && bytes <= self.section.session_bytes;
            if !fits {
                self.remove(owner, &handle, &record).await?;
                removed.push(handle);
            }
        }
        Ok(())
    }

    async fn records(&self, owner: &Owner) -> Result<Vec<(Handle, Record, Entry)>, OutputError> {
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
                    None => debug!("invalid output record ignored"),
                }
            }
        }
    }

    /// Removes all outputs of a conversation.
    ///
    /// # Errors
    /// See [`OutputError`]; repeat it then.
    pub async fn delete_all(
        &self,
        agent: &AgentName,
        session: &SessionId,
    ) -> Result<(), OutputError> {
        let owner = Owner::new(agent, session);
        for (handle, record, _) in self.records(&owner).await? {
            self.remove(&owner, &handle, &record).await?;
        }
        Ok(())
    }

    async fn remove(
        &self,
        owner: &Owner,
        handle: &Handle,
        record: &Record,
    ) -> Result<(), OutputError> {
        // The record is removed first, so that an output with a record is complete.
        self.store.remove(&owner.record(handle)?, Expected::Anything).await?;
        for number in 0..record.pieces.len() {
            self.store.remove(&owner.piece(handle, number)?, Expected::Anything).await?;
        }
        Ok(())
    }

    fn message(&self, handle: &Handle, record: &Record, removed: &[Handle]) -> String {
        let facts = json!({TOOL_OUTPUT: {
            "handle": handle.as_str(),
            "reason": "size_limit_exceeded",
            "bytes": record.extent().bytes,
            "lines": record.lines(),
            "tokens": record.tokens(),
        }});
        let minutes = self.section.ttl().as_secs().div_ceil(60);
        let mut message = format!(
            "{facts}\nThe result is too large to be shown. It is kept for {minutes} minutes: read \
             the parts you need with {TOOL_OUTPUT}(handle, mode).\n"
        );
        if !removed.is_empty() {
            let named: Vec<_> = removed.iter().take(MAX_NAMED).map(Handle::as_str).collect();
            message.push_str(&format!(
                "To free space, {} older outputs of this conversation were removed: {}\n",
                removed.len(),
                named.join(", ")
            ));
        }
        message.push('\n');
        message.push_str(&record.outline);
        message
    }

    /// Returns the output with this handle if it belongs to the conversation and the agent of the call.
    pub(super) async fn open(
        &self,
        context: &ToolContext,
        handle: &str,
    ) -> Result<Option<StoredOutput>, OutputError> {
        let Some(handle) = Handle::parse(handle) else { return Ok(None) };
        let owner = Owner::from_context(context);
        let Some(entry) = self.store.get(&owner.record(&handle)?).await? else { return Ok(None) };
        let record = serde_json::from_slice(&entry.value)
            .map_err(|error| OutputError::Unusable(error.to_string()))?;
        Ok(Some(StoredOutput::new(self.store.clone(), owner, handle, record)))
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

    use rockbot_store::{Clock, MemoryStore, Prefix, StoreError};
    use rockbot_testkit::{InterceptedStore, StoreInterceptor};

    use super::*;

    /// `list` fails, or never completes.
    struct Unlistable {
        replies: bool,
    }

    impl StoreInterceptor for Unlistable {
        fn list<'a>(
            &'a self,
            _: &'a dyn Store,
            _: &'a Prefix,
            _: Option<&'a Key>,
            _: usize,
        ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
            Box::pin(async {
                if !self.replies {
                    std::future::pending::<()>().await;
                }
                Err(StoreError::Unavailable { reason: "unavailable".to_owned() })
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn output_is_stored_when_cleanup_fails() {
        for replies in [true, false] {
            let store = Arc::new(MemoryStore::new(Clock::System));
            let store = InterceptedStore::wrap(store, Unlistable { replies });
            let outputs = Outputs::new(store, OutputsSection::default());
            let agent = AgentName::new("assistant").unwrap();
            let context = ToolContext::new("verbose", SessionId::generate(), agent);
            let stored = outputs.store(&context, "a text".to_owned()).await.unwrap();
            let output = outputs.open(&context, &stored.handle).await.unwrap().unwrap();
            assert_eq!(output.load().await.unwrap().as_deref(), Some("a text"));
        }
    }
}
