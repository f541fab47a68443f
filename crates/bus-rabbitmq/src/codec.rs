//! Conversion between envelopes and AMQP properties.
//!
//! Encoding fails only when text is too long for AMQP. Decoding accepts everything that a peer sends and
//! omits invalid parts; consumers validate the message.

use std::sync::Arc;

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use rockbot_contracts::{
    ContentTrust, DeliveryMode, Envelope, MessageId, RoutingKey, TraceContext,
    envelope::TimeBudget,
    headers::{Header, WIRE_VERSION},
    topology::DELIVERED_TOO_OFTEN,
};

/// Error for an id over the 255 bytes of an AMQP short string, or headers that exceed a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} has {bytes} bytes, over the limit of AMQP")]
pub struct TooLong {
    /// The property.
    pub field: &'static str,
    /// Size of its value.
    pub bytes: usize,
}

/// Maximum size of the text in all headers of a message. Headers must fit one frame: a frame over the
/// negotiated size (128 KiB by default) closes the connection.
const MAX_HEADER_BYTES: usize = 64 * 1024;

const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

/// Encodes all of `envelope` except its body and its user, which the connection sets.
///
/// # Errors
/// When an id, or all headers together, are too long for AMQP.
pub fn encode(envelope: &Envelope) -> Result<BasicProperties, TooLong> {
    let bytes = texts(envelope).iter().filter_map(|(_, text)| *text).map(str::len).sum();
    if bytes > MAX_HEADER_BYTES {
        return Err(TooLong { field: "the text of all headers", bytes });
    }
    let mut properties = BasicProperties::default()
        .with_message_id(short("message_id", envelope.message_id.as_str())?)
        .with_type(short("type", &envelope.raw_type)?)
        .with_timestamp(envelope.timestamp)
        .with_content_type(Envelope::CONTENT_TYPE.into())
        .with_delivery_mode(match envelope.delivery_mode {
            DeliveryMode::Persistent => PERSISTENT,
            DeliveryMode::Transient => TRANSIENT,
        })
        .with_headers(encode_headers(envelope));
    if let Some(id) = &envelope.correlation_id {
        properties = properties.with_correlation_id(short("correlation_id", id)?);
    }
    if let Some(key) = &envelope.reply_to {
        properties = properties.with_reply_to(short("reply_to", key.as_str())?);
    }
    Ok(properties)
}

fn short(field: &'static str, text: &str) -> Result<ShortString, TooLong> {
    ShortString::try_new(text).map_err(|_| TooLong { field, bytes: text.len() })
}

fn encode_headers(envelope: &Envelope) -> FieldTable {
    let mut table = FieldTable::default();
    let mut put = |header: Header, value: AMQPValue| {
        table.insert(header.on_wire().into(), value);
    };
    let number = |number: u64| AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX));
    put(Header::Wire, number(envelope.wire.into()));
    if let Some(budget) = envelope.budget {
        let timeout_ms = u64::try_from(budget.timeout.as_millis()).unwrap_or(u64::MAX);
        put(Header::TimeoutMs, number(timeout_ms));
        put(Header::Deadline, number(budget.deadline_unix_ms));
    }
    if envelope.attempt > 1 {
        put(Header::Attempt, number(envelope.attempt.into()));
    }
    for (header, text) in texts(envelope) {
        if let Some(text) = text {
            put(header, AMQPValue::LongString(text.into()));
        }
    }
    table
}

/// Text of a header that is set.
const TRUE: &str = "true";

/// Returns the headers with text values.
fn texts(envelope: &Envelope) -> [(Header, Option<&str>); 10] {
    [
        (Header::Source, envelope.source.as_deref()),
        (Header::Destination, envelope.destination.as_deref()),
        (Header::ContentTrust, envelope.trust.map(ContentTrust::as_str)),
        (Header::ToolProvider, envelope.tool_provider.as_deref()),
        (Header::McpServer, envelope.mcp_server.as_deref()),
        (Header::AcceptsInput, envelope.accepts_input.then_some(TRUE)),
        (Header::ClientKey, envelope.has_client_key.then_some(TRUE)),
        (Header::DeadLetterReason, envelope.dead_letter_reason.as_deref()),
        (Header::TraceParent, envelope.trace.parent.as_deref()),
        (Header::TraceState, envelope.trace.state.as_deref()),
    ]
}

/// Decodes an envelope. Missing fields and fields of another type are omitted; a missing message id is
/// generated.
#[must_use]
pub fn decode(properties: &BasicProperties, body: Vec<u8>) -> Envelope {
    let text = |field: &Option<ShortString>| field.as_ref().map(|text| Arc::from(text.as_str()));
    let message_id = properties.message_id().as_ref().map(ShortString::as_str);
    let message_id = message_id.and_then(|id| MessageId::new(id).ok());
    let reply_to = properties.reply_to().as_ref().map(ShortString::as_str);
    let mut envelope = Envelope {
        message_id: message_id.unwrap_or_else(MessageId::generate),
        raw_type: text(properties.kind()).unwrap_or_else(|| Arc::from("")),
        correlation_id: text(properties.correlation_id()),
        reply_to: reply_to.and_then(|key| RoutingKey::new(key).ok()),
        timestamp: properties.timestamp().unwrap_or_default(),
        delivery_mode: match properties.delivery_mode() {
            Some(PERSISTENT) => DeliveryMode::Persistent,
            _ => DeliveryMode::Transient,
        },
        // The broker validates that this is the user of the publisher's connection.
        user_id: text(properties.user_id()),
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
    };
    if let Some(headers) = properties.headers() {
        decode_headers(headers, &mut envelope);
    }
    envelope
}

fn decode_headers(headers: &FieldTable, envelope: &mut Envelope) {
    let (mut timeout_ms, mut deadline) = (None, None);
    for (name, value) in headers.inner() {
        let Some(header) = Header::from_wire(name.as_str()) else { continue };
        match header {
            Header::Wire => {
                // An invalid version counts as too new.
                let wire = as_number(value).and_then(|wire| u32::try_from(wire).ok());
                envelope.wire = wire.unwrap_or(u32::MAX);
            }
            Header::Attempt => {
                let attempt = as_number(value).and_then(|attempt| u32::try_from(attempt).ok());
                // An invalid number counts as a retry: only retries have this header.
                envelope.attempt = attempt.unwrap_or(u32::MAX).max(1);
            }
            Header::TimeoutMs => timeout_ms = as_number(value),
            Header::Deadline => deadline = as_number(value),
            Header::Source => envelope.source = as_text(value),
            Header::Destination => envelope.destination = as_text(value),
            Header::ContentTrust => {
                envelope.trust = as_text(value).and_then(|trust| ContentTrust::parse(&trust));
            }
            Header::ToolProvider => envelope.tool_provider = as_text(value),
            Header::McpServer => envelope.mcp_server = as_text(value),
            Header::AcceptsInput => {
                envelope.accepts_input = as_text(value).as_deref() == Some(TRUE);
            }
            Header::ClientKey => {
                envelope.has_client_key = as_text(value).as_deref() == Some(TRUE);
            }
            Header::DeadLetterReason => envelope.dead_letter_reason = as_text(value),
            Header::TraceParent => envelope.trace.parent = as_text(value),
            Header::TraceState => envelope.trace.state = as_text(value),
        }
    }
    if envelope.dead_letter_reason.is_none() {
        envelope.dead_letter_reason = broker_dead_letter_reason(headers).map(Arc::from);
    }
    envelope.budget = match (timeout_ms, deadline) {
        (None, None) => None,
        // If one is missing, the other alone limits the time.
        (timeout, deadline) => Some(TimeBudget {
            timeout: std::time::Duration::from_millis(timeout.unwrap_or(u64::MAX)),
            deadline_unix_ms: deadline.unwrap_or(u64::MAX),
        }),
    };
}

/// Returns whether the broker dead-lettered this message from another queue.
pub(crate) fn was_dead_letter(properties: &BasicProperties) -> bool {
    let headers = properties.headers().as_ref();
    headers.is_some_and(|headers| headers.inner().contains_key("x-death"))
}

/// Returns the reason of the broker's last dead-lettering of the message.
fn broker_dead_letter_reason(headers: &FieldTable) -> Option<&'static str> {
    let AMQPValue::FieldArray(deaths) = headers.inner().get("x-death")? else { return None };
    let AMQPValue::FieldTable(last) = deaths.as_slice().first()? else { return None };
    let reason = as_text(last.inner().get("reason")?)?;
    Some(match &*reason {
        "delivery_limit" => DELIVERED_TOO_OFTEN,
        "expired" => "expired in the queue",
        "maxlen" => "the queue was full",
        "rejected" => "rejected by the consumer without a reason",
        _ => "dead-lettered by the broker",
    })
}

/// Returns the number of this delivery of a message, from 1, as counted by the broker; at most
/// `max_deliveries`.
///
/// The broker passes on a publisher's `x-delivery-count` until it sets its own, with the first
/// redelivery. The count of a first delivery is therefore ignored, and so is the part of a count above
/// the limit of the queue.
#[must_use]
pub fn delivery_attempt(
    properties: &BasicProperties,
    redelivered: bool,
    max_deliveries: u32,
) -> u32 {
    if !redelivered {
        return 1;
    }
    let headers = properties.headers().as_ref();
    let counted = headers
        .and_then(|headers| headers.inner().get("x-delivery-count"))
        .and_then(as_number)
        .and_then(|count| u32::try_from(count).ok());
    // Classic queues report redelivery without a count.
    counted.unwrap_or(0).max(1).saturating_add(1).min(max_deliveries.max(2))
}

fn as_text(value: &AMQPValue) -> Option<Arc<str>> {
    match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(Arc::from),
        AMQPValue::ShortString(text) => Some(text.as_str().into()),
        _ => None,
    }
}

fn as_number(value: &AMQPValue) -> Option<u64> {
    match value {
        AMQPValue::ShortShortInt(number) => u64::try_from(*number).ok(),
        AMQPValue::ShortShortUInt(number) => Some(u64::from(*number)),
        AMQPValue::ShortInt(number) => u64::try_from(*number).ok(),
        AMQPValue::ShortUInt(number) => Some(u64::from(*number)),
        AMQPValue::LongInt(number) => u64::try_from(*number).ok(),
        AMQPValue::LongUInt(number) => Some(u64::from(*number)),
        AMQPValue::LongLongInt(number) => u64::try_from(*number).ok(),
        AMQPValue::Timestamp(number) => Some(*number),
        _ => as_text(value)?.trim().parse().ok(),
    }
}
