//! The stored records of delegated work.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{
    AgentName, AgentReply, MessageId, RoutingKey, SessionId, Spending, TaskId, ToolCallId,
};
use rockbot_store::{
    Document, DocumentError, DocumentStore, Expected, PutOutcome, Store, StoreError,
};
use rockbot_tools::EntryPoint;
use serde::{Deserialize, Serialize};

use super::record::{TaskKind, TaskRecord};
use crate::derived_id::derived_id;

/// Time that records are kept: of open work, and after its result was passed on.
const KEEP_OPEN: Duration = Duration::from_secs(7 * 24 * 3600);
const KEEP_FOLDED: Duration = Duration::from_secs(24 * 3600);
/// Attempts at a conditional write while others write too.
const ATTEMPTS: usize = 32;
/// Maximum number of records that are listed.
const MAX_LISTED: usize = 500;
/// Maximum number of records that are read for a list of all work. Their keys are not ordered by time.
const MAX_SCANNED: usize = 2_000;

/// Reason why a turn reads messages of delegated work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FoldReason {
    /// Sub-agents ended.
    #[default]
    Subagents,
    /// Agents ended tasks, at least one with a result.
    AgentResults,
    /// Agents ended tasks without a result.
    AgentErrors,
    /// An agent asks.
    Question,
    /// An agent ended a task after its time limit.
    Late,
}

impl FoldReason {
    /// Returns the entry point of the turn.
    pub(super) const fn entry(self) -> EntryPoint {
        match self {
            Self::Subagents => EntryPoint::SubagentResult,
            Self::AgentResults => EntryPoint::A2aResult,
            Self::AgentErrors => EntryPoint::A2aError,
            Self::Question => EntryPoint::A2aInputRequired,
            Self::Late => EntryPoint::LateA2aReply,
        }
    }
}

/// Results that one turn reads together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FoldRecord {
    pub(super) message: MessageId,
    pub(super) tasks: Vec<TaskId>,
    /// The work whose process runs the turn.
    pub(super) leader: TaskId,
    pub(super) text: String,
    pub(super) spent: Spending,
    pub(super) generation: u32,
    #[serde(default)]
    pub(super) reason: FoldReason,
}

impl FoldRecord {
    /// Creates the turn on one message about a task.
    pub(super) fn about(
        record: &TaskRecord,
        message: MessageId,
        text: String,
        reason: FoldReason,
    ) -> Self {
        Self {
            message,
            tasks: vec![record.task.clone()],
            leader: record.task.clone(),
            text,
            spent: Spending::default(),
            generation: record.root.generation,
            reason,
        }
    }

    /// Returns the id of the message that `parts` identify.
    pub(super) fn message_of(parts: &[&str]) -> Option<MessageId> {
        MessageId::new(format!("fold-{}", derived_id(parts, 32))).ok()
    }
}

/// A further answer, kept until the user writes again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeptReply {
    pub(super) reply: AgentReply,
    /// The address that it was sent to, if the bus accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sent_to: Option<RoutingKey>,
}

/// An entry of the list of a conversation's work.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Listed {
    #[serde(default)]
    kind: TaskKind,
}

/// The records of one agent.
#[derive(Clone)]
pub(super) struct TaskStore {
    /// By task.
    records: DocumentStore<TaskRecord>,
    /// By conversation and task.
    lists: DocumentStore<Listed>,
    /// By conversation and task, for as long as the conversations of sub-agents are kept.
    conversations: DocumentStore<Listed>,
    /// Time that conversations are kept.
    retention: Duration,
    /// By conversation, batch and number.
    folds: DocumentStore<FoldRecord>,
    /// By conversation and message.
    kept: DocumentStore<KeptReply>,
}

/// The outcome of an operation on records.
pub(super) type Stored<T> = Result<T, StoreError>;

impl TaskStore {
    pub(super) fn new(store: &Arc<dyn Store>, agent: &AgentName, retention: Duration) -> Self {
        Self {
            retention,
            records: DocumentStore::new(store.clone(), ["tasks", agent.as_str()]),
            lists: DocumentStore::new(store.clone(), ["task-lists", agent.as_str()]),
            conversations: DocumentStore::new(
                store.clone(),
                ["task-conversations", agent.as_str()],
            ),
            folds: DocumentStore::new(store.clone(), ["folds", agent.as_str()]),
            kept: DocumentStore::new(store.clone(), ["follow-ups", agent.as_str()]),
        }
    }

    /// Creates the record of new work. Returns the record that exists already, if there is one.
    pub(super) async fn create(&self, record: &TaskRecord) -> Stored<Option<TaskRecord>> {
        let keep = Some(ttl(record));
        // Listed first: a listed task without a record is skipped.
        let listed = [record.root.session.as_str(), record.task.as_str()];
        let (entry, expected) = (Listed { kind: record.kind }, Expected::Anything);
        self.lists.put(&listed, &entry, keep, expected).await.map_err(store_error)?;
        if !record.was_cancelled_before_request() {
            // The last entry of the conversation is written later.
            let ttl = Some(self.retention.saturating_add(KEEP_OPEN));
            self.conversations.put(&listed, &entry, ttl, expected).await.map_err(store_error)?;
        }
        let name = [record.task.as_str()];
        let put = self.records.put(&name, record, keep, Expected::Absent).await;
        Ok(match put.map_err(store_error)? {
            PutOutcome::Done(_) => None,
            PutOutcome::Conflict(found) => found.map(|found| found.value),
        })
    }

    pub(super) async fn get(&self, task: &TaskId) -> Stored<Option<TaskRecord>> {
        Ok(self.document(task).await?.map(|found| found.value))
    }

    async fn document(&self, task: &TaskId) -> Stored<Option<Document<TaskRecord>>> {
        self.records.get(&[task.as_str()]).await.map_err(store_error)
    }

    /// Changes a record. `change` returns `false` to leave it as it is. Returns the record afterwards.
    pub(super) async fn update(
        &self,
        task: &TaskId,
        change: impl Fn(&mut TaskRecord) -> bool,
    ) -> Stored<Option<TaskRecord>> {
        for _ in 0..ATTEMPTS {
            let Some(Document { mut value, version, .. }) = self.document(task).await? else {
                return Ok(None);
            };
            if !change(&mut value) {
                return Ok(Some(value));
            }
            let (name, expected) = ([task.as_str()], Expected::Version(version));
            let put = self.records.put(&name, &value, Some(ttl(&value)), expected).await;
            if let PutOutcome::Done(_) = put.map_err(store_error)? {
                return Ok(Some(value));
            }
        }
        let reason = "the record of the work changes too often; try again".to_owned();
        Err(StoreError::Unavailable { reason })
    }

    /// Returns the work of a conversation, the oldest first.
    pub(super) async fn of_session(&self, session: &SessionId) -> Stored<Vec<TaskRecord>> {
        let listed = self.lists.list(&[session.as_str()], MAX_LISTED).await.map_err(store_error)?;
        let mut records = Vec::with_capacity(listed.len());
        for (name, _) in listed {
            let task = name.last().and_then(|task| TaskId::new(task.as_str()).ok());
            if let Some(task) = task {
                records.extend(self.get(&task).await?);
            }
        }
        records.sort_by_key(|record| record.created);
        Ok(records)
    }

    /// Returns the work of all conversations, the oldest first; of more than 2,000 records, 2,000 of them.
    pub(super) async fn all(&self) -> Stored<Vec<TaskRecord>> {
        let none: [&str; 0] = [];
        let found = self.records.list(&none, MAX_SCANNED).await.map_err(store_error)?;
        let mut records: Vec<_> = found.into_iter().map(|(_, found)| found.value).collect();
        records.sort_by_key(|record| record.created);
        Ok(records)
    }

    /// Returns the turns on results of one model response that were decided on.
    pub(super) async fn folds(
        &self,
        session: &SessionId,
        batch: &ToolCallId,
    ) -> Stored<Vec<FoldRecord>> {
        let below = [session.as_str(), batch.as_str()];
        let found = self.folds.list(&below, MAX_LISTED).await.map_err(store_error)?;
        Ok(found.into_iter().map(|(_, found)| found.value).collect())
    }

    /// Decides on a turn as number `number` of its batch. Returns `false` if another one has the number.
    pub(super) async fn create_fold(
        &self,
        session: &SessionId,
        batch: &ToolCallId,
        number: usize,
        fold: &FoldRecord,
    ) -> Stored<bool> {
        let number = format!("{number:04}");
        let name = [session.as_str(), batch.as_str(), number.as_str()];
        let put = self.folds.put(&name, fold, Some(KEEP_OPEN), Expected::Absent).await;
        Ok(matches!(put.map_err(store_error)?, PutOutcome::Done(_)))
    }

    /// Keeps an answer until the user writes again.
    pub(super) async fn keep(&self, kept: &KeptReply) -> Stored<()> {
        let AgentReply { session_id, in_reply_to, .. } = &kept.reply;
        let name = [session_id.as_str(), in_reply_to.as_str()];
        self.kept
            .put(&name, kept, Some(KEEP_OPEN), Expected::Anything)
            .await
            .map_err(store_error)?;
        Ok(())
    }

    /// Returns the answers that are kept for the user of a conversation.
    pub(super) async fn kept(&self, session: &SessionId) -> Stored<Vec<KeptReply>> {
        let found = self.kept.list(&[session.as_str()], MAX_LISTED).await.map_err(store_error)?;
        Ok(found.into_iter().map(|(_, found)| found.value).collect())
    }

    /// Removes a kept answer.
    pub(super) async fn forget(&self, kept: &KeptReply) -> Stored<()> {
        let AgentReply { session_id, in_reply_to, .. } = &kept.reply;
        let name = [session_id.as_str(), in_reply_to.as_str()];
        self.kept.remove(&name, Expected::Anything).await.map_err(store_error)?;
        Ok(())
    }

    /// Returns work whose conversation may still be stored, at most 500; also of work without a record.
    pub(super) async fn with_conversation(
        &self,
        session: &SessionId,
    ) -> Stored<Vec<(TaskKind, TaskId)>> {
        let below = [session.as_str()];
        let mut found = self.conversations.list(&below, MAX_LISTED).await.map_err(store_error)?;
        if found.is_empty() {
            found = self.lists.list(&below, MAX_LISTED).await.map_err(store_error)?;
        }
        let tasks = found.into_iter().filter_map(|(name, listed)| {
            Some((listed.value.kind, TaskId::new(name.into_iter().next_back()?).ok()?))
        });
        Ok(tasks.collect())
    }

    /// Removes the records of work of a conversation. Its own conversation was deleted before.
    pub(super) async fn delete_task(&self, session: &SessionId, task: &TaskId) -> Stored<()> {
        let (task, listed) = (task.as_str(), [session.as_str(), task.as_str()]);
        self.records.remove(&[task], Expected::Anything).await.map_err(store_error)?;
        self.lists.remove(&listed, Expected::Anything).await.map_err(store_error)?;
        self.conversations.remove(&listed, Expected::Anything).await.map_err(store_error)?;
        Ok(())
    }

    /// Removes the answers and turns on results of a conversation.
    pub(super) async fn delete_folds(&self, session: &SessionId) -> Stored<()> {
        for kept in self.kept(session).await? {
            self.forget(&kept).await?;
        }
        for (name, _) in
            self.folds.list(&[session.as_str()], MAX_LISTED).await.map_err(store_error)?
        {
            self.folds.remove(&name, Expected::Anything).await.map_err(store_error)?;
        }
        Ok(())
    }
}

/// Returns the time that a record is kept.
fn ttl(record: &TaskRecord) -> Duration {
    if record.folded_by.is_some() { KEEP_FOLDED } else { KEEP_OPEN }
}

fn store_error(error: DocumentError) -> StoreError {
    match error {
        DocumentError::Store(error) => error,
        DocumentError::Name(error) => StoreError::Unusable { reason: error.to_string() },
    }
}
