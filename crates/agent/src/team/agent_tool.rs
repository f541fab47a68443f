//! A tool that runs an agent.

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolResult,
    names::{MAX_NAME_BYTES, namespaced},
};
use serde_json::{Value, json};

use crate::{
    agent::Agent,
    called_turn::{CalledTurn, progress_of},
};

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
        let (called, origin) = CalledTurn::prepare(context, context.deadline)?;
        let message = called.message(self.message_text(&arguments));
        let progress = progress_of(context, self.agent.name().as_str());
        called.result(self.agent.run_turn(origin, message, progress).await)
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
