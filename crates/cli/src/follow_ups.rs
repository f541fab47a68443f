//! Progress, ends and further answers of work that the agent handed over.

use std::{collections::HashSet, future::pending, io::Write};

use rockbot_agent::{AgentClient, FollowUps};
use rockbot_contracts::{AgentReply, ReplyBody, SessionId, TaskId, TaskState};
use serde_json::json;

use crate::{failure::Failure, render};

/// Name of the tool that hands work over.
const SPAWN: &str = "spawn_subagent";
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
            && tool_name == SPAWN
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
    format!("sub-agent {}", render::short_line(task.as_str(), 32))
}
