//! Progress of running tools, published to their callers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{
    ContentTrust, Envelope, RoutingKey, ToolCallId, ToolInvokeRequest, ToolProgress,
    topology::progress_key,
};
use rockbot_tools::context::{ToolUpdate, UpdateSink};
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::debug;

/// Capacity of the queue of unpublished progress. Updates over it are dropped, since later ones replace
/// them.
const QUEUE_CAPACITY: usize = 1024;

/// Longest progress text or partial result that is sent.
const MAX_TEXT_BYTES: usize = 4096;

/// Publishes progress from one task, in order, so that tools do not wait for the bus.
#[derive(Debug)]
pub(super) struct ProgressSender {
    outbox: mpsc::Sender<Publication>,
    task: JoinHandle<()>,
}

impl ProgressSender {
    pub(super) fn start(bus: Arc<dyn Bus>) -> Self {
        let (outbox, mut queued) = mpsc::channel::<Publication>(QUEUE_CAPACITY);
        let task = tokio::spawn(async move {
            while let Some(publication) = queued.recv().await {
                if let Err(error) = bus.publish(publication).await {
                    debug!(%error, "progress not published");
                }
            }
        });
        Self { outbox, task }
    }

    /// Returns the update sink of one call. The progress key is only built at the first update, since
    /// most tools send none.
    pub(super) fn sink(
        &self,
        request: &ToolInvokeRequest,
        reply_to: &RoutingKey,
        source: &Arc<str>,
    ) -> Option<UpdateSink> {
        let progress = CallProgress {
            outbox: self.outbox.clone(),
            call: request.tool_call_id.clone(),
            tool: request.tool_name.clone(),
            reply_to: reply_to.clone(),
            source: source.clone(),
            sequence: AtomicU64::new(0),
        };
        Some(Arc::new(move |update| progress.send(update)))
    }
}

/// Sender of the progress of one call.
struct CallProgress {
    outbox: mpsc::Sender<Publication>,
    call: ToolCallId,
    tool: String,
    reply_to: RoutingKey,
    source: Arc<str>,
    sequence: AtomicU64,
}

impl CallProgress {
    fn send(&self, update: ToolUpdate) {
        // The default reply key has no caller that consumes progress.
        let Some(key) = progress_key(&self.reply_to) else { return };
        let (text, partial) = match update {
            ToolUpdate::Progress(text) => (Some(truncate(&text)), None),
            ToolUpdate::Partial(result) => (None, Some(truncate(&result.to_text()))),
        };
        let progress = ToolProgress {
            tool_call_id: self.call.clone(),
            tool_name: self.tool.clone(),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            text,
            partial,
        };
        let envelope = Envelope::from_payload(&progress)
            .with_correlation_id(self.call.as_str())
            .with_source(self.source.clone())
            .with_trust(ContentTrust::ToolOutput);
        if self.outbox.try_send(Publication::announcement(key, envelope)).is_err() {
            debug!(tool_call_id = %self.call, "progress dropped: queue full");
        }
    }
}

fn truncate(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

impl Drop for ProgressSender {
    fn drop(&mut self) {
        self.task.abort();
    }
}
