//! Signs of life, on their way to whoever asked.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{
    ContentTrust, Envelope, RoutingKey, ToolInvokeRequest, ToolProgress, topology::progress_key,
};
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::debug;

use crate::tool::{ToolUpdate, UpdateSink};

/// Progress that waits to go out; what comes on top is dropped, since the next line replaces it.
const MOST_WAITING: usize = 1024;

/// The longest line or partial result that is sent.
const MAX_TEXT_BYTES: usize = 4096;

/// Publishes progress from one task, in order, so that tools need not wait for the bus.
#[derive(Debug)]
pub(super) struct ProgressSender {
    outbox: mpsc::Sender<Publication>,
    task: JoinHandle<()>,
}

impl ProgressSender {
    pub(super) fn start(bus: Arc<dyn Bus>) -> Self {
        let (outbox, mut waiting) = mpsc::channel::<Publication>(MOST_WAITING);
        let task = tokio::spawn(async move {
            while let Some(publication) = waiting.recv().await {
                if let Err(error) = bus.publish(publication).await {
                    debug!(%error, "progress was lost");
                }
            }
        });
        Self { outbox, task }
    }

    /// Where the tool of this request says that it lives; nowhere when the asker has no address of
    /// its own.
    pub(super) fn sink(
        &self,
        request: &ToolInvokeRequest,
        reply_to: &RoutingKey,
        source: &str,
    ) -> Option<UpdateSink> {
        let key = progress_key(reply_to)?;
        let outbox = self.outbox.clone();
        let (id, name) = (request.tool_call_id.clone(), request.tool_name.clone());
        let source: Box<str> = source.into();
        let sequence = AtomicU64::new(0);
        Some(Arc::new(move |update| {
            let (text, partial) = match update {
                ToolUpdate::Progress(text) => (Some(shorten(&text)), None),
                ToolUpdate::Partial(result) => (None, Some(shorten(&result.to_text()))),
            };
            let progress = ToolProgress {
                tool_call_id: id.clone(),
                tool_name: name.clone(),
                sequence: sequence.fetch_add(1, Ordering::Relaxed) + 1,
                text,
                partial,
            };
            let envelope = Envelope::of(&progress)
                .correlated(id.as_str())
                .from_source(&source)
                .trusted_as(ContentTrust::ToolOutput);
            if outbox.try_send(Publication::announcement(key.clone(), envelope)).is_err() {
                debug!(tool_call_id = %id, "too much progress at once; dropped some");
            }
        }))
    }
}

fn shorten(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

impl Drop for ProgressSender {
    fn drop(&mut self) {
        self.task.abort();
    }
}
