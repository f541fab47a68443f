//! The start of a sub-agent.

use std::sync::Arc;

use metrics::counter;
use rockbot_contracts::{SessionId, TaskId};
use rockbot_tools::{Budget, ToolContext, ToolFailure, ToolResult};
use serde::Deserialize;

use super::{
    delegating_turn::DelegatingTurn,
    frame,
    record::{NewWork, TaskKind, TaskRecord},
    tasks::{Attached, Delegation},
};

/// Instructions of a sub-agent about its role.
const ROLE: &str = include_str!("../../guides/subagent-role.md");
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;
const MAX_CONTEXT_BYTES: usize = 64 * 1024;

/// Arguments of `spawn_subagent`.
#[derive(Debug, Deserialize)]
pub(super) struct SpawnArguments {
    description: String,
    #[serde(default)]
    context: String,
    #[serde(default = "default_timeout")]
    timeout_minutes: u64,
}

const fn default_timeout() -> u64 {
    10
}

impl SpawnArguments {
    fn validate(&self) -> Result<(), ToolFailure> {
        let bytes = self.description.len();
        if self.description.trim().is_empty() || bytes > MAX_DESCRIPTION_BYTES {
            return Err(ToolFailure::invalid("description must have 1 byte to 16 KiB"));
        }
        if self.context.len() > MAX_CONTEXT_BYTES {
            return Err(ToolFailure::invalid(
                "context must have at most 64 KiB; save more to working memory and name the key",
            ));
        }
        if !(1..=120).contains(&self.timeout_minutes) {
            return Err(ToolFailure::invalid("timeout_minutes must be 1 to 120"));
        }
        Ok(())
    }

    /// Returns the message to the sub-agent.
    fn text(&self, task: &TaskId, turn: &DelegatingTurn) -> String {
        let mut text = ROLE.replace("{task}", task.as_str());
        text.push_str(&format!("\n# Your task\n\n{}\n", self.description));
        if !self.context.is_empty() {
            text.push_str(&format!("\n# Context\n\n{}\n", self.context));
        }
        text.push_str(&format!(
            "\n# What the user wrote\n\nThis is background. Your task is above.\n\n{}\n",
            turn.user_text
        ));
        text
    }
}

impl Delegation {
    /// Starts a sub-agent, unless the call did so before.
    pub(super) async fn spawn_subagent(
        self: &Arc<Self>,
        arguments: SpawnArguments,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        arguments.validate()?;
        let attached = self.caller(&context.agent)?;
        let Some(turn) = self.turn(&context.session_id) else {
            let reason = "only a turn of a conversation can start sub-agents".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        };
        let Some(task) = TaskRecord::id_of(&context.tool_call_id) else {
            return Err(ToolFailure::failed("no id for the sub-agent; call again"));
        };
        // The count and the new record must not be separated by another call.
        let one = self.lock_handovers(&context.session_id).await;
        if let Some(known) = attached.store.get(&task).await? {
            if known.call != context.tool_call_id {
                return Err(ToolFailure::failed("the id of the sub-agent is taken; call again"));
            }
            self.start(TaskKind::Subagent, task.clone(), None);
            return Ok(spawned(&task));
        }
        let kind = TaskKind::Subagent;
        let open = self.open_tasks(attached, &context.session_id, kind).await?;
        let max = self.options.max_subagents;
        if open >= max {
            return Ok(ToolResult::error(format!(
                "Error: maximum concurrent subagents ({max}) already running. Use list_subagents to see \
                 active tasks or cancel_subagent to free a slot."
            )));
        }
        let budget = context.budget.clone().unwrap_or_else(Budget::unlimited);
        let grant = budget.grant_detached(max - open + 1)?;
        let work = NewWork {
            kind,
            description: frame::description(&arguments.description),
            text: arguments.text(&task, &turn),
            timeout_minutes: arguments.timeout_minutes,
            task,
        };
        let record = TaskRecord::from_call(work, context, turn, &grant);
        if let Some(memory) = &attached.memory {
            memory.open_whiteboard(&attached.name, &record.task, &record.root.session).await?;
        }
        self.record(attached, &record).await?;
        drop(one);
        counter!("rockbot_agent_delegations_started_total", "kind" => "subagent").increment(1);
        self.start(kind, record.task.clone(), Some(grant));
        if context.cancellation.is_cancelled() {
            // The cancel of all work may have been before the record.
            let _ = self.cancel_task(&record.task).await?;
        }
        Ok(spawned(&record.task))
    }

    /// Records the work, and marks its conversation for processes that continue it.
    pub(super) async fn record(
        &self,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<(), ToolFailure> {
        let Attached { conversations, store, .. } = attached;
        if store.create(record).await?.is_some() {
            return Ok(());
        }
        let (Some(session), Some(message)) = (record.session(), record.message()) else {
            return Err(ToolFailure::failed("no conversation for the work; call again"));
        };
        if conversations.is_durable()
            && let Err(error) = conversations.mark(&session, &message).await
        {
            return Err(ToolFailure::failed_with_source(
                "the work was recorded but could not be started; cancel it, or wait",
                error,
            ));
        }
        Ok(())
    }

    /// Returns the number of open tasks of a kind that a conversation delegated.
    pub(super) async fn open_tasks(
        &self,
        attached: &Attached,
        session: &SessionId,
        kind: TaskKind,
    ) -> Result<u64, ToolFailure> {
        let records = attached.store.of_session(session).await?;
        let is_open = |one: &&TaskRecord| one.kind == kind && !one.state.is_terminal();
        Ok(records.iter().filter(is_open).count() as u64)
    }
}

fn spawned(task: &TaskId) -> ToolResult {
    ToolResult::text(format!(
        "Subagent spawned with task_id: {task}. It will report progress and send a final result when \
         complete."
    ))
}
