//! The recorded tasks of a remote agent.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{
    AgentName, AgentTaskErrorCode, AgentTaskRequest, Envelope, Executed, RoutingKey, TaskId,
};
use rockbot_store::{DocumentError, DocumentStore, Expected, PutOutcome, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::hex::hex;

/// Time for which a task and its messages are recognized.
const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Length of ids and digests in hexadecimal digits.
const ID_CHARS: usize = 32;
/// Maximum number of open tasks that a process continues.
const MAX_OPEN: usize = 1024;

/// Progress of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Its current message was not sent.
    Submitted,
    /// Its current message is being sent: the agent may have it.
    Sending,
    /// The agent works on it.
    Sent,
    /// The agent asked a question.
    InputRequired,
    /// It has ended.
    Ended,
}

/// A task for the remote agent. Changed only by conditional writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) caller: AgentName,
    /// Id of the task at its caller.
    pub(super) task: TaskId,
    pub(super) reply_to: RoutingKey,
    pub(super) skill: String,
    /// The current message; empty after the end.
    pub(super) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
    /// Digests of the messages of the caller.
    pub(super) received: Vec<String>,
    pub(super) deadline_ms: u64,
    pub(super) phase: Phase,
    /// Number of the current message, from 0.
    #[serde(default)]
    pub(super) round: u32,
    /// Failed attempts to send the current message.
    #[serde(default)]
    pub(super) attempts: u32,
    /// An earlier attempt to send the current message may have reached the agent.
    #[serde(default)]
    pub(super) is_uncertain: bool,
    #[serde(default)]
    pub(super) is_cancelled: bool,
    /// Id of the task at the agent, and of its context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) remote_task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<String>,
    /// The open question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<String>,
    /// Id of the message with the last question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) question_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<End>,
    /// Trace of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct End {
    /// Absent for a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<AgentTaskErrorCode>,
    /// The result, or the reason.
    pub(super) text: String,
    pub(super) executed: Executed,
}

impl End {
    pub(super) fn completed(text: String) -> Self {
        Self { code: None, text, executed: Executed::Yes }
    }

    pub(super) fn failed(executed: Executed, text: impl Into<String>) -> Self {
        Self::with_code(AgentTaskErrorCode::ExecutionFailed, executed, text)
    }

    pub(super) fn with_code(
        code: AgentTaskErrorCode,
        executed: Executed,
        text: impl Into<String>,
    ) -> Self {
        Self { code: Some(code), text: text.into(), executed }
    }
}

impl Record {
    /// Creates the record of a submitted task without a message and time.
    pub(super) fn new(caller: AgentName, task: TaskId, reply_to: RoutingKey) -> Self {
        Self {
            caller,
            task,
            reply_to,
            skill: String::new(),
            text: String::new(),
            data: None,
            received: Vec::new(),
            deadline_ms: 0,
            phase: Phase::Submitted,
            round: 0,
            attempts: 0,
            is_uncertain: false,
            is_cancelled: false,
            remote_task: None,
            context: None,
            question: None,
            question_id: None,
            end: None,
            traceparent: None,
        }
    }

    /// Returns `true` for the record of a cancel that arrived before its request.
    pub(super) fn was_cancelled_before_request(&self) -> bool {
        self.is_cancelled && self.received.is_empty()
    }

    /// Returns the id of a task: tasks of two callers are never the same.
    pub(super) fn id_of(caller: &AgentName, task: &TaskId) -> String {
        digest(&["task", caller.as_str(), task.as_str()])
    }

    /// Returns the digest of a message of a caller: the same for each delivery.
    pub(super) fn digest_of(request: &AgentTaskRequest, envelope: &Envelope) -> String {
        let id = request.message.message_id.as_ref().unwrap_or(&envelope.message_id);
        let parts = serde_json::to_string(&request.message.parts).unwrap_or_default();
        digest(&["message", id.as_str(), &request.skill, &parts])
    }

    pub(super) fn id(&self) -> String {
        Self::id_of(&self.caller, &self.task)
    }

    /// Returns whether the agent may have run a part of the task.
    pub(super) fn executed(&self) -> Executed {
        match self.phase {
            Phase::Submitted if self.remote_task.is_none() && !self.is_uncertain => Executed::No,
            _ => Executed::Unknown,
        }
    }

    /// Returns the current message for the agent `name`. Its id depends on the task and the round alone, so that the
    /// agent can recognize it when it arrives again.
    pub(super) fn message(&self, name: &AgentName) -> Value {
        let round = self.round.to_string();
        let id = digest(&[
            "a2a-message",
            name.as_str(),
            self.caller.as_str(),
            self.task.as_str(),
            &round,
        ]);
        let data = self.data.as_ref().map(|data| json!({"data": data}));
        let parts: Vec<_> = std::iter::once(json!({"text": self.text})).chain(data).collect();
        let mut message = json!({
            "messageId": id,
            "role": "ROLE_USER",
            "parts": parts,
            "metadata": {"skillId": self.skill},
        });
        if let Some(task) = &self.remote_task {
            message["taskId"] = json!(task);
        }
        if let Some(context) = &self.context {
            message["contextId"] = json!(context);
        }
        message
    }
}

/// The tasks of one remote agent in the gateway's store.
#[derive(Debug)]
pub(super) struct Records {
    tasks: DocumentStore<Record>,
    /// Names of the tasks that have not ended, or whose end was not sent.
    open: DocumentStore<()>,
}

impl Records {
    pub(super) fn new(store: Arc<dyn Store>, agent: &AgentName) -> Self {
        let prefix = |kind| ["gateway", kind, agent.as_str()];
        let tasks = DocumentStore::new(store.clone(), prefix("remote-tasks"));
        Self { tasks, open: DocumentStore::new(store, prefix("open-remote-tasks")) }
    }

    pub(super) async fn get(&self, id: &str) -> Result<Option<Record>, DocumentError> {
        Ok(self.tasks.get(&[id]).await?.map(|found| found.value))
    }

    /// Records a new task. Returns the known one, if there is one.
    pub(super) async fn create(&self, record: &Record) -> Result<Option<Record>, DocumentError> {
        let id = record.id();
        if record.end.is_none() {
            // Before the task, so that a process continues it after a crash between the two.
            self.mark(&id).await?;
        }
        let put = self.tasks.put(&[&id], record, Some(TTL), Expected::Absent).await?;
        Ok(match put {
            PutOutcome::Done(_) => None,
            PutOutcome::Conflict(known) => known.map(|known| known.value),
        })
    }

    /// Changes a task, unless `change` returns `false`. Returns the changed task; `None` if nothing was changed.
    pub(super) async fn update(
        &self,
        id: &str,
        change: impl Fn(&mut Record) -> bool,
    ) -> Result<Option<Record>, DocumentError> {
        loop {
            let Some(found) = self.tasks.get(&[id]).await? else { return Ok(None) };
            let mut record = found.value;
            if !change(&mut record) {
                return Ok(None);
            }
            let expected = Expected::Version(found.version);
            let put = self.tasks.put(&[id], &record, Some(TTL), expected).await?;
            if matches!(put, PutOutcome::Done(_)) {
                return Ok(Some(record));
            }
        }
    }

    /// Marks a task as one to be continued.
    pub(super) async fn mark(&self, id: &str) -> Result<(), DocumentError> {
        self.open.put(&[id], &(), Some(TTL), Expected::Anything).await?;
        Ok(())
    }

    /// Removes the mark of a task whose end was sent.
    pub(super) async fn close(&self, id: &str) -> Result<(), DocumentError> {
        self.open.remove(&[id], Expected::Anything).await?;
        Ok(())
    }

    /// Returns the tasks to be continued.
    pub(super) async fn open(&self) -> Result<Vec<String>, DocumentError> {
        let none: [&str; 0] = [];
        let found = self.open.list(&none, MAX_OPEN).await?;
        Ok(found.into_iter().filter_map(|(name, _)| name.into_iter().next()).collect())
    }
}

/// Returns an id that depends on the texts and on their order.
pub(super) fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    hex(&hash.finalize())[..ID_CHARS].to_owned()
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::topology::agent_response;
    use rockbot_store::{Clock, MemoryStore};

    use super::*;

    fn name(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    fn record(caller: &str) -> Record {
        let task = TaskId::new("t").unwrap();
        Record {
            skill: "find".to_owned(),
            text: "Find it.".to_owned(),
            data: Some(json!({"a": 1})),
            ..Record::new(name(caller), task, agent_response(&name(caller)))
        }
    }

    #[test]
    fn message_id_depends_on_caller_task_and_round() {
        let id = |record: &Record| record.message(&name("partner"))["messageId"].clone();
        let first = record("a");
        assert_eq!(id(&first), id(&Record { attempts: 3, ..first.clone() }));
        assert_ne!(id(&first), id(&record("b")));
        assert_ne!(id(&first), id(&Record { round: 1, ..first.clone() }));
        assert_ne!(id(&first), first.message(&name("other"))["messageId"]);
    }

    #[test]
    fn answer_continues_the_task_of_the_agent() {
        let asked = Record {
            remote_task: Some("r".to_owned()),
            context: Some("c".to_owned()),
            ..record("a")
        };
        let message = asked.message(&name("partner"));
        assert_eq!((&message["taskId"], &message["contextId"]), (&json!("r"), &json!("c")));
        assert_eq!(message["parts"], json!([{"text": "Find it."}, {"data": {"a": 1}}]));
        assert_eq!(asked.executed(), Executed::Unknown);
        assert_eq!(record("a").executed(), Executed::No);
        let repeated = Record { is_uncertain: true, ..record("a") };
        assert_eq!(repeated.executed(), Executed::Unknown);
    }

    #[tokio::test]
    async fn task_is_open_until_it_is_closed() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
        let records = Records::new(store, &name("partner"));
        let record = record("a");
        assert_eq!(records.create(&record).await.unwrap(), None);
        assert_eq!(records.create(&record).await.unwrap(), Some(record.clone()));
        assert_eq!(records.open().await.unwrap(), [record.id()]);
        let id = record.id();
        let changed = records.update(&id, |record| {
            record.phase = Phase::Ended;
            true
        });
        assert_eq!(changed.await.unwrap().unwrap().phase, Phase::Ended);
        records.close(&id).await.unwrap();
        assert!(records.open().await.unwrap().is_empty());
    }
}
