//! A tool that runs an agent.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    MessageId, SessionId, ToolHints, ToolRegistration, ToolSource, UserMessage,
};
use rockbot_tools::{
    Budget, Tool, ToolContext, ToolFailure, ToolResult,
    names::{MAX_NAME_BYTES, namespaced},
};
use serde_json::{Value, json};

use crate::{
    agent::Agent,
    event::{TurnAnswer, TurnEvent},
    origin::{ParentTurn, TurnOrigin},
    turn_result::result_of_turn,
};

/// The part of the calling turn's budget that the agent gets is one of this number.
const BUDGET_PARTS: u64 = 4;
/// Name of the default argument.
const MESSAGE: &str = "message";

/// Each call runs a turn of the agent in a new conversation.
pub(super) struct AgentTool {
    agent: Agent,
    registration: ToolRegistration,
}

impl AgentTool {
    pub(super) fn new(agent: Agent) -> Self {
        let definition = agent.definition();
        let name = definition.name.to_string();
        let message = json!({"type": "object", "required": [MESSAGE], "additionalProperties": false,
            "properties": {MESSAGE: {"type": "string", "minLength": 1,
                "description": "The task, with everything that the agent needs to know."}}});
        let description = match definition.description.as_str() {
            "" => name.clone(),
            described => described.to_owned(),
        };
        let registration = ToolRegistration {
            name: namespaced("agent", &name, MAX_NAME_BYTES),
            label: None,
            description,
            tool_description: definition.tool_description.clone(),
            parameters: definition.parameters.clone().unwrap_or(message),
            source: ToolSource::Agent(name),
            hints: ToolHints::default(),
            timeout_ms: u64::try_from(agent.turn_timeout().as_millis()).ok(),
        };
        Self { agent, registration }
    }

    pub(super) fn name(&self) -> &str {
        &self.registration.name
    }

    /// Returns the message for the agent: the argument `message`, or all arguments as JSON if the agent has
    /// its own schema.
    fn message_text(&self, arguments: &Value) -> String {
        match (&self.agent.definition().parameters, arguments[MESSAGE].as_str()) {
            (None, Some(message)) => message.to_owned(),
            _ => arguments.to_string(),
        }
    }

    async fn run(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        if context.attempt > 1 && !self.agent.conversations().is_durable() {
            let message = "the process that ran the agent was lost".to_owned();
            return Err(ToolFailure::OutcomeUnknown { message });
        }
        let budget = context.budget.clone().unwrap_or_else(Budget::unlimited);
        let grant = Arc::new(budget.grant(&context.tool_call_id, BUDGET_PARTS)?);
        let parent = ParentTurn {
            session: context.session_id.clone(),
            scope: context.scope.clone(),
            budget: grant.clone(),
            deadline: context.deadline,
            cancellation: context.cancellation.child_token(),
            handover: context.handover.clone(),
        };
        let _guard = parent.guard();
        let origin = TurnOrigin::from_parent(parent);
        // A repeated call continues the conversation of the first.
        let session_id = SessionId::from(&context.tool_call_id);
        let origin = match MessageId::new(context.tool_call_id.as_str()) {
            Ok(message) => origin.with_message(message),
            Err(_) => origin,
        };
        let text = self.message_text(&arguments);
        let message = UserMessage::new(session_id.clone(), text);
        let (name, parent) = (self.agent.name().clone(), context.clone());
        let progress = Arc::new(move |event| {
            if let TurnEvent::ToolStarted { tool_name, .. } = event {
                parent.progress(format!("{name} calls {tool_name}"));
            }
        });
        let answer = self.agent.run_turn(origin, message, progress).await;
        let TurnAnswer { text, outcome, usage, ended } = answer;
        if let Some(usage) = usage {
            // No turn runs here if the answer was recorded before.
            grant.budget().settle(usage.turn);
        }
        if !ended.is_answer() {
            return Err(ToolFailure::OutcomeUnknown { message: text });
        }
        let result = result_of_turn(text, outcome)?;
        Ok(ToolResult { child_loop_id: Some(session_id.to_string()), ..result })
    }
}

impl Tool for AgentTool {
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
}
