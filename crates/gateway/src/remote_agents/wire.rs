//! Messages of a remote agent: tasks, messages and events of A2A 1.0. Unknown fields are ignored.

use std::{fmt, marker::PhantomData};

use rockbot_contracts::{
    agent_task::MAX_TASK_PARTS,
    outside_text::{plain, stripped},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Longest text of a task that is passed on, in bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Longest id, in bytes.
const MAX_ID_BYTES: usize = 255;

/// A response of JSON-RPC.
#[derive(Debug, Deserialize)]
pub(super) struct RpcResponse<T> {
    #[serde(default = "Option::default")]
    pub(super) result: Option<T>,
    #[serde(default)]
    pub(super) error: Option<RpcError>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
}

/// The result of a message, or an event of a stream. One field is set.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Event {
    pub(super) task: Option<RemoteTask>,
    pub(super) message: Option<RemoteMessage>,
    pub(super) status_update: Option<StatusUpdate>,
    pub(super) artifact_update: Option<ArtifactUpdate>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoteTask {
    pub(super) id: String,
    #[serde(default)]
    pub(super) context_id: Option<String>,
    pub(super) status: Status,
    #[serde(default, deserialize_with = "bounded_list")]
    artifacts: Vec<Artifact>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Status {
    state: String,
    #[serde(default)]
    pub(super) message: Option<RemoteMessage>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoteMessage {
    #[serde(default)]
    pub(super) message_id: Option<String>,
    #[serde(default, deserialize_with = "bounded_list")]
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Deserialize)]
struct Artifact {
    #[serde(default, deserialize_with = "bounded_list")]
    parts: Vec<Part>,
}

/// A part. Files and URLs are not read.
#[derive(Debug, Clone, Deserialize)]
struct Part {
    #[serde(default)]
    text: Option<String>,
    /// Not parsed: many small values take far more memory than their text.
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusUpdate {
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) context_id: Option<String>,
    pub(super) status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArtifactUpdate {
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) context_id: Option<String>,
}

/// The state of a remote task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemoteState {
    /// It runs, or has a state that this build does not know.
    Open,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

impl Event {
    /// Returns the ids of the task and of its context; `None` without valid ones.
    pub(super) fn ids(&self) -> Option<(String, Option<String>)> {
        let task = self.task.as_ref().map(|task| (&task.id, &task.context_id));
        let status =
            self.status_update.as_ref().map(|update| (&update.task_id, &update.context_id));
        let artifact =
            self.artifact_update.as_ref().map(|update| (&update.task_id, &update.context_id));
        let (task, context) = task.or(status).or(artifact)?;
        let context = context.clone().filter(|id| is_id(id));
        is_id(task).then(|| (task.clone(), context))
    }

    /// Returns the status that it reports.
    pub(super) fn status(&self) -> Option<&Status> {
        let task = self.task.as_ref().map(|task| &task.status);
        task.or(self.status_update.as_ref().map(|update| &update.status))
    }
}

impl RemoteTask {
    /// Returns the text of its artifacts, or of its status without any.
    pub(super) fn text(&self) -> String {
        let texts: Vec<_> = self.artifacts.iter().map(|one| joined(&one.parts)).collect();
        let text = bounded(&texts.join("\n\n"));
        if text.trim().is_empty() { self.status.text() } else { text }
    }
}

impl Status {
    pub(super) fn state(&self) -> RemoteState {
        match self.state.as_str() {
            "TASK_STATE_INPUT_REQUIRED" => RemoteState::InputRequired,
            "TASK_STATE_AUTH_REQUIRED" => RemoteState::AuthRequired,
            "TASK_STATE_COMPLETED" => RemoteState::Completed,
            "TASK_STATE_FAILED" => RemoteState::Failed,
            "TASK_STATE_CANCELED" => RemoteState::Canceled,
            "TASK_STATE_REJECTED" => RemoteState::Rejected,
            _ => RemoteState::Open,
        }
    }

    /// Returns the text of its message.
    pub(super) fn text(&self) -> String {
        self.message.as_ref().map(RemoteMessage::text).unwrap_or_default()
    }
}

impl RemoteMessage {
    pub(super) fn text(&self) -> String {
        bounded(&joined(&self.parts))
    }
}

fn joined(parts: &[Part]) -> String {
    let mut unread = 0;
    let texts = parts.iter().filter_map(|part| match (&part.text, &part.data) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(data)) => Some(data.get().to_owned()),
        (None, None) => {
            unread += 1;
            None
        }
    });
    let mut texts: Vec<_> = texts.collect();
    if unread > 0 {
        texts.push(format!("[{unread} parts are files or URLs, which are not read]"));
    }
    texts.join("\n")
}

/// Returns a text without hidden characters, at most [`MAX_TEXT_BYTES`].
fn bounded(text: &str) -> String {
    let text = stripped(text);
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

/// Returns a text as one visible line.
pub(super) fn line(text: &str, max_chars: usize) -> String {
    plain(text, max_chars).replace(['\r', '\n', '\t'], " ")
}

/// Reads the first [`MAX_TASK_PARTS`] items of a list or `null`. Further ones are skipped without being stored.
fn bounded_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct BoundedList<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedList<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while items.len() < MAX_TASK_PARTS {
                let Some(item) = list.next_element()? else { return Ok(items) };
                items.push(item);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(items)
        }
    }

    deserializer.deserialize_any(BoundedList(PhantomData))
}

/// Returns whether an id of an agent may be kept.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn task(value: Value) -> RemoteTask {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn text_is_that_of_artifacts_or_of_the_status() {
        let status = json!({"state": "TASK_STATE_COMPLETED",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Done."}]}});
        let without = task(json!({"id": "t", "status": status}));
        assert_eq!(without.text(), "Done.");
        let artifacts = json!([
            {"parts": [{"text": "a\u{1b}[31m"}, {"data": {"b": 1}}, {"url": "http://169.254.169.254/"}]},
            {"parts": [{"text": "c"}]},
        ]);
        let with = task(json!({"id": "t", "status": status, "artifacts": artifacts}));
        let expected = "a\n{\"b\":1}\n[1 parts are files or URLs, which are not read]\n\nc";
        assert_eq!(with.text(), expected);
        assert_eq!(with.status.state(), RemoteState::Completed);
    }

    #[test]
    fn long_text_is_cut() {
        let parts = json!([{"text": "ä".repeat(MAX_TEXT_BYTES)}]);
        let message: RemoteMessage = serde_json::from_value(json!({"parts": parts})).unwrap();
        assert_eq!(message.text().len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn lists_are_bounded_while_they_are_read() {
        let parts = vec!["{\"text\":\"a\"}"; 10 * MAX_TASK_PARTS].join(",");
        let artifacts = vec![format!("{{\"parts\":[{parts}]}}"); 2 * MAX_TASK_PARTS].join(",");
        let status = "{\"state\":\"TASK_STATE_COMPLETED\",\"message\":{\"parts\":null}}";
        let text = format!("{{\"id\":\"t\",\"status\":{status},\"artifacts\":[{artifacts}]}}");
        let task: RemoteTask = serde_json::from_str(&text).unwrap();
        assert_eq!(task.artifacts.len(), MAX_TASK_PARTS);
        assert!(task.artifacts.iter().all(|artifact| artifact.parts.len() == MAX_TASK_PARTS));
        assert!(serde_json::from_str::<RemoteMessage>("{\"parts\":{}}").is_err());
    }

    #[test]
    fn data_is_kept_as_its_text() {
        let text = "{\"parts\":[{\"data\":{\"b\": [1,{}]}},{\"data\":null}]}";
        let message: RemoteMessage = serde_json::from_str(text).unwrap();
        let expected = "{\"b\": [1,{}]}\n[1 parts are files or URLs, which are not read]";
        assert_eq!(message.text(), expected);
    }

    #[test]
    fn invalid_ids_are_not_used() {
        for id in ["", "a\nb", &"x".repeat(256)] {
            let status = json!({"state": "TASK_STATE_WORKING"});
            let event =
                Event { task: Some(task(json!({"id": id, "status": status}))), ..Event::default() };
            assert_eq!(event.ids(), None, "{id:?}");
        }
    }
}
