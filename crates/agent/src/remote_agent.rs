//! An agent of a running fleet as a tool, for callers without a turn of their own.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    AgentName, AgentReply, ConversationRequest, ConversationResponse, Executed, MessageId,
    ReplyBody, SessionId, ToolHints, ToolRegistration, ToolSource, UserMessage,
    outside_text::plain, user::TurnOutcome,
};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolResult,
    names::{MAX_NAME_BYTES, namespaced},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use crate::{
    builtin_tool::parse_arguments,
    client::{AgentClient, Replies, ReplyError, SendError},
    derived_id::derived_id,
    turn_result::result_of_turn,
};

/// Time for which a cancelled turn may still answer.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest description of an agent, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1000;
/// Longest id of a conversation in an argument, in characters.
const MAX_CONVERSATION_CHARS: usize = 64;

/// Sends the message of a call to an agent over the bus, and returns its answer.
///
/// Each call is a turn. A call without `conversation` starts one, and its result names it. Conversations belong to
/// the session of the caller: another session cannot continue them. A call that is made again under its id is the
/// same turn, in whichever process. The turn is cancelled with the call, and at its deadline; it continues when the
/// future of the call is dropped.
pub struct RemoteAgent {
    client: Arc<AgentClient>,
    agent: AgentName,
    registration: ToolRegistration,
}

#[derive(Deserialize)]
struct Arguments {
    message: String,
    conversation: Option<String>,
}

impl RemoteAgent {
    /// Creates the tool `agent__<agent>`. The idle timeout of `client` limits the silence of the agent.
    #[must_use]
    pub fn new(client: Arc<AgentClient>, agent: AgentName, description: &str) -> Self {
        let name = agent.to_string();
        let described = plain(description, MAX_DESCRIPTION_CHARS);
        let description = if described.is_empty() {
            format!("Ask the agent {name}.")
        } else {
            format!("Ask the agent {name}: {described}")
        };
        let parameters = json!({"type": "object", "required": ["message"],
            "additionalProperties": false, "properties": {
                "message": {"type": "string", "minLength": 1,
                    "description": "The task, with everything that the agent needs to know."},
                "conversation": {"type": "string", "minLength": 1,
                    "maxLength": MAX_CONVERSATION_CHARS,
                    "description": "Continues this conversation, as named in an earlier result."}}});
        let registration = ToolRegistration {
            name: namespaced("agent", &name, MAX_NAME_BYTES),
            label: None,
            description,
            tool_description: None,
            parameters,
            source: ToolSource::Agent(name),
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        Self { client, agent, registration }
    }

    /// Asks a running agent to describe itself, and creates its tool. Without a response in `wait`, the tool has no
    /// description.
    pub async fn describe(client: Arc<AgentClient>, agent: AgentName, wait: Duration) -> Self {
        let response = timeout(wait, client.request(&agent, &ConversationRequest::Agent {})).await;
        let description = match response {
            Ok(Ok(ConversationResponse::Agent { agent })) => agent.description,
            _ => {
                debug!(%agent, "agent did not describe itself");
                String::new()
            }
        };
        Self::new(client, agent, &description)
    }

    async fn ask(
        &self,
        arguments: Arguments,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let started = Instant::now();
        let call = context.tool_call_id.as_str();
        let conversation = arguments.conversation.unwrap_or_else(|| call.to_owned());
        let session = session_of(context, &conversation)?;
        let message_id = MessageId::new(call)
            .map_err(|error| ToolFailure::invalid(format!("call id: {error}")))?;
        let message = UserMessage::new(session.clone(), arguments.message);
        let sent = self.client.send_with_id(&self.agent, &message, message_id).await;
        let mut replies = sent.map_err(|error| not_sent(&error))?;
        let answered = tokio::select! {
            biased;
            answered = self.answer(&mut replies, context) => answered,
            () = context.cancellation.cancelled() => {
                self.cancel(&session, &mut replies, context).await;
                return Err(ToolFailure::Cancelled { executed: Executed::Unknown });
            }
            () = sleep_until(context.deadline) => {
                self.cancel(&session, &mut replies, context).await;
                return Err(ToolFailure::WithOutput {
                    failure: Box::new(ToolFailure::TimedOut {
                        after: started.elapsed(),
                        executed: Executed::Yes,
                        repeatable: false,
                    }),
                    output: continuation(&conversation),
                });
            }
        };
        let (text, outcome) = answered.map_err(|error| no_answer(&error))?;
        result(text, outcome, &conversation)
    }

    /// Reports the progress of the turn until its answer.
    async fn answer(
        &self,
        replies: &mut Replies,
        context: &ToolContext,
    ) -> Result<(String, TurnOutcome), ReplyError> {
        while let Some(reply) = replies.next().await {
            let AgentReply { agent, body, .. } = reply?;
            match body {
                ReplyBody::Answer { text, outcome, .. } => return Ok((text, outcome)),
                ReplyBody::ToolStarted { tool_name, .. } => {
                    context.progress(format!("{agent} calls {tool_name}"));
                }
                ReplyBody::ToolProgressed { text, .. } => context.progress(text),
                ReplyBody::ApprovalAsked { tool_name, .. } => context.progress(format!(
                    "{agent} waits for the approval of {tool_name} by a user of the fleet"
                )),
                _ => {}
            }
        }
        Err(ReplyError::Closed)
    }

    /// Cancels the turn, and waits for its end.
    async fn cancel(&self, session: &SessionId, replies: &mut Replies, context: &ToolContext) {
        let cancelled = timeout(CANCEL_TIMEOUT, async {
            let message = UserMessage::cancelling(session.clone());
            // Kept, because dropping it would drop the reply to it.
            let _receipt = self.client.send(&self.agent, &message).await;
            let _ = self.answer(replies, context).await;
        });
        if cancelled.await.is_err() {
            debug!(agent = %self.agent, "agent did not confirm the cancel");
        }
    }
}

/// Returns the conversation of the agent. It depends on the session of the caller, so that an id from another caller
/// names a conversation that does not exist.
fn session_of(context: &ToolContext, conversation: &str) -> Result<SessionId, ToolFailure> {
    let id = derived_id(&[context.agent.as_str(), context.session_id.as_str(), conversation], 32);
    SessionId::new(id).map_err(|error| ToolFailure::invalid(error.to_string()))
}

fn continuation(conversation: &str) -> String {
    format!("[to continue this conversation, pass \"conversation\": \"{conversation}\"]")
}

fn result(
    text: String,
    outcome: TurnOutcome,
    conversation: &str,
) -> Result<ToolResult, ToolFailure> {
    let mut result = result_of_turn(text, outcome)?;
    let note = ToolResult::text(continuation(conversation));
    result.content.extend(note.content);
    Ok(result.with_details(json!({"conversation": conversation})))
}

fn not_sent(error: &SendError) -> ToolFailure {
    match error {
        SendError::AgentUnavailable { .. } => {
            ToolFailure::Unavailable { message: error.to_string(), executed: Executed::No }
        }
        SendError::TooManyPending => ToolFailure::Overloaded { message: error.to_string() },
        SendError::OtherText { .. } => ToolFailure::invalid(error.to_string()),
        SendError::Publish(_) => {
            debug!(%error, "message to an agent not sent");
            let message = "the message to the agent may or may not have arrived".to_owned();
            ToolFailure::OutcomeUnknown { message }
        }
    }
}

fn no_answer(error: &ReplyError) -> ToolFailure {
    ToolFailure::OutcomeUnknown { message: error.to_string() }
}

impl Tool for RemoteAgent {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move { self.ask(parse_arguments(arguments)?, context).await })
    }

    fn enforces_own_deadline(&self) -> bool {
        true
    }

    fn deduplicates_calls(&self) -> bool {
        true
    }
}

impl fmt::Debug for RemoteAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAgent").field("agent", &self.agent).finish_non_exhaustive()
    }
}
