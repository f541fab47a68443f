//! Tasks of other agents: their questions, reports and ends, which go to the agent that asked.

use std::time::Duration;

use rockbot_contracts::TaskState;
use rockbot_store::StoreError;
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use tokio::time::sleep;
use tracing::info;

use super::{
    ports::Delivered,
    questions::check_question,
    record::{TaskKind, TaskRecord, task_of},
    tasks::{Attached, Delegation},
};
use crate::conversation::unix_ms;

/// Pause before a response is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// Time after the limit of a task in which its response is still sent.
const KEEP_SENDING_MS: u64 = 3600 * 1000;

impl Delegation {
    /// Sends the end of a task, or its open question, to the agent that asked for it. Returns `false` if another
    /// process must do it.
    pub(super) async fn respond(
        &self,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<bool, StoreError> {
        let Some(peer) = record.peer.as_deref() else { return Ok(true) };
        if record.folded_by.is_some() {
            return Ok(true);
        }
        let Some(peers) = self.peers() else { return Ok(false) };
        let closing = attached.host.closing();
        loop {
            let sent = match record.state {
                TaskState::InputRequired => peers.ask(record, peer).await,
                _ => peers.respond(record, peer).await,
            };
            match sent {
                Delivered::Yes => break,
                Delivered::Gone => {
                    info!(task = %record.task, agent = %peer.agent, "the caller of a task is gone");
                    break;
                }
                Delivered::Failed | Delivered::Unconfirmed
                    if unix_ms() > record.deadline.saturating_add(KEEP_SENDING_MS) =>
                {
                    break;
                }
                Delivered::Failed | Delivered::Unconfirmed => {}
            }
            tokio::select! {
                biased;
                () = closing.cancelled() => return Ok(false),
                () = sleep(RETRY) => {}
            }
        }
        if record.state.is_terminal() {
            let passed_on = self.with_retries(|| {
                attached.store.update(&record.task, |record| {
                    let is_first = record.folded_by.is_none();
                    if is_first {
                        record.folded_by = record.message();
                    }
                    is_first
                })
            });
            passed_on.await?;
        }
        Ok(true)
    }

    /// Reports to the agent that asked for a task that it runs.
    pub(super) async fn report_start(&self, record: &TaskRecord) {
        if record.kind == TaskKind::Received
            && let (Some(peers), Some(peer)) = (self.peers(), record.peer.as_deref())
        {
            peers.report(record, peer, "").await;
        }
    }

    /// Records a question to the agent that asked for the task of the call. It is sent when the turn ends.
    pub(super) async fn request_input(
        &self,
        question: String,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        check_question(&question)?;
        let attached = self.caller(&context.agent)?;
        let Some((TaskKind::Received, task)) = task_of(&context.session_id) else {
            let reason = "only a task of another agent can ask its caller".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        };
        let asked = attached.store.update(&task, |record| {
            let Some(peer) = record.peer.as_mut() else { return false };
            peer.question = Some(question.clone());
            true
        });
        asked.await?;
        Ok(ToolResult::text(
            "The question is sent to the caller when your turn ends. End it now, with one line. The answer arrives \
             as the next message.",
        ))
    }
}
