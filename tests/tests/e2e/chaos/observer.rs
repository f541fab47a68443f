//! Observations beside the callers: all replies on the bus, side effects, and leftovers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use rockbot_bus::{Bus, Settlement, Subscription};
use rockbot_contracts::{BindingPattern, Envelope, QueueSpec, RoutingKey, topology::tool_invoke};
use rockbot_store::{Prefix, Store};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::{task::JoinHandle, time::timeout};

use super::timeline::Timeline;

/// Time without a dead letter after which no more are expected.
const DEAD_LETTERS_END: Duration = Duration::from_secs(2);

/// A reply on the bus.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) at: Duration,
    pub(super) source: String,
    /// `yes`, `no` or `unknown`.
    pub(super) executed: String,
    /// Error code; `None` of a result.
    pub(super) code: Option<String>,
    /// What a copy has in common with it.
    pub(super) content: String,
}

/// A queue of copies of the messages whose routing key matches a pattern. It outlives a disconnect.
pub(super) struct CopyQueue {
    task: JoinHandle<()>,
}

impl CopyQueue {
    /// Passes each message to `record`, once.
    pub(super) async fn start(
        bus: &Arc<dyn Bus>,
        name: &str,
        pattern: &str,
        mut record: impl FnMut(&Envelope) + Send + 'static,
    ) -> Self {
        let name = RoutingKey::new(name).expect("a name");
        let queue = QueueSpec::reply(&name, vec![BindingPattern::new(pattern)]);
        let mut consumer = bus.consume(Subscription::new(queue, 256)).await.expect("subscribed");
        let task = tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            while let Some(delivery) = consumer.next().await {
                let envelope = delivery.envelope().clone();
                // A failed ack is followed by a redelivery.
                let _ = delivery.settle(Settlement::Ack).await;
                if seen.insert(envelope.message_id.to_string()) {
                    record(&envelope);
                }
            }
        });
        Self { task }
    }
}

impl Drop for CopyQueue {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Records every reply.
pub(super) struct ReplyObserver {
    replies: Arc<Mutex<BTreeMap<String, Vec<Reply>>>>,
    _queue: CopyQueue,
}

impl ReplyObserver {
    pub(super) async fn start(bus: &Arc<dyn Bus>, timeline: Arc<Timeline>) -> Self {
        let replies = Arc::<Mutex<BTreeMap<String, Vec<Reply>>>>::default();
        let recorded = replies.clone();
        let record = move |envelope: &Envelope| {
            let id = envelope.correlation_id.as_deref().unwrap_or_default().to_owned();
            if let Some(reply) = Reply::read(envelope, timeline.now()) {
                recorded.lock().expect("not poisoned").entry(id).or_default().push(reply);
            }
        };
        let queue = CopyQueue::start(bus, "chaos.observer", "tool.result.#", record).await;
        Self { replies, _queue: queue }
    }

    /// Returns the replies so far, by call.
    pub(super) fn replies(&self) -> BTreeMap<String, Vec<Reply>> {
        self.replies.lock().expect("not poisoned").clone()
    }
}

impl Reply {
    fn read(envelope: &Envelope, at: Duration) -> Option<Self> {
        let mut body: Value = serde_json::from_slice(&envelope.body).ok()?;
        let is_error = envelope.message_type() == "ToolError";
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let (executed, code) = if is_error {
            (text("executed").unwrap_or_else(|| "unknown".to_owned()), text("code"))
        } else {
            ("yes".to_owned(), None)
        };
        // A read-only call may run twice, and takes another time then.
        body.as_object_mut()?.remove("elapsedMs");
        let source = envelope.source.as_deref().unwrap_or_default().to_owned();
        Some(Self { at, source, executed, code, content: body.to_string() })
    }
}

/// A line that a command wrote.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) at: Duration,
    pub(super) handler: String,
}

/// Reads the side effects, by call.
pub(super) fn read_lines(file: &Path, timeline: &Timeline) -> BTreeMap<String, Vec<Line>> {
    let mut lines = BTreeMap::<String, Vec<Line>>::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let mut words = line.split(' ');
        let id = words.next().unwrap_or_default().to_owned();
        let seconds = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        let handler = words.next().unwrap_or_default().to_owned();
        let at = timeline.at_unix(seconds);
        lines.entry(id).or_default().push(Line { at, handler });
    }
    lines
}

/// Returns the ids of processes that run in a folder, such as commands whose handler was killed.
pub(super) fn processes_in(folder: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|current| current == folder)
        })
        .map(|process| process.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Takes the dead letters of the calls, and returns the calls and reasons.
pub(super) async fn take_dead_letters(bus: &Arc<dyn Bus>) -> Vec<(String, String)> {
    let queue = QueueSpec::work(&tool_invoke()).dead_letters();
    let mut consumer = bus.consume(Subscription::new(queue, 64)).await.expect("subscribed");
    let mut letters = Vec::new();
    while let Ok(Some(delivery)) = timeout(DEAD_LETTERS_END, consumer.next()).await {
        let envelope = delivery.envelope();
        let id = envelope.correlation_id.as_deref().unwrap_or_default().to_owned();
        let reason = envelope.dead_letter_reason.as_deref().unwrap_or("by the broker").to_owned();
        letters.push((id, reason));
        let _ = delivery.settle(Settlement::Ack).await;
    }
    letters
}

/// A call that has started and not ended, by the journal.
pub(super) struct RunningEntry {
    pub(super) call: String,
    /// The incarnation of the handler that started it.
    pub(super) owner: String,
    /// Set while the owner holds its lease.
    pub(super) owner_lives: bool,
}

/// Returns the calls that the journal has as running.
pub(super) async fn running_in_journal(
    store: &dyn Store,
    ids: impl Iterator<Item = String>,
) -> Vec<RunningEntry> {
    let by_hash: BTreeMap<String, String> = ids.map(|id| (journal_hash(&id), id)).collect();
    let living: BTreeSet<String> =
        entries(store, "handlers").await.into_iter().map(|(name, _)| name).collect();
    let mut running = Vec::new();
    for (hash, record) in entries(store, "calls").await {
        if record.get("ended").is_none_or(Value::is_null) {
            let call = by_hash.get(&hash).cloned().unwrap_or(hash);
            let owner = record["owner"].as_str().unwrap_or_default().to_owned();
            let owner_lives = living.contains(&owner);
            running.push(RunningEntry { call, owner, owner_lives });
        }
    }
    running
}

/// Returns the last segment of the key and the value of each entry below a prefix.
async fn entries(store: &dyn Store, prefix: &str) -> Vec<(String, Value)> {
    let prefix = Prefix::new([prefix]).expect("a prefix");
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(&prefix, after.as_ref(), 500).await.expect("a page");
        let Some((last, _)) = page.last() else { return found };
        after = Some(last.clone());
        found.extend(page.into_iter().map(|(key, entry)| {
            let value = serde_json::from_slice(&entry.value).unwrap_or_default();
            (key.segments().next_back().unwrap_or_default(), value)
        }));
    }
}

/// Returns the hash under which the journal has a call: of the length of its id and the id.
fn journal_hash(id: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((id.len() as u64).to_be_bytes());
    hash.update(id);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
