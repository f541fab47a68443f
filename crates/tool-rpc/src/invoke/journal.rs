//! What became of calls, kept where every handler can look it up.
//!
//! A call is written down before its tool starts and again when it ended, with its answer. So a
//! second delivery of it, here or in another process, learns whether the tool ran:
//!
//! | what the journal says | what a second delivery does |
//! |---|---|
//! | ended | answers with the kept answer |
//! | begun, by a handler that lives | waits for its end |
//! | begun, by a handler that is gone | runs again if that is harmless, else the outcome is unknown |
//! | begun or ended with other arguments | is refused |
//! | nothing | runs, unless another journal may know more |
//!
//! Whether a handler lives is a lease in the same store, one for the process, so that a call costs
//! two writes however long it takes. Whoever takes a call over writes a new version of its entry,
//! and the old owner's later write fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rockbot_contracts::{AgentName, InstanceId, ToolCallId};
use rockbot_store::{
    Entry, Expected, Key, Store, StoreError, StoreSection, StoreUrl, Sweeper, Version, Write,
    Written,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tracing::{debug, warn};

use super::alive::Alive;

/// How often what is kept no longer is removed from the store, at least.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The pause between two looks at a call that runs elsewhere.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The pauses between attempts to write down that a call ended.
const END_AGAIN_AFTER: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
];

/// Answers over this size are not kept, only that there was one.
const MAX_KEPT_BYTES: usize = 2 * 1024 * 1024;

/// How long the end of a call is kept in memory, which is short; and what is in it ends with the
/// process anyway.
const IN_MEMORY: Duration = Duration::from_secs(600);

/// The journal of one handler process.
pub struct CallJournal {
    store: Arc<dyn Store>,
    options: JournalOptions,
    alive: Alive,
    _sweeper: Sweeper,
}

/// What a journal is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalOptions {
    /// Whether every handler of the queue writes to this store: then a call that is not in it has
    /// not begun anywhere. Without it, a call that was delivered before may be in the journal of
    /// another handler.
    pub shared: bool,
    /// How long the end of a call is kept. Default 24 hours. Its beginning is kept for as long as a
    /// call may run.
    pub keep: Duration,
}

impl JournalOptions {
    /// What a journal in `store` is worth, as its section says.
    #[must_use]
    pub fn of(section: &StoreSection, store: &StoreUrl) -> Self {
        let default = match store {
            StoreUrl::Memory => IN_MEMORY,
            _ => Self::default().keep,
        };
        Self {
            shared: section.shared.unwrap_or(matches!(store, StoreUrl::Postgres(_))),
            keep: section.keep.unwrap_or(default),
        }
    }
}

impl Default for JournalOptions {
    /// A journal that is one of several, kept for 24 hours.
    fn default() -> Self {
        Self { shared: false, keep: Duration::from_secs(24 * 3600) }
    }
}

/// What is written down about a call.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Hash of who asked for which tool with which arguments.
    fingerprint: String,
    /// The life of the process that runs it, or ran it.
    owner: String,
    /// How it ended; none while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    /// Type of the answer's payload.
    r#type: String,
    /// The answer's payload; none when it was too large to keep.
    answer: Option<Box<RawValue>>,
}

/// A call as its request describes it.
pub(super) struct CallInQuestion<'a> {
    pub(super) id: &'a ToolCallId,
    pub(super) agent: &'a AgentName,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a str,
    /// Whether running it twice is harmless.
    pub(super) repeatable: bool,
    /// Whether somebody may have had it before.
    pub(super) again: bool,
    /// Set when the journal turns out to know that it began.
    pub(super) found_begun: AtomicBool,
}

/// What a handler is to do with a call.
pub(super) enum Entrance {
    /// Run it, and then say how it ended.
    Run(Box<Begun>),
    /// Answer as an earlier run did.
    Answer(KeptAnswer),
    /// It ran, and its answer was too large to keep.
    RanWithoutAnswer,
    /// Another call, with other arguments or of another agent, has this id.
    Conflict,
    /// It may have run, nobody knows how it ended, and it must not run again. Say so, and write
    /// that down if there is something to write to.
    Interrupted(Option<Box<Begun>>),
}

/// A payload as it was answered.
pub(super) struct KeptAnswer {
    pub(super) message_type: String,
    pub(super) body: Vec<u8>,
}

/// A call that is written down as begun by this process.
pub(super) struct Begun {
    key: Key,
    version: Version,
    record: Record,
}

impl CallJournal {
    /// The journal of the process `instance` on `store`. It also removes from the store what has
    /// expired.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        instance: &InstanceId,
        options: JournalOptions,
    ) -> Arc<Self> {
        let alive = Alive::start(store.clone(), instance.clone());
        let sweeper = Sweeper::start(store.clone(), SWEEP_EVERY.min(options.keep / 10));
        Arc::new(Self { store, options, alive, _sweeper: sweeper })
    }

    /// Says that this process runs nothing any more, so that nobody waits for its lease to end.
    pub async fn stop(&self) {
        self.alive.stop().await;
    }

    /// Whether a call that is not in it has not begun anywhere.
    pub(super) fn is_shared(&self) -> bool {
        self.options.shared
    }

    /// Finds out what is to be done with a call, and writes down that it begins if it does. Waits
    /// while another handler runs it; the caller bounds the wait.
    ///
    /// # Errors
    /// When the store fails. The call is then not written down as begun, or as begun by a process
    /// that does not run it: either way it must not run.
    pub(super) async fn enter(&self, call: &CallInQuestion<'_>) -> Result<Entrance, StoreError> {
        let mut begun = self.beginning(call).await?;
        let unproved = call.again && !self.options.shared && !call.repeatable;
        if unproved && self.store.get(&begun.key).await?.is_none() {
            return Ok(Entrance::Interrupted(None));
        }
        let mut expected = Expected::Absent;
        let mut mine = true;
        loop {
            let found = match begun.write(&self.store, expected, super::MAX_BUDGET).await {
                Ok(Written::Done(version)) => {
                    begun.version = version;
                    return Ok(if mine {
                        Entrance::Run(begun)
                    } else {
                        Entrance::Interrupted(Some(begun))
                    });
                }
                Ok(Written::Conflict(found)) => found,
                Err(error) => return Err(error),
            };
            let Some(found) = found else {
                expected = Expected::Absent;
                continue;
            };
            match self.judge(&begun, &found).await? {
                Earlier::Conflict => return Ok(Entrance::Conflict),
                Earlier::Ended(ended) => return Ok(Entrance::answer(ended)),
                Earlier::Running => {
                    self.outwait(call, &begun).await?;
                }
                Earlier::Interrupted => {
                    call.found_begun.store(true, Ordering::Relaxed);
                    // Written even when it does not run: what its old owner writes later fails.
                    mine = call.repeatable;
                    expected = Expected::Version(found.version);
                }
            }
        }
    }

    /// Waits until no other handler runs the call, and says whether it may run here then.
    pub(super) async fn may_run(&self, call: &CallInQuestion<'_>) -> Result<bool, StoreError> {
        let begun = self.beginning(call).await?;
        Ok(match self.outwait(call, &begun).await? {
            None => true,
            Some(Earlier::Interrupted) => call.repeatable,
            Some(_) => false,
        })
    }

    async fn outwait(
        &self,
        call: &CallInQuestion<'_>,
        begun: &Begun,
    ) -> Result<Option<Earlier>, StoreError> {
        while let Some(found) = self.store.get(&begun.key).await? {
            match self.judge(begun, &found).await? {
                Earlier::Running => {
                    call.found_begun.store(true, Ordering::Relaxed);
                    debug!("another handler runs the call");
                    tokio::time::sleep(LOOK_AGAIN_AFTER).await;
                }
                other => return Ok(Some(other)),
            }
        }
        Ok(None)
    }

    async fn beginning(&self, call: &CallInQuestion<'_>) -> Result<Box<Begun>, StoreError> {
        let owner = self.alive.life().await?.to_string();
        let record = Record { fingerprint: call.fingerprint(), owner, ended: None };
        // Hashed, since an id from outside can be longer than a key.
        let key = key(["calls", &digest([call.id.as_str()])])?;
        Ok(Box::new(Begun { key, version: Version::from_number(0), record }))
    }

    async fn judge(&self, begun: &Begun, found: &Entry) -> Result<Earlier, StoreError> {
        let Ok(record) = serde_json::from_slice::<Record>(&found.value) else {
            warn!("an entry of the journal can't be read; its call counts as interrupted");
            return Ok(Earlier::Interrupted);
        };
        if record.fingerprint != begun.record.fingerprint {
            return Ok(Earlier::Conflict);
        }
        if let Some(ended) = record.ended {
            return Ok(Earlier::Ended(ended));
        }
        // What this process runs never comes here: it is recognised before.
        let lives =
            record.owner != begun.record.owner && Alive::has(&*self.store, &record.owner).await?;
        Ok(if lives { Earlier::Running } else { Earlier::Interrupted })
    }

    /// Writes down how a call ended. A failure is logged: the call has its answer, and a second
    /// delivery will be told that the outcome is unknown.
    pub(super) async fn end(&self, mut begun: Box<Begun>, message_type: &str, answer: &[u8]) {
        let kept = (answer.len() <= MAX_KEPT_BYTES).then_some(answer);
        // Answers are our own JSON.
        let kept = kept.and_then(|answer| serde_json::from_slice(answer).ok());
        begun.record.ended = Some(Ended { r#type: message_type.to_owned(), answer: kept });
        let expected = Expected::Version(begun.version);
        for pause in END_AGAIN_AFTER {
            match begun.write(&self.store, expected, self.options.keep).await {
                Ok(Written::Done(_)) => return,
                Ok(Written::Conflict(_)) => {
                    debug!("the call was taken over, or its end was written after all");
                    return;
                }
                Err(error) => debug!(%error, "writing down the end of the call again"),
            }
            tokio::time::sleep(pause).await;
        }
        if let Err(error) = begun.write(&self.store, expected, self.options.keep).await {
            warn!(%error, "the journal does not know that the call ended");
        }
    }
}

enum Earlier {
    Conflict,
    Ended(Ended),
    Running,
    Interrupted,
}

impl Entrance {
    fn answer(ended: Ended) -> Self {
        match ended.answer {
            Some(answer) => Self::Answer(KeptAnswer {
                message_type: ended.r#type,
                body: String::from(Box::<str>::from(answer)).into_bytes(),
            }),
            None => Self::RanWithoutAnswer,
        }
    }
}

impl CallInQuestion<'_> {
    pub(super) fn was_found_begun(&self) -> bool {
        self.found_begun.load(Ordering::Relaxed)
    }

    fn fingerprint(&self) -> String {
        digest([self.agent.as_str(), self.tool, self.arguments])
    }
}

/// A hash of the parts in their order.
fn digest<const N: usize>(parts: [&str; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Begun {
    async fn write(
        &self,
        store: &Arc<dyn Store>,
        expected: Expected,
        keep: Duration,
    ) -> Result<Written, StoreError> {
        let value = serde_json::to_vec(&self.record)
            .map_err(|error| StoreError::Unusable { reason: error.to_string() })?;
        let write = Write::new(self.key.clone(), value).for_a_time(keep).expecting(expected);
        store.write(write).await
    }
}

fn key<const N: usize>(segments: [&str; N]) -> Result<Key, StoreError> {
    Key::new(segments).map_err(|error| StoreError::Unusable { reason: error.to_string() })
}

impl std::fmt::Debug for CallJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallJournal").field("options", &self.options).finish_non_exhaustive()
    }
}
