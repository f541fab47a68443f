//! Sub-agents that a definition describes as tools. A call waits for the answer of one turn of the same agent, with a
//! prompt and tools of its own, in a new conversation.

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    builtin_tool::parse_arguments,
    called_turn::{CalledTurn, progress_of},
    definition::{SubagentRules, SubagentTool},
    delegation::TaskHost,
    origin::{StepLimits, TurnOrigin},
};

const MAX_TASK_BYTES: usize = 64 * 1024;

/// Starts turns of the agent, once it exists.
pub(crate) type HostSlot = Arc<OnceLock<Arc<dyn TaskHost>>>;

/// Returns the tools of a definition. `is_durable` is `true` if conversations outlive the process.
pub(crate) fn tools(
    rules: &SubagentRules,
    host: &HostSlot,
    is_durable: bool,
) -> Vec<Arc<dyn Tool>> {
    let tool = |settings: &SubagentTool| -> Arc<dyn Tool> {
        Arc::new(Handle {
            registration: registration(settings),
            label: settings.name.clone(),
            limits: Arc::new(limits(settings)),
            settings: settings.clone(),
            host: host.clone(),
            is_durable,
        })
    };
    rules.tool.iter().map(tool).collect()
}

#[derive(Debug, Deserialize)]
struct Arguments {
    task: String,
}

/// Each call runs a turn of the agent in a new conversation.
struct Handle {
    registration: ToolRegistration,
    label: String,
    limits: Arc<StepLimits>,
    settings: SubagentTool,
    host: HostSlot,
    is_durable: bool,
}

fn registration(settings: &SubagentTool) -> ToolRegistration {
    ToolRegistration {
        name: settings.tool_name(),
        label: None,
        description: settings.description.clone(),
        tool_description: None,
        parameters: json!({"type": "object", "required": ["task"], "additionalProperties": false,
            "properties": {"task": {"type": "string", "minLength": 1, "maxLength": MAX_TASK_BYTES,
                "description": "The task, with everything that the sub-agent needs to know."}}}),
        source: ToolSource::Subagent,
        hints: ToolHints::default(),
        timeout_ms: u64::try_from(settings.timeout.as_millis()).ok(),
    }
}

fn limits(settings: &SubagentTool) -> StepLimits {
    let SubagentTool { prompt, model, tools, max_iterations, .. } = settings.clone();
    StepLimits { tools, iterations: max_iterations, prompt: Some(prompt), model }
}

impl Handle {
    async fn run(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { task } = parse_arguments(arguments)?;
        if task.trim().is_empty() || task.len() > MAX_TASK_BYTES {
            return Err(ToolFailure::invalid("task must have 1 byte to 64 KiB"));
        }
        if context.attempt > 1 && !self.is_durable {
            let message = "the process that ran the sub-agent was lost".to_owned();
            return Err(ToolFailure::OutcomeUnknown { message });
        }
        let stopping = || ToolFailure::failed("the agent is shutting down");
        let host = self.host.get().ok_or_else(stopping)?;
        let deadline = context.deadline.min(Instant::now() + self.settings.timeout);
        let (called, origin) = CalledTurn::prepare(context, deadline)?;
        let origin = TurnOrigin { step: Some(self.limits.clone()), ..origin };
        let progress = progress_of(context, &self.label);
        let answered = host.start_turn(origin, called.message(task), progress).await;
        called.result(answered.map_err(|_| stopping())?)
    }
}

impl Tool for Handle {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(self.run(arguments, context))
    }

    fn deduplicates_calls(&self) -> bool {
        true
    }

    // The turn ends at the deadline, and reports its state.
    fn enforces_own_deadline(&self) -> bool {
        true
    }
}
