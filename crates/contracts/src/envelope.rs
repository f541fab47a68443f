//! The envelope around a payload.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    headers::WIRE_VERSION,
    ids::MessageId,
    json,
    message::{DecodeError, Message},
    topology::RoutingKey,
};

/// Durability of a message across a restart of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeliveryMode {
    /// Requests and results: written to disk by the broker.
    #[default]
    Persistent,
    /// Progress and announcements: may be lost in a restart.
    Transient,
}

/// Origin of content, which determines its trust. Tool output is untrusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentTrust {
    /// RockBot itself.
    System,
    /// A person.
    UserInput,
    /// A model's request to run a tool.
    ToolRequest,
    /// Output of a tool.
    ToolOutput,
    /// Another agent.
    AgentMessage,
}

impl ContentTrust {
    /// Every value.
    pub const ALL: [Self; 5] =
        [Self::System, Self::UserInput, Self::ToolRequest, Self::ToolOutput, Self::AgentMessage];

    /// Returns the value of the header.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::UserInput => "user-input",
            Self::ToolRequest => "tool-request",
            Self::ToolOutput => "tool-output",
            Self::AgentMessage => "agent-message",
        }
    }

    /// Parses the value of the header; `None` for unknown values.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trust| trust.as_str() == text)
    }
}

/// W3C trace context; see [`trace`](crate::trace).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceContext {
    /// `traceparent`.
    pub parent: Option<Arc<str>>,
    /// `tracestate`.
    pub state: Option<Arc<str>>,
}

/// Time budget of the receiver, as duration and deadline, so that a skewed clock can only shorten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBudget {
    /// Remaining time when the message was published.
    pub timeout: Duration,
    /// Deadline by the sender's clock, in Unix milliseconds.
    pub deadline_unix_ms: u64,
}

impl TimeBudget {
    /// Creates a budget that starts now.
    #[must_use]
    pub fn starting_now(timeout: Duration) -> Self {
        let deadline_unix_ms = unix_ms(SystemTime::now()).saturating_add(whole_millis(timeout));
        Self { timeout, deadline_unix_ms }
    }

    /// Returns the remaining time for a receiver whose clock shows `now`: the smaller of both values.
    #[must_use]
    pub fn remaining(&self, now: SystemTime) -> Duration {
        let by_clock = self.deadline_unix_ms.saturating_sub(unix_ms(now));
        self.timeout.min(Duration::from_millis(by_clock))
    }

    /// Returns the time since the budget started, for a receiver whose clock shows `now`; zero when the
    /// sender's clock is ahead.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Duration {
        let start = self.deadline_unix_ms.saturating_sub(whole_millis(self.timeout));
        Duration::from_millis(unix_ms(now).saturating_sub(start))
    }

    /// Returns the least time by which a clock that shows `now` is behind the sender's; zero when it is
    /// ahead.
    #[must_use]
    pub fn behind(&self, now: SystemTime) -> Duration {
        let start = self.deadline_unix_ms.saturating_sub(whole_millis(self.timeout));
        Duration::from_millis(start.saturating_sub(unix_ms(now)))
    }
}

/// A message: the properties to route and correlate it, and the payload as JSON bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Unique id of this message. Ids of one process sort by creation: a cancel applies to messages of
    /// its conversation that were created before it.
    pub message_id: MessageId,
    /// Message type as received; [`Envelope::message_type`] returns it without its qualifier.
    pub raw_type: Arc<str>,
    /// Correlation id: the tool call id for messages about a call.
    pub correlation_id: Option<Arc<str>>,
    /// Address of the reply: a routing key, never a queue name.
    pub reply_to: Option<RoutingKey>,
    /// Creation time in Unix seconds.
    pub timestamp: u64,
    /// Durability at the broker.
    pub delivery_mode: DeliveryMode,
    /// Broker user of the publisher. An adapter sets it on received messages and ignores it on
    /// published ones. `None` when the sender is not validated.
    pub user_id: Option<Arc<str>>,
    /// Agent or service that sent it, as claimed by the sender.
    pub source: Option<Arc<str>>,
    /// Agent or service that it is addressed to.
    pub destination: Option<Arc<str>>,
    /// Major version of its wire format.
    pub wire: u32,
    /// Time budget of the receiver.
    pub budget: Option<TimeBudget>,
    /// Attempt under this correlation id, from 1. Above 1 an earlier attempt may have arrived.
    pub attempt: u32,
    /// Trust in the content.
    pub trust: Option<ContentTrust>,
    /// Kind of the tool provider.
    pub tool_provider: Option<Arc<str>>,
    /// Exact name of the MCP server.
    pub mcp_server: Option<Arc<str>>,
    /// Set on a tool request whose caller can pass requests for input on to a user.
    pub accepts_input: bool,
    /// Set on a tool request whose id comes from a client's key, under which another process may have sent it
    /// before.
    pub has_client_key: bool,
    /// Reason of its dead-lettering.
    pub dead_letter_reason: Option<Arc<str>>,
    /// Trace context.
    pub trace: TraceContext,
    /// The payload as JSON.
    pub body: Vec<u8>,
}

impl Envelope {
    /// The content type of every message.
    pub const CONTENT_TYPE: &'static str = "application/json";

    /// Wraps a payload with a new id, the current time and this build's wire version; persistent.
    ///
    /// # Panics
    /// Never for the records of this crate: tests serialize all of them.
    #[must_use]
    #[expect(clippy::expect_used, reason = "records of this crate always serialize")]
    pub fn from_payload<M: Message>(payload: &M) -> Self {
        let body = serde_json::to_vec(payload).expect("a wire record serializes");
        Self::raw(M::TYPE, body)
    }

    /// Wraps a payload that is already JSON.
    #[must_use]
    pub fn raw(message_type: &str, body: Vec<u8>) -> Self {
        Self {
            message_id: MessageId::generate(),
            raw_type: message_type.into(),
            correlation_id: None,
            reply_to: None,
            timestamp: unix_ms(SystemTime::now()) / 1000,
            delivery_mode: DeliveryMode::Persistent,
            user_id: None,
            source: None,
            destination: None,
            wire: WIRE_VERSION,
            budget: None,
            attempt: 1,
            trust: None,
            tool_provider: None,
            mcp_server: None,
            accepts_input: false,
            has_client_key: false,
            dead_letter_reason: None,
            trace: TraceContext::default(),
            body,
        }
    }

    /// Returns the bare message type. Some peers send qualified names; the qualifier up to the last `.` is
    /// dropped.
    #[must_use]
    pub fn message_type(&self) -> &str {
        // Types are too short for a search algorithm with a setup cost.
        let qualifier = self.raw_type.bytes().rposition(|byte| byte == b'.');
        &self.raw_type[qualifier.map_or(0, |dot| dot + 1)..]
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the address of the reply.
    #[must_use]
    pub fn reply_to(mut self, key: RoutingKey) -> Self {
        self.reply_to = Some(key);
        self
    }

    /// Sets the sender.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Arc<str>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the trust in the content.
    #[must_use]
    pub fn with_trust(mut self, trust: ContentTrust) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Sets a time budget of `timeout` from now.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.budget = Some(TimeBudget::starting_now(timeout));
        self
    }

    /// Turns it into the next attempt: a new message with the same correlation id.
    #[must_use]
    pub fn next_attempt(mut self) -> Self {
        self.message_id = MessageId::generate();
        self.attempt = self.attempt.saturating_add(1);
        self
    }

    /// Makes the message transient.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.delivery_mode = DeliveryMode::Transient;
        self
    }

    /// Decodes the payload after checking wire version, type and size, in this order.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode<M: Message>(&self, limits: json::Limits) -> Result<M, DecodeError> {
        if self.wire > WIRE_VERSION {
            return Err(DecodeError::NewerWire { got: self.wire, supported: WIRE_VERSION });
        }
        if self.message_type() != M::TYPE {
            let got = self.message_type().chars().take(64).collect();
            return Err(DecodeError::UnexpectedType { expected: M::TYPE, got });
        }
        if self.body.len() > limits.bytes {
            return Err(DecodeError::TooLarge { bytes: self.body.len(), limit: limits.bytes });
        }
        let malformed = |reason| DecodeError::Malformed { expected: M::TYPE, reason };
        // Validated as a whole, which is faster than string by string in the parser.
        let text = str::from_utf8(&self.body).map_err(|error| malformed(error.to_string()))?;
        serde_json::from_str(text).map_err(|source| {
            if json::is_too_deep(&source) {
                return DecodeError::TooDeep { limit: json::MAX_DEPTH };
            }
            malformed(json::describe_error(&source))
        })
    }

    /// Returns the remaining time budget; `None` without a budget.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.budget.map(|budget| budget.remaining(SystemTime::now()))
    }
}

/// Returns `time` in Unix milliseconds; 0 before 1970.
#[must_use]
pub fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, whole_millis)
}

/// Returns `duration` in whole milliseconds; `u64::MAX` for longer ones.
#[must_use]
pub fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_type_is_accepted() {
        let envelope = Envelope::raw("RockBot.Tools.ToolInvokeRequest", Vec::new());
        assert_eq!(envelope.message_type(), "ToolInvokeRequest");
    }

    #[test]
    fn message_ids_sort_within_a_millisecond() {
        let ids: Vec<_> = (0..100).map(|_| Envelope::raw("Any", Vec::new()).message_id).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn clock_skew_only_shortens_a_budget() {
        let budget = TimeBudget::starting_now(Duration::from_secs(10));
        let now = SystemTime::now();
        let ahead = budget.remaining(now + Duration::from_secs(60));
        let behind = budget.remaining(now - Duration::from_secs(60));
        assert_eq!(ahead, Duration::ZERO);
        assert_eq!(behind, Duration::from_secs(10));
    }

    #[test]
    fn unlimited_budget_does_not_overflow() {
        let budget = TimeBudget::starting_now(Duration::MAX);
        assert_eq!(budget.deadline_unix_ms, u64::MAX);
        assert!(budget.remaining(SystemTime::now()) > Duration::from_secs(1 << 40));
    }
}
