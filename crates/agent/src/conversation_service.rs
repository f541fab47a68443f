//! Serves requests of users about the conversations and the scheduled tasks of an agent, on `user.conversation.<agent>`.
//!
//! Any process of the agent can respond, because the conversations are in a store that all of them share. A user
//! sees the conversations that the same broker user started, and those whose starter is unknown. On a bus that does not
//! validate users, everyone sees all.

mod requests;

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, ConsumeError, Delivery, Handler, Publication, Settlement, Subscription, Worker,
};
use rockbot_contracts::{
    AgentName, ContentTrust, ConversationRequest, ConversationResponse, DecodeError, Envelope,
    Message, QueueSpec, RoutingKey, ScheduleRequest, ScheduleResponse, UserFeedback,
    conversation::ConversationErrorCode, identity::may_use_conversations, json::Limits,
    topology::user_conversation,
};
use tokio::time::timeout;
use tracing::{debug, warn};

use self::requests::{Responder, failed_response};
use crate::{
    agent::Agent, conversation::Conversations, reply_to::user_reply_to, schedule::Schedule,
    session_data::SessionData,
};

/// Maximum number of requests in progress.
const CONCURRENCY: u16 = 16;
/// Time limit of a request, shorter than the wait of its client.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(25);
/// Size above which a history page is shortened, in bytes of JSON.
const MAX_RESPONSE_BYTES: usize = 3 * 1024 * 1024;

/// Builder of a [`ConversationService`].
pub struct ConversationServiceBuilder {
    responder: Responder,
    schedule: Option<Arc<Schedule>>,
}

/// Responds to requests about conversations. Dropping it aborts requests in progress; the broker redelivers them.
#[derive(Debug)]
pub struct ConversationService {
    worker: Worker,
}

impl ConversationServiceBuilder {
    /// Serves the conversations of an agent that runs in this process. A conversation with an open turn is
    /// not deleted.
    #[must_use]
    pub fn for_agent(agent: Agent) -> Self {
        let (name, conversations) = (agent.name().clone(), agent.conversations().clone());
        let running = Some(agent);
        let data = SessionData::default();
        Self { responder: Responder { agent: name, conversations, running, data }, schedule: None }
    }

    /// Serves stored conversations of `agent` without the agent. Conversations with open turns can be deleted
    /// too, because there may be no process left to finish them. If there is one, its turn ends without an
    /// answer. `data` is deleted with them.
    #[must_use]
    pub fn for_store(agent: AgentName, conversations: Conversations, data: SessionData) -> Self {
        let responder = Responder { agent, conversations, running: None, data };
        Self { responder, schedule: None }
    }

    /// Serves the scheduled tasks of the agent too.
    #[must_use]
    pub fn with_schedule(self, schedule: Option<Arc<Schedule>>) -> Self {
        Self { schedule, ..self }
    }

    /// Consumes `user.conversation.<agent>`.
    ///
    /// # Errors
    /// Fails if the queue cannot be consumed.
    pub async fn serve(self, bus: Arc<dyn Bus>) -> Result<ConversationService, ConsumeError> {
        let queue = QueueSpec::work(&user_conversation(&self.responder.agent));
        let handler =
            RequestHandler { responder: self.responder, schedule: self.schedule, bus: bus.clone() };
        let subscription = Subscription::new(queue, CONCURRENCY);
        let worker = Worker::start(bus.as_ref(), subscription, Arc::new(handler)).await?;
        Ok(ConversationService { worker })
    }
}

impl ConversationService {
    /// Stops consuming and completes the requests in progress, at most for `grace`. Returns `true` if all
    /// were completed.
    pub async fn drain(self, grace: Duration) -> bool {
        self.worker.drain(grace).await
    }
}

/// Processes deliveries.
struct RequestHandler {
    responder: Responder,
    schedule: Option<Arc<Schedule>>,
    bus: Arc<dyn Bus>,
}

impl Handler for RequestHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.process(delivery))
    }
}

impl RequestHandler {
    async fn process(&self, delivery: &Delivery) -> Settlement {
        let envelope = delivery.envelope();
        let reply_to = match user_reply_to(envelope) {
            Ok(reply_to) => reply_to,
            Err(reason) => return Settlement::dead_letter(reason),
        };
        if envelope.remaining() == Some(Duration::ZERO) {
            debug!("expired request about conversations dropped");
            return Settlement::Ack;
        }
        let response = match timeout(REQUEST_TIMEOUT, self.respond(envelope)).await {
            Ok(response) => response,
            Err(_) => refused(
                envelope,
                ConversationErrorCode::Unavailable,
                "the agent did not process the request in time; try again",
            ),
        };
        self.reply(reply_to, envelope, response).await;
        Settlement::Ack
    }

    /// Returns the response, without its address.
    async fn respond(&self, envelope: &Envelope) -> Envelope {
        let user = envelope.user_id.as_deref();
        if !may_use_conversations(user) {
            warn!(user, "request about conversations refused");
            return refused(
                envelope,
                ConversationErrorCode::NotPermitted,
                "only people may use the conversations of an agent; use the broker user of the \
                 command line program",
            );
        }
        if envelope.message_type() == ScheduleRequest::TYPE {
            return Envelope::from_payload(&self.respond_schedule(user, envelope).await);
        }
        let response = if envelope.message_type() == UserFeedback::TYPE {
            match envelope.decode::<UserFeedback>(Limits::default()) {
                Ok(feedback) => self.responder.record_feedback(user, feedback).await,
                Err(error) => Ok(invalid(&error)),
            }
        } else {
            match envelope.decode::<ConversationRequest>(Limits::default()) {
                Ok(request) => self.responder.respond(user, request).await,
                Err(error) => Ok(invalid(&error)),
            }
        };
        bounded(response.unwrap_or_else(|error| requests::error_response(&error)))
    }

    async fn respond_schedule(&self, user: Option<&str>, envelope: &Envelope) -> ScheduleResponse {
        let failed = |code, message| ScheduleResponse::Failed { code, message };
        let Some(schedule) = &self.schedule else {
            let message =
                "scheduling is off for this agent; set schedule.enabled = true".to_owned();
            return failed(ConversationErrorCode::NotPermitted, message);
        };
        match envelope.decode::<ScheduleRequest>(Limits::default()) {
            Ok(request) => schedule.respond(user, request).await,
            Err(error) => failed(ConversationErrorCode::InvalidRequest, error.to_string()),
        }
    }

    /// Publishes a response. If that fails, the client's request times out.
    async fn reply(&self, reply_to: &RoutingKey, request: &Envelope, response: Envelope) {
        let envelope = response
            .with_correlation_id(request.message_id.as_str())
            .with_source(self.responder.agent.as_str())
            .with_trust(ContentTrust::AgentMessage);
        let publication = Publication::mandatory(reply_to.clone(), envelope);
        if let Err(error) = self.bus.publish(publication).await {
            warn!(%error, "response about conversations not sent");
        }
    }
}

fn invalid(error: &DecodeError) -> ConversationResponse {
    failed_response(ConversationErrorCode::InvalidRequest, error.to_string())
}

/// Encodes the refusal of a request, as a response of its kind.
fn refused(request: &Envelope, code: ConversationErrorCode, message: &str) -> Envelope {
    if request.message_type() == ScheduleRequest::TYPE {
        return Envelope::from_payload(&ScheduleResponse::Failed {
            code,
            message: message.to_owned(),
        });
    }
    Envelope::from_payload(&failed_response(code, message))
}

/// Encodes a response, and shortens a page of history that is too large for a message.
fn bounded(mut response: ConversationResponse) -> Envelope {
    loop {
        let envelope = Envelope::from_payload(&response);
        match &mut response {
            ConversationResponse::History { items, next }
                if envelope.body.len() > MAX_RESPONSE_BYTES && items.len() > 1 =>
            {
                let kept = items.len() / 2;
                *next = Some(items[kept].number);
                items.truncate(kept);
            }
            _ => return envelope,
        }
    }
}

impl fmt::Debug for ConversationServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationServiceBuilder")
            .field("agent", &self.responder.agent)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::conversation::{HistoryBody, HistoryItem};

    use super::*;

    #[test]
    fn oversized_history_page_is_shortened_to_size_limit() {
        let item = |number| {
            let body = HistoryBody::Summary { text: "\u{1}".repeat(200 * 1024) };
            HistoryItem { number, at_ms: None, body }
        };
        let items = (1..=5).map(item).collect();
        let envelope = bounded(ConversationResponse::History { items, next: None });
        assert!(envelope.body.len() <= MAX_RESPONSE_BYTES);
        let response = envelope.decode::<ConversationResponse>(Limits::default()).unwrap();
        let ConversationResponse::History { items, next } = response else {
            panic!("{response:?}");
        };
        assert_eq!((items.len(), next), (2, Some(3)));
    }
}
