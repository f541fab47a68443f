//! Sub-agents that a definition describes as tools. A call waits for the answer of one turn of the same agent, with a
//! prompt and tools of its own, in a new conversation.

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    MessageId, SessionId, ToolHints, ToolRegistration, ToolSource, UserMessage,
};
use rockbot_tools::{Budget, Tool, ToolContext, ToolFailure, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    builtin_tool::parse_arguments,
    definition::{SubagentRules, SubagentTool},
    delegation::TaskHost,
    event::{TurnAnswer, TurnEvent},
    origin::{ParentTurn, StepLimits, TurnOrigin},
    turn_result::result_of_turn,
};

/// The part of the calling turn's budget that a sub-agent gets is one of this number.
const BUDGET_PARTS: u64 = 4;
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
        // A repeated call continues the conversation of the first.
        let session = SessionId::from(&context.tool_call_id);
        let message = MessageId::new(context.tool_call_id.as_str())
            .map_err(|_| ToolFailure::failed("no id for the sub-agent; call again"))?;
        let budget = context.budget.clone().unwrap_or_else(Budget::unlimited);
        let grant = Arc::new(budget.grant(&context.tool_call_id, BUDGET_PARTS)?);
        let parent = ParentTurn {
            session: context.session_id.clone(),
            scope: context.scope.clone(),
            budget: grant.clone(),
            deadline: context.deadline.min(Instant::now() + self.settings.timeout),
            cancellation: context.cancellation.child_token(),
            handover: context.handover.clone(),
        };
        let _guard = parent.guard();
        let origin = TurnOrigin::from_parent(parent).with_message(message);
        let origin = TurnOrigin { step: Some(self.limits.clone()), ..origin };
        let (label, caller) = (self.label.clone(), context.clone());
        let progress = Arc::new(move |event| {
            if let TurnEvent::ToolStarted { tool_name, .. } = event {
                caller.progress(format!("{label} calls {tool_name}"));
            }
        });
        let message = UserMessage::new(session.clone(), task);
        let answered = host.start_turn(origin, message, progress).await;
        let TurnAnswer { text, outcome, usage, ended } = answered.map_err(|_| stopping())?;
        if let Some(usage) = usage {
            // No turn runs here if the answer was recorded before.
            grant.budget().settle(usage.turn);
        }
        if !ended.is_answer() {
            return Err(ToolFailure::OutcomeUnknown { message: text });
        }
        let result = result_of_turn(text, outcome)?;
        Ok(ToolResult { child_loop_id: Some(session.to_string()), ..result })
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
