//! One agent as a tool.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    Executed, SessionId, ToolHints, ToolRegistration, ToolSource, UserMessage, user::TurnOutcome,
};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolResult,
    names::{MAX_NAME_BYTES, namespaced},
};
use serde_json::{Value, json};

use crate::{
    agent::Agent,
    event::{TurnAnswer, TurnEvent},
    origin::{Asking, TurnOrigin},
};

/// What is said to the agent.
const MESSAGE: &str = "message";

/// A call of it is a turn of the agent, in a conversation of its own.
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
                "description": "What the agent is to do, with all that it needs to know."}}});
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

    /// What the agent is told: the message, or the arguments where it has a schema of its own.
    fn said(&self, arguments: &Value) -> String {
        match (&self.agent.definition().parameters, arguments[MESSAGE].as_str()) {
            (None, Some(message)) => message.to_owned(),
            _ => arguments.to_string(),
        }
    }

    async fn ask(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        // Whoever drops this call, at its deadline or on cancellation, ends the turn.
        let wanted = context.cancellation.child_token();
        let _unwanted = wanted.clone().drop_guard();
        let origin = TurnOrigin::asked_by(Asking {
            session: context.session_id.clone(),
            scope: context.scope.clone(),
            deadline: context.deadline,
            cancellation: wanted,
        });
        let session_id = SessionId::generate();
        let text = self.said(&arguments);
        let message = UserMessage { session_id: session_id.clone(), text, cancel: false };
        let (name, asking) = (self.agent.name().clone(), context.clone());
        let progress = Arc::new(move |event| {
            if let TurnEvent::ToolStarted { tool_name, .. } = event {
                asking.progress(format!("{name} calls {tool_name}"));
            }
        });
        let answer = self.agent.turn(origin, message, progress).await;
        let TurnAnswer { text, outcome, usage } = answer;
        let result = match outcome {
            TurnOutcome::Completed | TurnOutcome::IterationLimit => ToolResult::text(text),
            TurnOutcome::Overloaded | TurnOutcome::Expired => {
                return Err(ToolFailure::Overloaded { message: text });
            }
            TurnOutcome::Cancelled => {
                return Err(ToolFailure::Cancelled { executed: Executed::Yes });
            }
            TurnOutcome::ToolTimeouts | TurnOutcome::ModelFailed | TurnOutcome::Other => {
                ToolResult::error(text)
            }
        };
        Ok(ToolResult {
            child_loop_id: Some(session_id.to_string()),
            child_spending: usage.map(|usage| Box::new(usage.turn)),
            ..result
        })
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
        Box::pin(self.ask(arguments, context))
    }
}
