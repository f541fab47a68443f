//! The tools `schedule_task`, `list_scheduled_tasks` and `cancel_scheduled_task`.

use std::sync::Arc;

use rockbot_contracts::{
    ToolHints, ToolSource,
    schedule::{MAX_CRON_BYTES, MAX_TASK_DESCRIPTION_BYTES, MAX_TASK_NAME_CHARS, NewTask},
};
use rockbot_tools::{FixedTools, Guide, Tool, ToolContext, ToolFailure, ToolProvider, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::debug;

use super::{
    handle::{Creator, Schedule, ScheduleError},
    table,
    task_store::EditError,
};
use crate::builtin_tool::{
    BuiltinDefinition, BuiltinTool, DESTRUCTIVE, NON_DESTRUCTIVE, parse_arguments,
};

/// Guide to the tools, for models.
const GUIDE: Guide = Guide {
    name: "scheduling",
    summary: "Tasks at a time or at intervals: cron expressions, time zones, results",
    markdown: include_str!("../../guides/scheduling.md"),
};

#[derive(Debug, Deserialize)]
struct TaskArguments {
    name: String,
    cron: String,
    description: String,
    #[serde(default)]
    run_once: Option<bool>,
    #[serde(default)]
    timezone: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NameArguments {
    name: String,
}

impl Schedule {
    /// Returns the provider of the tools.
    #[must_use]
    pub fn provider(self: &Arc<Self>) -> Arc<dyn ToolProvider> {
        Arc::new(FixedTools::new(ToolSource::Scheduling, self.tools()).with_guides([GUIDE]))
    }

    /// Returns the tools. Only the agent of the schedule may call them.
    #[must_use]
    pub fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let name = json!({"type": "string", "minLength": 1, "maxLength": MAX_TASK_NAME_CHARS,
            "description": "Letters, digits, spaces, - and _."});
        let add = BuiltinDefinition {
            name: "schedule_task",
            description: "Run a task later or regularly: at each fire of the cron expression, a new turn \
                          without the user gets the description. A task with the same name is replaced.",
            arguments: json!({
                "name": name,
                "cron": {"type": "string", "minLength": 1, "maxLength": MAX_CRON_BYTES,
                    "description": "minute hour day-of-month month day-of-week, or 6 fields with \
                        seconds first. For a single time, name all of minute, hour, day and month."},
                "description": {"type": "string", "minLength": 1,
                    "maxLength": MAX_TASK_DESCRIPTION_BYTES,
                    "description": "Complete instructions: the turn knows nothing of this conversation."},
                "run_once": {"type": "boolean",
                    "description": "Remove the task after its first fire. Default false."},
                "timezone": {"type": "string", "minLength": 1, "maxLength": 64,
                    "description": "IANA time zone of the cron expression. Default: the user's."}}),
            required: &["name", "cron", "description"],
            source: ToolSource::Scheduling,
            hints: NON_DESTRUCTIVE,
        };
        let list = BuiltinDefinition {
            name: "list_scheduled_tasks",
            description: "List the scheduled tasks with their next fires and last results, and the \
                          current time.",
            arguments: json!({}),
            required: &[],
            source: ToolSource::Scheduling,
            hints: ToolHints::READ_ONLY,
        };
        let cancel = BuiltinDefinition {
            name: "cancel_scheduled_task",
            description: "Remove a scheduled task.",
            arguments: json!({"name": name}),
            required: &["name"],
            source: ToolSource::Scheduling,
            hints: DESTRUCTIVE,
        };
        vec![
            BuiltinTool::create(self, add, |schedule, arguments, context| {
                Box::pin(schedule.call_add(arguments, context))
            }),
            BuiltinTool::create(self, list, |schedule, _, context| {
                Box::pin(schedule.call_list(context))
            }),
            BuiltinTool::create(self, cancel, |schedule, arguments, context| {
                Box::pin(schedule.call_cancel(arguments, context))
            }),
        ]
    }

    async fn call_add(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let TaskArguments { name, cron, description, run_once, timezone } =
            parse_arguments(arguments)?;
        let task = NewTask {
            name,
            cron,
            description,
            run_once: run_once.unwrap_or_default(),
            timezone: timezone.filter(|zone| !zone.trim().is_empty()),
        };
        let user = self.user_of(context).await?;
        let creator = Creator { session: Some(context.session_id.clone()), user };
        let added = self.add(task, creator).await.map_err(|error| tool_failure(&error))?;
        Ok(ToolResult::text(added))
    }

    async fn call_list(&self, context: &ToolContext) -> Result<ToolResult, ToolFailure> {
        let user = self.user_of(context).await?;
        let listed = self.list(user.as_deref()).await.map_err(|error| tool_failure(&error))?;
        let zone = self.shown_zone().await;
        Ok(ToolResult::text(table::markdown(&listed.1, listed.0, &zone)))
    }

    async fn call_cancel(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let NameArguments { name } = parse_arguments(arguments)?;
        let user = self.user_of(context).await?;
        let cancelled = self.cancel(&name, user.as_deref()).await;
        let cancelled = cancelled.map_err(|error| tool_failure(&error))?;
        let text = cancelled.unwrap_or_else(|| format!("No scheduled task named '{name}'."));
        Ok(ToolResult::text(text))
    }

    /// Returns the broker user of the calling conversation, if known.
    async fn user_of(&self, context: &ToolContext) -> Result<Option<String>, ToolFailure> {
        if context.agent != self.agent {
            let text = format!("only agent {} schedules tasks; ask it to do so", self.agent);
            return Err(ToolFailure::invalid(text));
        }
        let user = self.conversations.started_by(&context.session_id).await;
        user.map_err(|error| tool_failure(&error.into()))
    }
}

/// Returns the failure for the model. The text of a store's error stays in the log.
fn tool_failure(error: &ScheduleError) -> ToolFailure {
    match error {
        ScheduleError::Edit(EditError::Store(_)) | ScheduleError::Conversation(_) => {
            debug!(%error, "scheduled tasks unavailable");
            let message = "the store of the scheduled tasks is unavailable; list them before you try \
                           again";
            ToolFailure::failed(message)
        }
        error => ToolFailure::invalid(error.to_string()),
    }
}
