//! Progress, ends and further answers of work that the agent handed over.

use std::{collections::HashSet, future::pending, io::Write, time::Duration};

use rockbot_agent::{AgentClient, FollowUps};
use rockbot_contracts::{AgentReply, ReplyBody, SessionId, TaskId, TaskState};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{failure::Failure, render};

/// Interval at which an agent that sends no reply is asked whether work runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Names of the tools that hand work over.
const HAND_OVER: [&str; 2] = ["spawn_subagent", "invoke_agent"];
/// Longest preview of a result, in characters.
const PREVIEW_CHARS: usize = 120;

/// The replies of one conversation that answer no message.
pub(crate) struct Background {
    replies: Option<FollowUps>,
    session: SessionId,
    /// Work that was handed over in this process.
    started: usize,
    /// Work whose result was passed on, or that was cancelled.
    ended: HashSet<TaskId>,
}

impl Background {
    pub(crate) fn new(client: &AgentClient, session: SessionId) -> Self {
        Self { replies: client.follow_ups(), session, started: 0, ended: HashSet::new() }
    }

    /// Continues with another conversation.
    pub(crate) fn restart(&mut self, session: SessionId) {
        self.session = session;
        self.started = 0;
        self.ended.clear();
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
                    self.count_end(&reply.body);
                    return reply;
                }
                Some(_) => {}
                None => pending().await,
            }
        }
    }

    /// Notes work that a turn handed over.
    pub(crate) fn count_start(&mut self, body: &ReplyBody) {
        if let ReplyBody::ToolFinished { tool_name, error: None, .. } = body
            && HAND_OVER.contains(&tool_name.as_str())
        {
            self.started += 1;
        }
    }

    /// Expects the results of work that was handed over in another process.
    pub(crate) const fn expect(&mut self, count: usize) {
        self.started += count;
    }

    fn count_end(&mut self, body: &ReplyBody) {
        match body {
            ReplyBody::FollowUp { task_ids, .. } => self.ended.extend(task_ids.iter().cloned()),
            ReplyBody::DelegationEnded { task_id, state: TaskState::Cancelled, .. } => {
                self.ended.insert(task_id.clone());
            }
            _ => {}
        }
    }

    /// Returns `true` while results are expected.
    pub(crate) fn is_open(&self) -> bool {
        self.ended.len() < self.started
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

    use super::*;

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
