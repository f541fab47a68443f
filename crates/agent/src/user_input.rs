//! Requests of MCP servers for input, shown to the user of the turn.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use rockbot_contracts::{
    AgentName, InputAction, InputAnswer, InputId, InputOutcome, InputRequest, InputResponse,
    SessionId, ToolCallId,
};
use rockbot_tools::UserInput;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tracing::{debug, info};

use crate::event::{ProgressSink, TurnEvent};

/// Maximum number of open requests. Further ones count as cancelled.
const MAX_OPEN: usize = 256;

/// The open requests of a process.
#[derive(Default)]
pub(crate) struct OpenInputs(Mutex<HashMap<InputId, OpenInput>>);

struct OpenInput {
    session: SessionId,
    request: InputRequest,
    expires: Instant,
    response: oneshot::Sender<InputResponse>,
}

impl OpenInputs {
    /// Accepts a response. Returns `true` if it closed an open request: one that is not valid for the
    /// request, or from another conversation, is ignored.
    pub(crate) fn answer(&self, answer: &InputAnswer) -> bool {
        let mut open = self.open();
        let is_valid = open.get(&answer.input_id).is_some_and(|input| {
            input.session == answer.session_id && input.request.check(&answer.response).is_ok()
        });
        let input = if is_valid { open.remove(&answer.input_id) } else { None };
        drop(open);
        let accepted =
            input.is_some_and(|input| input.response.send(answer.response.clone()).is_ok());
        if !accepted {
            debug!(input_id = %answer.input_id, "response to an unknown or closed request for input");
        }
        accepted
    }

    /// Returns the time until an open request expires; `None` if it is closed.
    pub(crate) fn remaining(&self, id: &InputId) -> Option<Duration> {
        let open = self.open();
        open.get(id).map(|input| input.expires.saturating_duration_since(Instant::now()))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<InputId, OpenInput>> {
        self.0.lock()
    }
}

/// The user of one call.
pub(crate) struct CallUser {
    pub(crate) inputs: Arc<OpenInputs>,
    /// The conversation of the user.
    pub(crate) session: SessionId,
    pub(crate) progress: ProgressSink,
    /// The agent that makes the call.
    pub(crate) agent: AgentName,
    pub(crate) call: ToolCallId,
    /// The longest time that a user has to respond.
    pub(crate) expiry: Duration,
}

impl CallUser {
    async fn request(&self, request: InputRequest, limit: Duration) -> InputResponse {
        let (input_id, expiry) = (InputId::generate(), limit.min(self.expiry));
        let (response, responded) = oneshot::channel();
        {
            let mut open = self.inputs.open();
            if open.len() >= MAX_OPEN {
                info!("too many requests for input are open");
                return InputAction::Cancel.into();
            }
            let (session, expires) = (self.session.clone(), Instant::now() + expiry);
            let input = OpenInput { session, request: request.clone(), expires, response };
            open.insert(input_id.clone(), input);
        }
        let mut guard = OpenGuard { user: self, input_id, outcome: InputOutcome::Cancel };
        info!(input_id = %guard.input_id, server = %request.server, "input requested");
        (self.progress)(TurnEvent::InputAsked {
            input_id: guard.input_id.clone(),
            asking_agent: self.agent.clone(),
            tool_call_id: self.call.clone(),
            request: Box::new(request),
            expiry,
        });
        let response = timeout(expiry, responded).await;
        guard.outcome = match &response {
            Ok(Ok(response)) => response.action.into(),
            Ok(Err(_)) => InputOutcome::Cancel,
            Err(_) => InputOutcome::Expired,
        };
        info!(input_id = %guard.input_id, outcome = ?guard.outcome, "request for input closed");
        response.ok().and_then(Result::ok).unwrap_or_else(|| InputAction::Cancel.into())
    }
}

impl UserInput for CallUser {
    fn ask(&self, request: InputRequest, limit: Duration) -> BoxFuture<'_, InputResponse> {
        Box::pin(self.request(request, limit))
    }
}

/// Closes a request when it is dropped, and reports how.
struct OpenGuard<'a> {
    user: &'a CallUser,
    input_id: InputId,
    outcome: InputOutcome,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.user.inputs.open().remove(&self.input_id);
        let (input_id, outcome) = (self.input_id.clone(), self.outcome);
        (self.user.progress)(TurnEvent::InputClosed { input_id, outcome });
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::InputBody;
    use serde_json::json;

    use super::*;

    fn request() -> InputRequest {
        let body = json!({"mode": "form", "fields":
            [{"name": "color", "type": "choice", "required": true, "options": [{"value": "red"}]}]});
        let body: InputBody = serde_json::from_value(body).unwrap();
        InputRequest { server: "paint".to_owned(), message: "Which?".to_owned(), body }
    }

    fn user(inputs: &Arc<OpenInputs>, events: &Arc<Mutex<Vec<TurnEvent>>>) -> CallUser {
        let events = events.clone();
        CallUser {
            inputs: inputs.clone(),
            session: SessionId::new("s").unwrap(),
            progress: Arc::new(move |event| events.lock().push(event)),
            agent: AgentName::new("painter").unwrap(),
            call: ToolCallId::generate(),
            expiry: Duration::from_secs(120),
        }
    }

    fn answer(id: &InputId, session: &str, response: serde_json::Value) -> InputAnswer {
        let response = serde_json::from_value(response).unwrap();
        InputAnswer { session_id: SessionId::new(session).unwrap(), input_id: id.clone(), response }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_valid_response_of_the_conversation_counts() {
        let (inputs, events) = (Arc::new(OpenInputs::default()), Arc::default());
        let user = user(&inputs, &events);
        let asked = user.ask(request(), Duration::from_secs(60));
        let answered = async {
            tokio::task::yield_now().await;
            let TurnEvent::InputAsked { input_id: id, expiry, .. } = events.lock()[0].clone()
            else {
                panic!("asked")
            };
            assert_eq!(expiry, Duration::from_secs(60));
            let red = json!({"action": "accept", "content": {"color": "red"}});
            let green = json!({"action": "accept", "content": {"color": "green"}});
            assert!(!inputs.answer(&answer(&id, "other", red.clone())));
            assert!(!inputs.answer(&answer(&id, "s", green)));
            assert!(!inputs.answer(&answer(&InputId::generate(), "s", red.clone())));
            assert!(inputs.answer(&answer(&id, "s", red.clone())));
            assert!(!inputs.answer(&answer(&id, "s", red)), "it counts once");
        };
        let (response, ()) = tokio::join!(asked, answered);
        assert_eq!(response.action, InputAction::Accept);
        assert!(matches!(
            events.lock()[1],
            TurnEvent::InputClosed { outcome: InputOutcome::Accept, .. }
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_a_response_expires() {
        let (inputs, events) = (Arc::new(OpenInputs::default()), Arc::default());
        let user = user(&inputs, &events);
        let response = user.ask(request(), Duration::from_secs(600)).await;
        assert_eq!(response.action, InputAction::Cancel);
        assert!(matches!(
            events.lock()[1],
            TurnEvent::InputClosed { outcome: InputOutcome::Expired, .. }
        ));
        assert!(inputs.open().is_empty());
    }
}
