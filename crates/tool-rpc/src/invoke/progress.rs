//! Signs of life, on their way to whoever asked.

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

    /// Where the tool of this request says that it lives. Most tools never do, so all but the
    /// clones is left for the first time.
    pub(super) fn sink(
        &self,
        request: &ToolInvokeRequest,
        reply_to: &RoutingKey,
        source: &Arc<str>,
    ) -> Option<UpdateSink> {
        let voice = Voice {
            outbox: self.outbox.clone(),
            call: request.tool_call_id.clone(),
            tool: request.tool_name.clone(),
            reply_to: reply_to.clone(),
            source: source.clone(),
            sequence: AtomicU64::new(0),
        };
        Some(Arc::new(move |update| voice.say(update)))
    }
}

struct Voice {
    outbox: mpsc::Sender<Publication>,
    call: ToolCallId,
    tool: String,
    reply_to: RoutingKey,
    source: Arc<str>,
    sequence: AtomicU64,
}

impl Voice {
    fn say(&self, update: ToolUpdate) {
        // The default reply-to belongs to nobody who could watch.
        let Some(key) = progress_key(&self.reply_to) else { return };
        let (text, partial) = match update {
            ToolUpdate::Progress(text) => (Some(shorten(&text)), None),
            ToolUpdate::Partial(result) => (None, Some(shorten(&result.to_text()))),
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
            debug!(tool_call_id = %self.call, "too much progress at once; dropped some");
        }
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
