//! Requests to the worker under test, and its replies.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, QueueState};
use rockbot_contracts::{
    ContentTrust, Envelope, Executed, Message, QueueSpec, RoutingKey, SessionId, ToolCallId,
    ToolCancel, ToolError, ToolErrorCode, ToolInvokeRequest, ToolInvokeResponse,
    identity::CLI,
    interim::is_interim,
    json::Limits,
    tool::REPLY_PROBE,
    topology::{ReplyAddress, tool_cancel},
};
use tokio::time::{Instant, interval, timeout};

use super::{
    check::{Problem, failed, skipped},
    messages::{Messages, Received},
};

/// Time budget of a call that should end at once.
pub(super) const BUDGET: Duration = Duration::from_secs(20);

/// Time for a reply beyond the budget of its call.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Time for a dead letter to arrive, and for a signal to be seen.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which a message must not arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(300);

const NOT_INSPECTED: &str = "refused with a reply; this user may not inspect the dead letters of the pool, so \
     look for the request with `rockbot dlq show`";

/// Sends requests to a pool as the user of the command line.
pub(super) struct Prober {
    pub(super) bus: Arc<dyn Bus>,
    pub(super) address: ReplyAddress,
    pub(super) key: RoutingKey,
    pub(super) replies: Messages,
}

/// A request to send; its parts can be changed before.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: ToolCallId,
    pub(super) envelope: Envelope,
}

/// Reply of a worker.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) outcome: Outcome,
    pub(super) envelope: Envelope,
    pub(super) at: Instant,
}

/// Decoded payload of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Result(ToolInvokeResponse),
    Error(ToolError),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Result(result) if result.is_error => f.write_str("a result with isError"),
            Self::Result(_) => f.write_str("a result"),
            Self::Error(error) => write!(f, "{}, executed: {}", error.code, error.executed),
        }
    }
}

impl Prober {
    /// Returns a call of `tool` with a time budget.
    pub(super) fn call(&self, tool: &str, arguments: &str, budget: Duration) -> Call {
        let id = ToolCallId::generate();
        let request = ToolInvokeRequest {
            tool_call_id: id.clone(),
            tool_name: tool.to_owned(),
            arguments: arguments.to_owned(),
            session_id: SessionId::from(&id),
        };
        self.raw(id, Envelope::from_payload(&request), budget)
    }

    /// Returns a request with any body.
    pub(super) fn raw_call(&self, message_type: &str, body: &str) -> Call {
        let envelope = Envelope::raw(message_type, body.as_bytes().to_vec());
        self.raw(ToolCallId::generate(), envelope, BUDGET)
    }

    fn raw(&self, id: ToolCallId, envelope: Envelope, budget: Duration) -> Call {
        let envelope = envelope
            .with_correlation_id(id.clone())
            .reply_to(self.address.reply_to())
            .with_source(CLI)
            .with_trust(ContentTrust::ToolRequest)
            .within(budget);
        Call { id, envelope }
    }

    /// Publishes a call.
    pub(super) async fn send(&self, call: &Call) -> Result<(), Problem> {
        let publication = Publication::mandatory(self.key.clone(), call.envelope.clone());
        let published = self.bus.publish(publication).await;
        published.map_err(|error| Problem::Failed(format!("the request was not sent: {error}")))
    }

    /// Publishes a cancel of a call, which workers remember for `remember`.
    pub(super) async fn cancel(&self, id: &ToolCallId, remember: Duration) -> Result<(), Problem> {
        let reason = "cancelled by rockbot worker check".to_owned();
        let cancel = ToolCancel { tool_call_id: id.clone(), reason };
        let envelope =
            Envelope::from_payload(&cancel).with_correlation_id(id.clone()).within(remember);
        let published = self.bus.publish(Publication::announcement(tool_cancel(), envelope)).await;
        published.map_err(|error| Problem::Failed(format!("the cancel was not sent: {error}")))
    }

    /// Publishes a call and waits for its first reply.
    pub(super) async fn ask(&self, call: &Call) -> Result<Reply, Problem> {
        self.send(call).await?;
        self.reply_to(call).await
    }

    /// Waits for the first reply to a call, until its budget and the grace period have passed.
    pub(super) async fn reply_to(&self, call: &Call) -> Result<Reply, Problem> {
        let budget = call.envelope.budget.map_or(BUDGET, |budget| budget.timeout.min(BUDGET));
        self.nth_reply(call, 1, budget + GRACE).await
    }

    /// Waits for a reply to a call.
    pub(super) async fn nth_reply(
        &self,
        call: &Call,
        number: usize,
        limit: Duration,
    ) -> Result<Reply, Problem> {
        let id = call.id.as_str();
        let found = self
            .replies
            .wait_for(limit, |messages| replies(messages, id).nth(number - 1).cloned())
            .await;
        match found {
            Some(message) => decode(&message),
            None => failed(format!("no reply within {} s", limit.as_secs())),
        }
    }

    /// Returns all replies to a call so far.
    pub(super) fn replies_so_far(&self, call: &Call) -> Result<Vec<Reply>, Problem> {
        let messages = self.replies.so_far();
        replies(&messages, call.id.as_str()).map(decode).collect()
    }

    /// Fails unless the worker still replies. A reply also shows that the worker received all earlier
    /// requests, because a queue is in order.
    pub(super) async fn ping(&self) -> Result<(), Problem> {
        let probe = self.call(REPLY_PROBE, "{}", BUDGET);
        match self.ask(&probe).await {
            Ok(_) => Ok(()),
            Err(_) => failed("the worker replies to no request any more"),
        }
    }

    /// Sends an unreadable request. The worker must reply with `invalid_arguments`, move the request to
    /// the dead letters, and go on.
    pub(super) async fn expect_rejection(&self, call: &Call) -> Result<String, Problem> {
        let before = self.dead_letters().await?;
        let reply = self.ask(call).await?;
        expect_error(&reply, &ToolErrorCode::InvalidArguments, &[Executed::No])?;
        self.ping().await?;
        self.expect_dead_letter(before).await
    }

    /// Waits until there are more dead letters than `before`. Skipped when this user may not inspect them.
    pub(super) async fn expect_dead_letter(&self, before: Option<u32>) -> Result<String, Problem> {
        let Some(before) = before else {
            return skipped(NOT_INSPECTED);
        };
        let mut poll = interval(Duration::from_millis(50));
        let increased = async {
            loop {
                match self.dead_letters().await? {
                    Some(now) if now > before => return Ok(()),
                    Some(_) => {}
                    None => return skipped(NOT_INSPECTED),
                }
                poll.tick().await;
            }
        };
        match timeout(SETTLE_TIMEOUT, increased).await {
            Ok(increased) => increased.map(|()| "refused, and a dead letter".to_owned()),
            Err(_) => failed("the request did not become a dead letter within 5 s; reject it"),
        }
    }

    /// Returns the number of dead letters of the pool; `None` when this user may not inspect them.
    pub(super) async fn dead_letters(&self) -> Result<Option<u32>, Problem> {
        let queue = QueueSpec::work(&self.key).dead_letters().name;
        let report = self.bus.inspect(&[queue]).await;
        let report = report.map_err(|error| Problem::Failed(error.to_string()))?;
        Ok(match report.queues.first().map(|queue| queue.state) {
            Some(QueueState::Present(depth)) => Some(depth.ready),
            Some(QueueState::Missing) => Some(0),
            Some(QueueState::Refused) | None => None,
        })
    }
}

/// Fails when `messages` receives anything for a while.
pub(super) async fn expect_silence(messages: &Messages) -> Result<(), Problem> {
    let arrived = messages.wait_for(QUIET_PERIOD, |messages| messages.first().cloned());
    match arrived.await {
        Some(message) => {
            failed(format!("the worker published {}", message.envelope.message_type()))
        }
        None => Ok(()),
    }
}

/// Returns the replies to a call, without its progress.
fn replies<'a>(messages: &'a [Received], id: &'a str) -> impl Iterator<Item = &'a Received> {
    messages.iter().filter(move |message| {
        message.belongs_to(id) && !is_interim(message.envelope.message_type())
    })
}

/// Decodes a reply.
fn decode(message: &Received) -> Result<Reply, Problem> {
    let (envelope, limits) = (message.envelope.clone(), Limits::default());
    let outcome = if envelope.message_type() == ToolError::TYPE {
        envelope.decode(limits).map(Outcome::Error)
    } else {
        envelope.decode(limits).map(Outcome::Result)
    };
    match outcome {
        Ok(outcome) => Ok(Reply { outcome, envelope, at: message.at }),
        Err(error) => failed(format!("the reply cannot be read: {error}")),
    }
}

/// Fails unless the reply is an error with this code and one of the given execution states.
pub(super) fn expect_error(
    reply: &Reply,
    code: &ToolErrorCode,
    executed: &[Executed],
) -> Result<String, Problem> {
    match &reply.outcome {
        Outcome::Error(error) if error.code == *code && executed.contains(&error.executed) => {
            Ok(reply.outcome.to_string())
        }
        other => {
            let states: Vec<_> = executed.iter().map(ToString::to_string).collect();
            failed(format!("expected {code}, executed: {}; got {other}", states.join(" or ")))
        }
    }
}

/// Fails unless the reply is a result.
pub(super) fn expect_result(reply: &Reply) -> Result<&ToolInvokeResponse, Problem> {
    match &reply.outcome {
        Outcome::Result(result) => Ok(result),
        Outcome::Error(error) => failed(format!(
            "expected a result; got {}, executed: {}: {}",
            error.code, error.executed, error.message
        )),
    }
}
