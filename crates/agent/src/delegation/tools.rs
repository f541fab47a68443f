//! The tools for sub-agents.

use std::sync::Arc;

use rockbot_contracts::TaskId;
use rockbot_tools::{
    FixedTools, Guide, Tool, ToolContext, ToolFailure, ToolHints, ToolProvider, ToolResult,
    ToolSource, scope::REPORT_PROGRESS,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    frame::{first_chars, one_line, report_line},
    record::{TaskKind, TaskRecord, task_of},
    spawn::SpawnArguments,
    tasks::Delegation,
};
use crate::{
    builtin_tool::{BuiltinDefinition, BuiltinTool, NON_DESTRUCTIVE, ToolFuture, parse_arguments},
    conversation::unix_ms,
    tool_names::SPAWN_SUBAGENT,
};

/// Longest description and report in a list, in characters.
const LISTED_CHARS: usize = 100;
const LISTED_REPORT_CHARS: usize = 200;

/// Guide on sub-agents, for models.
const GUIDE: Guide = Guide {
    name: "subagents",
    summary: "Working on parts of a task at the same time: sub-agents and their results",
    markdown: include_str!("../../guides/subagents.md"),
};

/// Arguments that name a sub-agent.
#[derive(Debug, Deserialize)]
struct TaskArguments {
    task_id: String,
}

/// Arguments of `report_progress`.
#[derive(Debug, Deserialize)]
struct ReportArguments {
    message: String,
}

impl Delegation {
    /// Returns the tools for the registry of the agent. Those for other agents' turns refuse the call.
    #[must_use]
    pub fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        vec![
            BuiltinTool::create(self, spawn_definition(), spawn),
            BuiltinTool::create(self, cancel_definition(), cancel),
            BuiltinTool::create(self, list_definition(), list),
            BuiltinTool::create(self, report_definition(), report),
        ]
    }

    /// Returns the provider of the tools.
    #[must_use]
    pub fn provider(self: &Arc<Self>) -> Arc<dyn ToolProvider> {
        Arc::new(FixedTools::new(ToolSource::Subagent, self.tools()).with_guides([GUIDE]))
    }
}

fn spawn_definition() -> BuiltinDefinition {
    BuiltinDefinition {
        name: SPAWN_SUBAGENT,
        description: "Start a sub-agent that works on a part of the task in the background, with your \
                      tools. Returns at once. Its result arrives later as a message in this conversation, \
                      also after your answer. Use it for independent parts that take several steps each.",
        arguments: json!({
            "description": {"type": "string", "minLength": 1, "maxLength": 16384,
                "description": "The part of the task, with the expected result."},
            "context": {"type": "string", "maxLength": 65536,
                "description": "Facts that the sub-agent needs. It does not see this conversation."},
            "timeout_minutes": {"type": "integer", "minimum": 1, "maximum": 120, "default": 10,
                "description": "Time limit."},
        }),
        required: &["description"],
        source: ToolSource::Subagent,
        hints: NON_DESTRUCTIVE,
    }
}

fn cancel_definition() -> BuiltinDefinition {
    BuiltinDefinition {
        name: "cancel_subagent",
        description: "Cancel a running sub-agent. What its tools did is not undone.",
        arguments: json!({"task_id": {"type": "string", "minLength": 1, "maxLength": 64}}),
        required: &["task_id"],
        source: ToolSource::Subagent,
        hints: NON_DESTRUCTIVE,
    }
}

fn list_definition() -> BuiltinDefinition {
    BuiltinDefinition {
        name: "list_subagents",
        description: "List the running sub-agents of this conversation, with their last reports.",
        arguments: json!({}),
        required: &[],
        source: ToolSource::Subagent,
        hints: ToolHints::READ_ONLY,
    }
}

fn report_definition() -> BuiltinDefinition {
    BuiltinDefinition {
        name: REPORT_PROGRESS,
        description: "Report the progress of your task to the user, in one line. Use it between long \
                      steps; the result is your last answer.",
        arguments: json!({"message": {"type": "string", "minLength": 1, "maxLength": 2000}}),
        required: &["message"],
        source: ToolSource::Internal,
        hints: NON_DESTRUCTIVE,
    }
}

fn spawn<'a>(state: &'a Delegation, arguments: Value, context: &'a ToolContext) -> ToolFuture<'a> {
    Box::pin(async move {
        let arguments: SpawnArguments = parse_arguments(arguments)?;
        state.shared()?.spawn_subagent(arguments, context).await
    })
}

fn cancel<'a>(state: &'a Delegation, arguments: Value, context: &'a ToolContext) -> ToolFuture<'a> {
    Box::pin(async move {
        let TaskArguments { task_id } = parse_arguments(arguments)?;
        let attached = state.caller(&context.agent)?;
        let unknown = format!("No active subagent found with task_id '{}'.", one_line(&task_id));
        let Ok(task) = TaskId::new(task_id) else { return Ok(ToolResult::error(unknown)) };
        let record = attached.store.get(&task).await?;
        // One of another conversation is unknown here.
        let is_own = |record: TaskRecord| {
            record.kind == TaskKind::Subagent && record.root.session == context.session_id
        };
        if !record.is_some_and(is_own) {
            return Ok(ToolResult::error(unknown));
        }
        Ok(match state.shared()?.cancel_task(&task).await? {
            Some(spent) => ToolResult {
                child_spending: Some(Box::new(spent)),
                ..ToolResult::text(format!("Subagent {task} cancelled."))
            },
            None => ToolResult::error(unknown),
        })
    })
}

fn list<'a>(state: &'a Delegation, _: Value, context: &'a ToolContext) -> ToolFuture<'a> {
    Box::pin(async move {
        let attached = state.caller(&context.agent)?;
        let records = attached.store.of_session(&context.session_id).await?;
        let open: Vec<_> = records
            .iter()
            .filter(|one| one.kind == TaskKind::Subagent && !one.state.is_terminal())
            .collect();
        if open.is_empty() {
            return Ok(ToolResult::text("No active subagents."));
        }
        let now = unix_ms();
        let mut text = format!("Active subagents ({}):", open.len());
        for record in open {
            let elapsed = now.saturating_sub(record.created) / 1000;
            let description = first_chars(&record.description, LISTED_CHARS);
            let task = &record.task;
            text.push_str(&format!(
                "\n- task_id={task}, elapsed={elapsed}s, description={description}"
            ));
            if !record.last_report.is_empty() {
                let report = first_chars(&one_line(&record.last_report), LISTED_REPORT_CHARS);
                text.push_str(&format!(", last report: {report}"));
            }
        }
        Ok(ToolResult::text(text))
    })
}

fn report<'a>(state: &'a Delegation, arguments: Value, context: &'a ToolContext) -> ToolFuture<'a> {
    Box::pin(async move {
        let ReportArguments { message } = parse_arguments(arguments)?;
        state.caller(&context.agent)?;
        let Some((_, task)) = task_of(&context.session_id) else {
            let reason = "only a sub-agent can report progress".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        };
        state.shared()?.report(task, report_line(&message));
        Ok(ToolResult::text("Progress reported."))
    })
}
