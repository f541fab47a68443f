//! Requests of servers for input from the user of a call (elicitation).

mod form;
pub(crate) mod raw_form;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metrics::counter;
use rmcp::model::{
    ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, FormElicitationCapability, InputRequest as ServerRequest, InputRequests,
    UrlElicitationCapability,
};
use rockbot_contracts::{InputAction, InputBody, InputRequest, InputResponse};
use rockbot_tools::{ToolContext, UserInput};
use serde_json::{Value, json};
use tracing::debug;

/// Time before the deadline of a call that is left for the server after a request for input.
const RESERVED: Duration = Duration::from_secs(2);

/// The maximum number of requests for input in a round; further ones are declined.
const MAX_INPUT_REQUESTS: usize = 8;

/// Adds the capability to ask a user, in both modes.
pub(crate) fn declare(capabilities: &mut ClientCapabilities) {
    let capability = ElicitationCapability::new()
        .with_form(FormElicitationCapability::default())
        .with_url(UrlElicitationCapability::default());
    capabilities.elicitation = Some(capability);
}

/// Asks the user of one call.
#[derive(Clone)]
pub(crate) struct Elicitor {
    server: Arc<str>,
    context: ToolContext,
    user: Arc<dyn UserInput>,
}

impl Elicitor {
    /// Returns the elicitor of a call; `None` if no user can respond.
    pub(crate) fn for_call(server: &Arc<str>, context: &ToolContext) -> Option<Self> {
        let user = context.input.clone()?;
        Some(Self { server: server.clone(), context: context.clone(), user })
    }

    /// Asks the user. A request that cannot be shown is declined.
    ///
    /// # Cancellation
    /// The request is withdrawn when the future is dropped.
    pub(crate) async fn ask(&self, params: &ElicitRequestParams) -> ElicitResult {
        let request = match request(&self.server, params) {
            Ok(request) => request,
            Err(reason) => {
                self.report_declined(reason);
                count("refused");
                return ElicitResult::new(ElicitationAction::Decline);
            }
        };
        let has_content = matches!(request.body, InputBody::Form { .. });
        let limit = self.context.remaining().saturating_sub(RESERVED);
        let response = self.user.ask(request, limit).await;
        count(match response.action {
            InputAction::Accept => "accept",
            InputAction::Decline => "decline",
            InputAction::Cancel => "cancel",
        });
        result(response, has_content)
    }

    /// Reports to the user a request that is declined because it cannot be read.
    pub(crate) fn report_unreadable(&self) {
        self.report_declined(raw_form::UNREADABLE_REASON);
    }

    fn report_declined(&self, reason: &str) {
        debug!(server = %self.server, reason, "request for input declined");
        self.context.progress(format!("declined a request for input: {reason}"));
    }
}

/// Declines a request because no user can respond.
pub(crate) fn decline() -> ElicitResult {
    count("no_user");
    ElicitResult::new(ElicitationAction::Decline)
}

/// Returns a response in the form of a result in a repeated call.
fn to_json(result: &ElicitResult) -> Value {
    serde_json::to_value(result).unwrap_or_else(|_| json!({"action": "cancel"}))
}

/// Responds to requests for input, one after the other.
pub(crate) async fn respond(
    requests: &InputRequests,
    elicitor: Option<&Elicitor>,
) -> BTreeMap<String, Value> {
    let mut responses = BTreeMap::new();
    for (key, request) in requests {
        let response = match (request, elicitor) {
            (ServerRequest::ListRoots(_), _) => json!({"roots": []}),
            (ServerRequest::Elicitation(request), Some(elicitor))
                if responses.len() < MAX_INPUT_REQUESTS =>
            {
                to_json(&elicitor.ask(&request.params).await)
            }
            (ServerRequest::Elicitation(_), _) => to_json(&decline()),
            // Sampling defines no decline; a client without the capability gets this as well.
            _ => json!({"action": "decline"}),
        };
        responses.insert(key.clone(), response);
    }
    responses
}

fn count(outcome: &'static str) {
    counter!("rockbot_mcp_input_requests_total", "outcome" => outcome).increment(1);
}

/// Returns a request as it is shown.
///
/// # Errors
/// Why it cannot be shown.
fn request(server: &str, params: &ElicitRequestParams) -> Result<InputRequest, &'static str> {
    let (message, body) = match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            if let Some(reason) = raw_form::refused(requested_schema) {
                return Err(reason);
            }
            let schema = serde_json::to_value(requested_schema);
            let schema = schema.map_err(|_| "its schema is invalid")?;
            (message, InputBody::Form { fields: form::fields(&schema)? })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            (message, InputBody::Url { url: url.clone() })
        }
        _ => return Err("the kind of the request is unknown"),
    };
    InputRequest { server: server.to_owned(), message: message.clone(), body }.checked()
}

fn result(response: InputResponse, has_content: bool) -> ElicitResult {
    let InputResponse { action, content } = response;
    match action {
        InputAction::Accept if has_content => {
            ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
        }
        InputAction::Accept => ElicitResult::new(ElicitationAction::Accept),
        InputAction::Decline => ElicitResult::new(ElicitationAction::Decline),
        InputAction::Cancel => ElicitResult::new(ElicitationAction::Cancel),
    }
}
