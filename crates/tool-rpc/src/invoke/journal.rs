//! Journal of calls, in a store that handlers can share.
//!
//! A call is recorded before its tool starts, and again with its reply when it finished. A redelivery, to
//! this process or another, thus finds out whether the tool ran:
//!
//! | state in the journal | handling of a redelivery |
//! |---|---|
//! | finished | the recorded reply is returned |
//! | started, and its handler is alive | waits until the call finishes |
//! | started, and its handler is dead | runs again if the tool is idempotent, else `outcome_unknown` |
//! | started or finished with other arguments | rejected |
//! | not recorded | runs, unless another journal may have recorded it |
//!
//! A call that a handler does not start is recorded as finished too, before its caller reads that it did
//! not run; see [`unstarted`](super::unstarted).
//!
//! A handler is alive while it holds a lease in the same store. The lease belongs to the process, so a
//! call costs two writes however long it takes. A takeover writes a new version of the entry, which
//! makes a later write of the old owner fail.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{InstanceId, ToolCallId};
use rockbot_store::{
    Entry, Expected, Key, Store, StoreError, Sweeper, Version, Write, Written,
    lease::ATTEMPT_TIMEOUT,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::{
    call_description::{CallDescription, StartId, digest},
    journal_options::JournalOptions,
    liveness::{LeaseReads, Liveness},
    settle::{Attempt, RecordSettler},
};

/// Maximum interval between removals of expired entries from the store.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Interval between checks of a call that runs in another handler.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Pauses between attempts to record the end of a call.
const FINISH_RETRY_DELAYS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
];

/// Largest reply that is recorded. Of a larger one, the journal records only that the call finished.
const MAX_REPLY_BYTES: usize = 2 * 1024 * 1024;

/// Journal of one handler process.
pub struct CallJournal {
    store: Arc<dyn Store>,
    options: JournalOptions,
    liveness: Liveness,
    lease_reads: LeaseReads,
    settler: RecordSettler,
    _sweeper: Sweeper,
}

/// Stored state of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// Hash of the caller, the tool and the arguments.
    fingerprint: String,
    /// Incarnation of the process that runs or ran the call.
    pub(super) owner: String,
    /// The start that wrote the record; absent in older data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<StartId>,
    /// Recorded end of the call; `None` while it runs.
    // Stored name, kept for existing data.
    #[serde(rename = "ended", skip_serializing_if = "Option::is_none")]
    pub(super) finished: Option<FinishedRecord>,
}

/// Recorded end of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FinishedRecord {
    /// Type of the reply's payload.
    pub(super) r#type: String,
    /// The reply's payload; `None` when it was too large to record.
    // Stored name, kept for existing data.
    #[serde(rename = "answer")]
    pub(super) reply: Option<Box<RawValue>>,
}

impl FinishedRecord {
    pub(super) fn new(message_type: &str, reply: &[u8]) -> Self {
        let recorded = (reply.len() <= MAX_REPLY_BYTES).then_some(reply);
        // Replies are JSON that this process wrote.
        let reply = recorded.and_then(|reply| serde_json::from_slice(reply).ok());
        Self { r#type: message_type.to_owned(), reply }
    }
}

/// Decision of the journal on a call.
pub(super) enum JournalDecision {
    /// The record was written: run the call and then record its end, or reply that it did not run.
    Written(Box<JournalEntry>),
    /// Another handler runs the call.
    Running,
    /// The call ended before.
    Ended(EarlierEnd),
}

/// End of an earlier delivery of a call.
pub(super) enum EarlierEnd {
    /// Its reply was recorded.
    Replied(RecordedReply),
    /// It ran, and its reply was too large to record.
    TooLarge,
    /// Another call, with other arguments or of another agent, has this id.
    Conflict {
        /// Set if the record of that call proves that this one did not run, and does not run later.
        is_proof: bool,
    },
    /// It may have run, with an unknown outcome, and must not run again. The entry, if there is one, is to
    /// be completed with that failure.
    Interrupted(Option<Box<JournalEntry>>),
}

/// Recorded payload of a reply.
pub(super) struct RecordedReply {
    /// Incarnation of the process that recorded it.
    pub(super) owner: String,
    pub(super) message_type: String,
    pub(super) body: Vec<u8>,
}

/// The entry of a call, as last written by this process.
pub(super) struct JournalEntry {
    key: Key,
    version: Version,
    record: Record,
    /// Time by which the call must finish.
    deadline: Instant,
}

impl CallJournal {
    /// Opens the journal of the process `instance` in `store`, and removes expired entries from the
    /// store from now on.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        instance: &InstanceId,
        options: JournalOptions,
    ) -> Arc<Self> {
        let liveness = Liveness::start(store.clone(), instance.clone());
        let sweeper = Sweeper::start(store.clone(), SWEEP_INTERVAL.min(options.retention / 10));
        Arc::new(Self {
            store,
            options,
            liveness,
            lease_reads: LeaseReads::default(),
            settler: RecordSettler::new(),
            _sweeper: sweeper,
        })
    }

    /// Releases the lease of this process, so that other handlers do not wait for it to expire.
    pub async fn stop(&self) {
        self.settler.stop().await;
        self.liveness.stop().await;
    }

    /// Records that the broker confirmed the reply of every call that this process recorded as ended.
    /// Its last acks may still be lost: the broker drops those that wait in a channel when it closes.
    pub(super) async fn record_all_replied(&self) {
        let recorded = async {
            let owner = self.liveness.incarnation().await?;
            let write = Write::new(all_replied_key(&owner)?, "replied");
            self.store.write(write.with_ttl(self.options.retention)).await
        };
        match timeout(ATTEMPT_TIMEOUT, recorded).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "confirmed replies not recorded"),
            Err(_) => debug!("confirmed replies not recorded in time"),
        }
    }

    /// Returns whether the broker confirmed the reply that `owner` recorded. If not known, returns `false`.
    pub(super) async fn was_replied(&self, owner: &str) -> bool {
        let recorded = async { self.store.get(&all_replied_key(owner)?).await };
        matches!(timeout(ATTEMPT_TIMEOUT, recorded).await, Ok(Ok(Some(_))))
    }

    /// Returns whether the end of the call is recorded.
    pub(super) async fn has_ended(&self, id: &ToolCallId) -> Result<bool, StoreError> {
        let Some(entry) = self.store.get(&call_key(id)?).await? else { return Ok(false) };
        // An unreadable record is not an end.
        let record = serde_json::from_slice::<Record>(&entry.value);
        Ok(record.is_ok_and(|record| record.finished.is_some()))
    }

    /// Returns whether all handlers of the queue use this store.
    pub(super) fn is_shared(&self) -> bool {
        self.options.shared
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the incarnation of this process; waits up to 2 s for its lease.
    pub(super) async fn incarnation(&self) -> Result<Arc<str>, StoreError> {
        self.liveness.incarnation().await
    }

    /// Waits up to 4 s until the process with this incarnation renews its lease. Returns whether it did.
    pub(super) async fn renews(&self, incarnation: &str) -> Result<bool, StoreError> {
        self.lease_reads.renews(&*self.store, incarnation).await
    }

    /// Returns the retention of finished calls.
    pub(super) fn retention(&self) -> Duration {
        self.options.retention
    }

    /// Returns the retention of a call that finishes now. Until its deadline, copies of its request may start it, so
    /// none may find its record expired.
    fn retention_after(&self, deadline: Instant) -> Duration {
        self.options.retention.max(deadline.saturating_duration_since(Instant::now()))
    }

    /// Decides on a call, and records its start if it is to run.
    ///
    /// # Errors
    /// When the store fails. The call must not run then: it is not recorded, or recorded as started by a
    /// process that does not run it.
    pub(super) async fn start_call(
        &self,
        call: &CallDescription<'_>,
    ) -> Result<JournalDecision, StoreError> {
        let entry = self.new_entry(call).await?;
        let is_recorded_here =
            self.options.shared && !call.may_outlive_records(self.options.retention);
        let may_have_started_elsewhere =
            call.maybe_redelivered && !is_recorded_here && !call.idempotent;
        if may_have_started_elsewhere && self.store.get(&entry.key).await?.is_none() {
            return Ok(JournalDecision::Ended(EarlierEnd::Interrupted(None)));
        }
        let retention = self.options.retention.max(super::MAX_BUDGET);
        self.decide(call, entry, Expected::Absent, retention).await
    }

    /// Records the reply of a call that did not start here, unless a record shows that it may have
    /// started elsewhere. No handler starts it afterwards. `entry` is the one of this process, if it
    /// recorded the start of the call.
    ///
    /// # Errors
    /// When the store fails. The reply may be recorded or not.
    pub(super) async fn close_unstarted(
        &self,
        call: &CallDescription<'_>,
        entry: Option<Box<JournalEntry>>,
        reply: FinishedRecord,
    ) -> Result<JournalDecision, StoreError> {
        let (mut entry, expected) = match entry {
            Some(entry) => {
                let version = entry.version;
                (entry, Expected::Version(version))
            }
            None => (self.new_entry(call).await?, Expected::Absent),
        };
        entry.record.finished = Some(reply);
        let retention = self.retention_after(call.deadline);
        self.decide(call, entry, expected, retention).await
    }

    /// Writes `entry` if the current one is as expected, or decides by the one that is found.
    async fn decide(
        &self,
        call: &CallDescription<'_>,
        mut entry: Box<JournalEntry>,
        mut expected: Expected,
        retention: Duration,
    ) -> Result<JournalDecision, StoreError> {
        let mut is_interrupted = false;
        loop {
            let found = match entry.write(&self.store, expected, retention).await? {
                Written::Done(version) => {
                    entry.version = version;
                    return Ok(if is_interrupted {
                        JournalDecision::Ended(EarlierEnd::Interrupted(Some(entry)))
                    } else {
                        JournalDecision::Written(entry)
                    });
                }
                Written::Conflict(found) => found,
            };
            let Some(found) = found else {
                expected = Expected::Absent;
                continue;
            };
            match self.classify(&entry, &found).await? {
                EarlierRun::Conflict => return Ok(JournalDecision::Ended(self.conflict(call))),
                EarlierRun::Finished(end) => return Ok(JournalDecision::Ended(end)),
                EarlierRun::Running => {
                    call.set_seen_started();
                    return Ok(JournalDecision::Running);
                }
                EarlierRun::Interrupted => {
                    call.set_seen_started();
                    // Also written when the call must not run: later writes of its old owner then fail.
                    is_interrupted |= entry.record.finished.take().is_some() || !call.idempotent;
                    expected = Expected::Version(found.version);
                }
            }
        }
    }

    /// Returns the end of a call whose id another call has, by the record of that id, and writes nothing;
    /// `None` without a record.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn find(
        &self,
        call: &CallDescription<'_>,
    ) -> Result<Option<EarlierEnd>, StoreError> {
        let entry = self.new_entry(call).await?;
        let Some(found) = self.store.get(&entry.key).await? else { return Ok(None) };
        Ok(Some(match self.classify(&entry, &found).await? {
            EarlierRun::Finished(end) => end,
            EarlierRun::Conflict => self.conflict(call),
            EarlierRun::Running | EarlierRun::Interrupted => {
                EarlierEnd::Conflict { is_proof: false }
            }
        }))
    }

    /// Returns the end of a call whose id the record of another call has. If all handlers use the record,
    /// none starts this call. Otherwise only a first delivery proves that no other handler had the call.
    fn conflict(&self, call: &CallDescription<'_>) -> EarlierEnd {
        EarlierEnd::Conflict { is_proof: self.options.shared || call.is_only_start() }
    }

    /// Waits while another handler runs the call. Returns whether it may run here then.
    pub(super) async fn may_run_here(
        &self,
        call: &CallDescription<'_>,
    ) -> Result<bool, StoreError> {
        let entry = self.new_entry(call).await?;
        Ok(match self.wait_while_running(call, &entry).await? {
            None => true,
            Some(EarlierRun::Interrupted) => call.idempotent,
            Some(_) => false,
        })
    }

    async fn wait_while_running(
        &self,
        call: &CallDescription<'_>,
        entry: &JournalEntry,
    ) -> Result<Option<EarlierRun>, StoreError> {
        while let Some(found) = self.store.get(&entry.key).await? {
            match self.classify(entry, &found).await? {
                EarlierRun::Running => {
                    call.set_seen_started();
                    debug!("call runs in another handler");
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                other => return Ok(Some(other)),
            }
        }
        Ok(None)
    }

    async fn new_entry(&self, call: &CallDescription<'_>) -> Result<Box<JournalEntry>, StoreError> {
        let owner = self.liveness.incarnation().await?.to_string();
        let record = Record {
            fingerprint: call.fingerprint(),
            owner,
            start: Some(call.start),
            finished: None,
        };
        let key = call_key(call.id)?;
        let (version, deadline) = (Version::from_number(0), call.deadline);
        Ok(Box::new(JournalEntry { key, version, record, deadline }))
    }

    async fn classify(
        &self,
        entry: &JournalEntry,
        found: &Entry,
    ) -> Result<EarlierRun, StoreError> {
        let Ok(record) = serde_json::from_slice::<Record>(&found.value) else {
            warn!("journal entry unreadable; its call counts as interrupted");
            return Ok(EarlierRun::Interrupted);
        };
        if record.fingerprint != entry.record.fingerprint {
            return Ok(EarlierRun::Conflict);
        }
        if let Some(finished) = record.finished {
            return Ok(EarlierRun::Finished(EarlierEnd::from_record(record.owner, finished)));
        }
        // A call that runs in this process is not looked up here: its redeliveries join it before.
        let is_alive = record.owner != entry.record.owner
            && Liveness::is_alive(&*self.store, &record.owner).await?;
        Ok(if is_alive { EarlierRun::Running } else { EarlierRun::Interrupted })
    }

    /// Records the reply of a call. A failure is only logged: the caller has its reply, and a
    /// redelivery fails with `outcome_unknown`.
    pub(super) async fn finish(
        &self,
        mut entry: Box<JournalEntry>,
        message_type: &str,
        reply: &[u8],
    ) {
        entry.record.finished = Some(FinishedRecord::new(message_type, reply));
        let expected = Expected::Version(entry.version);
        for pause in FINISH_RETRY_DELAYS {
            match entry.write(&self.store, expected, self.retention_after(entry.deadline)).await {
                Ok(Written::Done(_)) => return,
                Ok(Written::Conflict(_)) => {
                    debug!("end of call not recorded: taken over, or recorded already");
                    return;
                }
                Err(error) => debug!(%error, "end of call not recorded; retrying"),
            }
            tokio::time::sleep(pause).await;
        }
        match entry.write(&self.store, expected, self.retention_after(entry.deadline)).await {
            Ok(_) => {}
            Err(error) => {
                warn!(%error, "end of call not recorded; trying again in the background");
                let JournalEntry { key, record, deadline, .. } = *entry;
                if let Some((start, end)) = record.start.zip(record.finished) {
                    self.complete_later(key, start, end, deadline);
                }
            }
        }
    }

    /// Records `end` in the background if a start of `call` is or will be recorded here: a write without
    /// a response may have been executed. `start` is the recorded one, if its write had a response.
    pub(super) fn complete_uncertain(
        &self,
        call: &CallDescription<'_>,
        start: Option<StartId>,
        end: FinishedRecord,
    ) {
        if let Ok(key) = call_key(call.id) {
            self.complete_later(key, start.unwrap_or(call.start), end, call.deadline);
        }
    }

    fn complete_later(&self, key: Key, start: StartId, end: FinishedRecord, deadline: Instant) {
        let (store, retention) = (self.store.clone(), self.retention_after(deadline));
        self.settler.settle(move || {
            let (store, key, end) = (store.clone(), key.clone(), end.clone());
            Box::pin(complete(store, key, start, end, retention))
        });
    }
}

/// Records `end` if the record of the call says that this start runs.
async fn complete(
    store: Arc<dyn Store>,
    key: Key,
    start: StartId,
    end: FinishedRecord,
    retention: Duration,
) -> Result<Attempt, StoreError> {
    let Some(found) = store.get(&key).await? else { return Ok(Attempt::Absent) };
    match serde_json::from_slice::<Record>(&found.value) {
        Ok(mut record) if record.start == Some(start) && record.finished.is_none() => {
            record.finished = Some(end);
            let version = found.version;
            let entry = JournalEntry { key, version, record, deadline: Instant::now() };
            entry.write(&store, Expected::Version(version), retention).await?;
            Ok(Attempt::Settled)
        }
        _ => Ok(Attempt::Settled),
    }
}

/// State of the call that the journal has under the same id.
enum EarlierRun {
    Conflict,
    Finished(EarlierEnd),
    Running,
    Interrupted,
}

impl EarlierEnd {
    fn from_record(owner: String, finished: FinishedRecord) -> Self {
        match finished.reply {
            Some(reply) => Self::Replied(RecordedReply {
                owner,
                message_type: finished.r#type,
                body: String::from(Box::<str>::from(reply)).into_bytes(),
            }),
            None => Self::TooLarge,
        }
    }
}

impl JournalEntry {
    /// Returns the start that wrote the entry.
    pub(super) fn start(&self) -> Option<StartId> {
        self.record.start
    }

    async fn write(
        &self,
        store: &Arc<dyn Store>,
        expected: Expected,
        retention: Duration,
    ) -> Result<Written, StoreError> {
        let value = serde_json::to_vec(&self.record)
            .map_err(|error| StoreError::Unusable { reason: error.to_string() })?;
        let write = Write::new(self.key.clone(), value).with_ttl(retention).with_expected(expected);
        store.write(write).await
    }
}

pub(super) fn all_replied_key(owner: &str) -> Result<Key, StoreError> {
    key(["replied", owner])
}

pub(super) fn call_key(id: &ToolCallId) -> Result<Key, StoreError> {
    // Hashed because an id from outside can be longer than a key may be.
    key(["calls", &digest([id.as_str()])])
}

fn key<const N: usize>(segments: [&str; N]) -> Result<Key, StoreError> {
    Key::new(segments).map_err(|error| StoreError::Unusable { reason: error.to_string() })
}

impl std::fmt::Debug for CallJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallJournal").field("options", &self.options).finish_non_exhaustive()
    }
}
