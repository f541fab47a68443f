//! Progress, ends and further answers of work that the agent delegated.

use std::{collections::HashSet, future::pending, io::Write, time::Duration};

use rockbot_agent::{AgentClient, FollowUps};
use rockbot_contracts::{AgentReply, ReplyBody, SessionId, TaskId, TaskState, ToolCallId};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{failure::Failure, render};

/// Interval at which an agent that sends no reply is asked whether work runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Names of the tools that delegate work.
const HAND_OVER: [&str; 2] = ["spawn_subagent", INVOKE_AGENT];
const INVOKE_AGENT: &str = "invoke_agent";
/// Longest preview of a result, in characters.
const PREVIEW_CHARS: usize = 120;

/// The replies of one conversation that answer no message.
pub(crate) struct Background {
    replies: Option<FollowUps>,
    session: SessionId,
    results: ExpectedResults,
}

impl Background {
    pub(crate) fn new(client: &AgentClient, session: SessionId) -> Self {
        Self { replies: client.follow_ups(), session, results: ExpectedResults::default() }
    }

    /// Continues with another conversation.
    pub(crate) fn restart(&mut self, session: SessionId) {
        self.session = session;
        self.results = ExpectedResults::default();
    }

    /// Waits for the next reply. Never returns when the client is closed.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> AgentReply {
        loop {
            let reply = match &mut self.replies {
                Some(replies) => replies.next().await,
                None => None,
            };
            match reply {
                Some(reply) if reply.session_id == self.session => {
                    self.results.observe(&reply.body);
                    return reply;
                }
                Some(_) => {}
                None => pending().await,
            }
        }
    }

    /// Observes a reply to a message.
    pub(crate) fn observe(&mut self, body: &ReplyBody) {
        self.results.observe(body);
    }

    /// Expects the results of work that was delegated in another process.
    pub(crate) const fn expect(&mut self, count: usize) {
        self.results.started += count;
    }

    /// Returns `true` while results are expected.
    pub(crate) fn is_open(&self) -> bool {
        self.results.are_open()
    }

    /// Returns whether a turn of this process handed work over. Turns that read its results may have handed
    /// over more, which this process does not see.
    pub(crate) const fn has_started(&self) -> bool {
        self.results.started > 0
    }
}

/// Counts delegated work whose result was not passed on yet.
#[derive(Default)]
struct ExpectedResults {
    /// Running calls that answer the question of an agent, and so delegate nothing new.
    answering: HashSet<ToolCallId>,
    /// Work that was delegated by turns whose replies this process receives.
    started: usize,
    /// Work that ended, including that of other turns.
    ended: HashSet<TaskId>,
    /// Work whose result was passed on, or that was cancelled.
    passed_on: HashSet<TaskId>,
}

impl ExpectedResults {
    fn observe(&mut self, body: &ReplyBody) {
        match body {
            ReplyBody::ToolStarted { tool_call_id, tool_name, arguments, .. }
                if tool_name == INVOKE_AGENT && answers_question(arguments) =>
            {
                self.answering.insert(tool_call_id.clone());
            }
            ReplyBody::ToolFinished { tool_call_id, tool_name, error, .. } => {
                let is_answer = self.answering.remove(tool_call_id);
                if HAND_OVER.contains(&tool_name.as_str()) && error.is_none() && !is_answer {
                    self.started += 1;
                }
            }
            ReplyBody::FollowUp { task_ids, .. } => self.passed_on.extend(task_ids.iter().cloned()),
            ReplyBody::DelegationEnded { task_id, state: TaskState::Cancelled, .. } => {
                self.passed_on.insert(task_id.clone());
            }
            ReplyBody::DelegationEnded { task_id, .. } => {
                self.ended.insert(task_id.clone());
            }
            _ => {}
        }
    }

    fn are_open(&self) -> bool {
        self.passed_on.len() < self.started || !self.ended.is_subset(&self.passed_on)
    }
}

/// Returns whether a call of `invoke_agent` answers a question. Truncated arguments name the task if it
/// comes before the message.
fn answers_question(arguments: &str) -> bool {
    match serde_json::from_str::<Value>(arguments) {
        Ok(arguments) => arguments.get("task_id").is_some_and(Value::is_string),
        Err(_) => arguments.contains("\"task_id\""),
    }
}

/// Waits until no work has run for `limit`. `is_running` returns whether work runs, and `false` if that is
/// unknown.
pub(crate) async fn idle_for(limit: Duration, is_running: impl AsyncFn() -> bool) {
    let mut idle_since = Instant::now();
    while idle_since.elapsed() < limit {
        sleep(CHECK_INTERVAL.min(limit)).await;
        if is_running().await {
            idle_since = Instant::now();
        }
    }
}

/// Prints a reply. In a terminal that edits a line, line breaks need carriage returns.
pub(crate) fn print(body: &ReplyBody, json: bool) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    if json {
        writeln!(stdout, "{}", render::json_line(&json!(body)))?;
        return Ok(());
    }
    let text = match body {
        ReplyBody::DelegationProgressed { task_id, text } => {
            render::dim(&format!("  [{}] {}", named(task_id), render::short_line(text, 500)))
        }
        ReplyBody::DelegationEnded { task_id, state, preview } => {
            let preview = render::short_line(preview, PREVIEW_CHARS);
            render::dim(&format!("  [{}] {}: {preview}", named(task_id), state.as_str()))
        }
        ReplyBody::FollowUp { text, .. } => render::clean(text),
        _ => return Ok(()),
    };
    write!(stdout, "\r{}\r\n", text.replace('\n', "\r\n"))?;
    stdout.flush()?;
    Ok(())
}

fn named(task: &TaskId) -> String {
    format!("task {}", render::short_line(task.as_str(), 32))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rockbot_contracts::{Executed, user::TurnOutcome};

    use super::*;

    fn call(results: &mut ExpectedResults, id: &str, arguments: &Value) {
        let tool_call_id = ToolCallId::new(id).unwrap();
        results.observe(&ReplyBody::ToolStarted {
            tool_call_id: tool_call_id.clone(),
            tool_name: INVOKE_AGENT.to_owned(),
            arguments: arguments.to_string(),
            arguments_left_out: 0,
        });
        results.observe(&ReplyBody::ToolFinished {
            tool_call_id,
            tool_name: INVOKE_AGENT.to_owned(),
            ran_on: None,
            elapsed_us: 0,
            bytes: 0,
            error: None,
            executed: Executed::Yes,
            child_loop_id: None,
            stages: None,
            result: None,
            result_left_out: 0,
        });
    }

    fn follow_up(results: &mut ExpectedResults, tasks: &[&str]) {
        results.observe(&ReplyBody::FollowUp {
            task_ids: tasks.iter().map(|id| TaskId::new(*id).unwrap()).collect(),
            text: String::new(),
            outcome: TurnOutcome::Completed,
            usage: None,
        });
    }

    #[test]
    fn answered_question_delegates_nothing_new() {
        let mut results = ExpectedResults::default();
        call(&mut results, "call-1", &json!({"agent": "writer", "message": "Write."}));
        assert!(results.are_open());
        follow_up(&mut results, &[]);
        assert!(results.are_open(), "a question does not end the task");
        let answer = json!({"agent": "writer", "task_id": "task-1", "message": "Yes."});
        call(&mut results, "call-2", &answer);
        follow_up(&mut results, &["task-1"]);
        assert!(!results.are_open());
    }

    #[test]
    fn work_of_follow_up_turns_is_open_until_its_result() {
        let mut results = ExpectedResults::default();
        let task_id = TaskId::new("task-2").unwrap();
        let state = TaskState::Completed;
        results.observe(&ReplyBody::DelegationEnded { task_id, state, preview: String::new() });
        assert!(results.are_open());
        follow_up(&mut results, &["task-2"]);
        assert!(!results.are_open());
    }

    #[tokio::test(start_paused = true)]
    async fn running_work_extends_the_wait_for_its_result() {
        const LIMIT: Duration = Duration::from_secs(660);
        let started_at = Instant::now();
        idle_for(LIMIT, async || false).await;
        assert_eq!(started_at.elapsed(), LIMIT);
        let (started_at, checks) = (Instant::now(), Cell::new(0));
        idle_for(LIMIT, async || {
            checks.set(checks.get() + 1);
            checks.get() <= 100
        })
        .await;
        assert_eq!(started_at.elapsed(), 100 * CHECK_INTERVAL + LIMIT);
    }
}
