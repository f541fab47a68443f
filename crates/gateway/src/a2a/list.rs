//! Lists of tasks: filters, pages and their tokens.

use std::{cmp::Reverse, time::Duration};

use futures_util::{StreamExt, stream};
use rockbot_contracts::MessageId;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::debug;

use super::{
    A2a, body,
    caller::Caller,
    error::A2aError,
    followed_task::FollowedTask,
    operations::{self, Failure},
    state::{TaskEnd, TaskState},
    task_index::ListedTask,
    view::TaskView,
};

/// Number of tasks of a page, unless the client sets another one.
const PAGE_SIZE: usize = 50;
/// Maximum number of tasks of a page.
const MAX_PAGE_SIZE: usize = 100;
/// Size of the tasks of a page after which no further one is added, in bytes.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of tasks that are listed.
const MAX_LISTED: usize = 1000;
/// Maximum number of listed tasks without a recorded end. The agent is asked for each of them.
const MAX_UNFINISHED: usize = 256;
/// Number of tasks that are read concurrently.
const CONCURRENT_READS: usize = 8;
/// Maximum number of open lists of one identity.
const MAX_LISTS: usize = 4;
/// Time limit for a page.
const LIST_TIMEOUT: Duration = Duration::from_secs(45);
/// Longest token, in bytes.
const MAX_TOKEN_BYTES: usize = 128;
/// The states that a client may ask for. A task of an agent never has the last two.
const STATES: [&str; 9] = [
    TaskState::Submitted.name(),
    TaskState::Working.name(),
    TaskState::InputRequired.name(),
    TaskState::Completed.name(),
    TaskState::Failed.name(),
    TaskState::Canceled.name(),
    TaskState::Rejected.name(),
    "TASK_STATE_AUTH_REQUIRED",
    "TASK_STATE_UNSPECIFIED",
];

/// The parameters as sent. Unknown fields are ignored, as the protocol asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    page_size: Option<Scalar>,
    #[serde(default)]
    page_token: Option<String>,
    #[serde(default)]
    history_length: Option<Scalar>,
    #[serde(default)]
    status_timestamp_after: Option<String>,
    #[serde(default)]
    include_artifacts: Option<Scalar>,
}

/// A number or a flag. In a query both are texts, and JSON of the protocol may have numbers as texts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Number(i64),
    Flag(bool),
    Text(String),
}

impl Scalar {
    fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
            Self::Flag(_) => None,
        }
    }

    fn flag(&self) -> Option<bool> {
        match self {
            Self::Flag(flag) => Some(*flag),
            Self::Text(text) => text.parse().ok(),
            Self::Number(_) => None,
        }
    }
}

impl Wire {
    fn page_size(&self) -> Result<usize, A2aError> {
        let Some(size) = &self.page_size else { return Ok(PAGE_SIZE) };
        let size = size.number().and_then(|number| usize::try_from(number).ok());
        size.filter(|size| (1..=MAX_PAGE_SIZE).contains(size)).ok_or_else(|| {
            A2aError::invalid(format!("pageSize must be a number from 1 to {MAX_PAGE_SIZE}"))
        })
    }

    fn updated_from_ms(&self) -> Result<Option<u64>, A2aError> {
        let time = self.status_timestamp_after.as_deref().filter(|time| !time.is_empty());
        let parsed = time.map(|time| {
            milliseconds(time).ok_or_else(|| {
                A2aError::invalid(
                    "statusTimestampAfter must be a time such as 2026-01-31T10:00:00Z",
                )
            })
        });
        parsed.transpose()
    }
}

/// Returns a value unless it is empty: an empty one counts as absent in the protocol.
fn non_empty(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

/// A valid request for a page of tasks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TaskFilter {
    context: Option<String>,
    status: Option<String>,
    updated_from_ms: Option<u64>,
    page_size: usize,
    /// The last task of the page before.
    after: Option<Position>,
    with_artifacts: bool,
}

impl TaskFilter {
    /// Parses the parameters of a request.
    ///
    /// # Errors
    /// When one of them is invalid.
    pub(super) fn parse(params: Value) -> Result<Self, A2aError> {
        let params = if params.is_null() { json!({}) } else { params };
        let wire: Wire = body::params(params)?;
        let page_size = wire.page_size()?;
        let updated_from_ms = wire.updated_from_ms()?;
        let Wire { context_id, status, page_token, history_length, include_artifacts, .. } = wire;
        let status = non_empty(status);
        if status.as_ref().is_some_and(|status| !STATES.contains(&status.as_str())) {
            let states = STATES.join(", ");
            return Err(A2aError::invalid(format!("status must be one of {states}")));
        }
        // Tasks have no history, so that any valid length is kept.
        if history_length.as_ref().is_some_and(|length| length.number().is_none_or(|n| n < 0)) {
            return Err(A2aError::invalid("historyLength must be a number from 0 on"));
        }
        let after = match non_empty(page_token) {
            None => None,
            Some(token) => Some(Position::parse(&token).ok_or_else(|| {
                A2aError::invalid("pageToken is no nextPageToken of a list; start without one")
            })?),
        };
        let with_artifacts = match include_artifacts.as_ref().map(Scalar::flag) {
            None => false,
            Some(flag) => {
                flag.ok_or_else(|| A2aError::invalid("includeArtifacts must be true or false"))?
            }
        };
        let context = non_empty(context_id);
        let status = status.filter(|status| status != "TASK_STATE_UNSPECIFIED");
        Ok(Self { context, status, updated_from_ms, page_size, after, with_artifacts })
    }

    fn permits(&self, state: TaskState, updated_ms: u64) -> bool {
        self.status.as_ref().is_none_or(|status| state.name() == status)
            && self.updated_from_ms.is_none_or(|from| updated_ms >= from)
    }
}

/// Returns milliseconds since 1970. A time before that is 1970.
fn milliseconds(time: &str) -> Option<u64> {
    let time: jiff::Timestamp = time.parse().ok()?;
    Some(u64::try_from(time.as_millisecond()).unwrap_or_default())
}

/// The position of a task in a list: the last updated first, and by their ids within a millisecond, as in the store. It
/// is that of a page token, so that a page continues where the last one ended, whatever has been added since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    updated_ms: Reverse<u64>,
    id: MessageId,
}

impl Position {
    fn parse(token: &str) -> Option<Self> {
        let (updated, id) = token.split_once('.').filter(|_| token.len() <= MAX_TOKEN_BYTES)?;
        let updated_ms = u64::from_str_radix(updated, 16).ok()?;
        Some(Self { updated_ms: Reverse(updated_ms), id: MessageId::new(id).ok()? })
    }

    fn token(&self) -> String {
        format!("{:x}.{}", self.updated_ms.0, self.id)
    }
}

/// A task with its present state.
struct FoundTask {
    position: Position,
    state: TaskState,
    /// The task without its artifacts.
    summary: Value,
    /// Set if the task may have an artifact.
    has_artifact: bool,
}

impl FoundTask {
    /// Creates a task that was updated at `updated_ms` if it has not ended.
    fn new(view: &TaskView, updated_ms: u64) -> Self {
        let updated_ms = view.end().map_or(updated_ms, |TaskEnd { at_ms, .. }| at_ms);
        let state = view.state();
        Self {
            position: Position { updated_ms: Reverse(updated_ms), id: view.id().clone() },
            state,
            summary: view.summary(),
            has_artifact: state == TaskState::Completed || !state.is_terminal(),
        }
    }
}

/// Returns a page of the tasks of the caller.
///
/// # Errors
/// When the store does not respond, the agent responds too late, or the caller has too many open lists.
pub(super) async fn list(
    a2a: &A2a,
    caller: &Caller,
    filter: &TaskFilter,
) -> Result<Value, Failure> {
    let _open = operations::open(a2a, caller)?;
    let admitted = a2a.lists.admit(caller.subject(), MAX_LISTS, usize::MAX);
    let _list = admitted.map_err(|_| A2aError::too_many_lists())?;
    match timeout(LIST_TIMEOUT, page(a2a, caller, filter)).await {
        Ok(page) => Ok(page?),
        Err(_) => Err(A2aError::slow_list().into()),
    }
}

async fn page(a2a: &A2a, caller: &Caller, filter: &TaskFilter) -> Result<Value, A2aError> {
    let mut listed = a2a.records.newest(caller, MAX_LISTED).await?;
    listed.retain(|task| filter.context.as_ref().is_none_or(|context| task.context == *context));
    let mut unfinished = 0;
    let mut reads = Vec::new();
    for task in listed {
        if task.end.is_none() {
            unfinished += 1;
            if unfinished > MAX_UNFINISHED {
                continue;
            }
        }
        reads.push(read(a2a, caller, task));
    }
    let read = stream::iter(reads).buffered(CONCURRENT_READS);
    let mut read: Vec<_> = read.filter_map(std::future::ready).collect().await;
    operations::add_requests(a2a, caller, read.iter_mut().map(|(task, _)| task)).await;
    let found = read.into_iter().map(|(task, updated_ms)| FoundTask::new(&task.view, updated_ms));
    let is_permitted = |found: &FoundTask| filter.permits(found.state, found.position.updated_ms.0);
    let mut found: Vec<_> = found.filter(is_permitted).collect();
    found.sort_by(|one, other| one.position.cmp(&other.position));
    let total = found.len();
    let is_next =
        |found: &FoundTask| filter.after.as_ref().is_none_or(|after| found.position > *after);
    let mut rest = found.into_iter().filter(is_next).peekable();
    let (mut tasks, mut bytes, mut last) = (Vec::new(), 0, None);
    while tasks.len() < filter.page_size && bytes < MAX_PAGE_BYTES {
        let Some(found) = rest.next() else { break };
        last = Some(found.position.clone());
        let task = if filter.with_artifacts {
            with_artifacts(a2a, caller, filter, found).await
        } else {
            Some(found.summary)
        };
        let Some(task) = task else { continue };
        bytes += task.to_string().len();
        tasks.push(task);
    }
    let next = last.filter(|_| rest.peek().is_some());
    Ok(json!({
        "tasks": tasks,
        "nextPageToken": next.map(|last| last.token()).unwrap_or_default(),
        "pageSize": filter.page_size,
        "totalSize": total,
    }))
}

/// Returns a listed task with its present state, or the recorded one if the agent does not respond, and the time of its
/// last update without an end; `None` if the task has expired.
async fn read(a2a: &A2a, caller: &Caller, task: ListedTask) -> Option<(FollowedTask, u64)> {
    let ListedTask { id, context, updated_ms, end } = task;
    let present = if end.is_some() { None } else { present(a2a, caller, &id).await.ok()? };
    let end = end.or_else(|| present.as_ref()?.view.end());
    let recorded = TaskView::new(id, context);
    let task = match end {
        // Without the answer: the answers of all tasks would be held at once.
        Some(end) => FollowedTask::without_replies(recorded.ended(end)),
        None => present.unwrap_or_else(|| FollowedTask::without_replies(recorded)),
    };
    Some((task, updated_ms))
}

/// Returns a task with its artifacts, which the agent has; without the field if the agent does not respond. `None` if
/// the task has expired, or changed so that the filter does not permit it.
async fn with_artifacts(
    a2a: &A2a,
    caller: &Caller,
    filter: &TaskFilter,
    found: FoundTask,
) -> Option<Value> {
    let FoundTask { position: Position { updated_ms, id }, summary, has_artifact, .. } = found;
    let mut task = summary;
    if has_artifact {
        let Some(FollowedTask { view, .. }) = present(a2a, caller, &id).await.ok()? else {
            return Some(task);
        };
        let updated_ms = view.end().map_or(updated_ms.0, |TaskEnd { at_ms, .. }| at_ms);
        if !filter.permits(view.state(), updated_ms) {
            return None;
        }
        task = view.to_json();
    }
    if task.get("artifacts").is_none() {
        task["artifacts"] = json!([]);
    }
    Some(task)
}

/// Returns a task as its agent has it; `None` if the agent does not respond.
///
/// # Errors
/// When the task has expired.
async fn present(
    a2a: &A2a,
    caller: &Caller,
    id: &MessageId,
) -> Result<Option<FollowedTask>, A2aError> {
    match operations::recorded(a2a, caller, id.as_str()).await {
        Ok((task, _)) => Ok(Some(task)),
        Err(error) if error == A2aError::unknown_task() => Err(error),
        Err(error) => {
            debug!(task_id = %id, ?error, "listed task not read");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(params: Value) -> Result<TaskFilter, i64> {
        TaskFilter::parse(params).map_err(|error| error.to_json()["code"].as_i64().unwrap())
    }

    #[test]
    fn parameters_are_the_same_in_json_and_in_a_query() {
        let token = Position { updated_ms: Reverse(7), id: MessageId::new("t").unwrap() }.token();
        let in_json = json!({"contextId": "c", "status": "TASK_STATE_WORKING", "pageSize": 2,
            "pageToken": token, "historyLength": 0, "includeArtifacts": true,
            "statusTimestampAfter": "1970-01-01T00:00:01.500Z", "unknown": 1});
        let in_query = json!({"contextId": "c", "status": "TASK_STATE_WORKING", "pageSize": "2",
            "pageToken": token, "historyLength": "0", "includeArtifacts": "true",
            "statusTimestampAfter": "1970-01-01T00:00:01.5Z", "unknown": "1"});
        let filter = parse(in_json).unwrap();
        assert_eq!(filter, parse(in_query).unwrap());
        assert_eq!((filter.page_size, filter.updated_from_ms), (2, Some(1500)));
        assert_eq!(filter.after.unwrap().token(), token);
        let empty = json!({"contextId": "", "status": "TASK_STATE_UNSPECIFIED", "pageToken": ""});
        assert_eq!(parse(empty).unwrap(), parse(Value::Null).unwrap());
    }

    #[test]
    fn invalid_parameters_are_refused() {
        let long = format!("7.{}", "t".repeat(200));
        for params in [
            json!({"pageSize": 0}),
            json!({"pageSize": 101}),
            json!({"pageSize": "x"}),
            json!({"pageSize": true}),
            json!({"historyLength": -1}),
            json!({"status": "working"}),
            json!({"statusTimestampAfter": "yesterday"}),
            json!({"includeArtifacts": "yes"}),
            json!({"pageToken": "x"}),
            json!({"pageToken": "7."}),
            json!({"pageToken": "g.t"}),
            json!({"pageToken": long}),
            json!({"contextId": 1}),
        ] {
            assert_eq!(parse(params.clone()), Err(-32602), "{params}");
        }
    }
}
