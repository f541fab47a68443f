//! Encoded envelopes round-trip, and arbitrary properties decode without errors.

use std::{sync::Arc, time::Duration};

use lapin::{
    BasicProperties,
    protocol::basic::{gen_properties, parse_properties},
    types::{AMQPValue, DecimalValue, FieldArray, FieldTable, ShortString},
};
use proptest::{collection::vec, option, prelude::*};
use rockbot_bus_rabbitmq::codec::{decode, delivery_attempt, encode};
use rockbot_contracts::{
    ContentTrust, DeliveryMode, Envelope, MessageId, RoutingKey, TraceContext,
    envelope::TimeBudget,
    headers::{Header, WIRE_VERSION},
    ids::MAX_ID_BYTES,
    topology::DELIVERED_TOO_OFTEN,
};

/// Encodes properties as bytes and decodes them.
fn over_the_wire(properties: &BasicProperties) -> BasicProperties {
    let written = gen_properties(properties)(Vec::new().into()).expect("encoded");
    let (bytes, _) = written.into_inner();
    let (rest, read) = parse_properties(bytes.as_slice()).expect("decoded");
    assert!(rest.is_empty(), "{} bytes are left over", rest.len());
    read
}

/// Text of any language that fits an AMQP short string.
fn short_text() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|mut text| {
        text.truncate(text.floor_char_boundary(MAX_ID_BYTES));
        text
    })
}

fn id() -> impl Strategy<Value = MessageId> {
    short_text().prop_map(|text| {
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        MessageId::new(text).unwrap_or_else(|_| MessageId::generate())
    })
}

fn routing_key() -> impl Strategy<Value = RoutingKey> {
    let segments = vec("[a-zA-Z0-9_%~-]{1,20}", 1..12);
    segments.prop_map(|segments| RoutingKey::new(segments.join(".")).expect("a routing key"))
}

fn text() -> impl Strategy<Value = Option<Arc<str>>> {
    option::of(any::<String>().prop_map(Arc::from))
}

/// Budgets in whole milliseconds that fit a signed 64-bit number.
fn budget() -> impl Strategy<Value = Option<TimeBudget>> {
    const LATEST: u64 = i64::MAX as u64;
    let budget = (0..=LATEST, 0..=LATEST).prop_map(|(timeout_ms, deadline_unix_ms)| TimeBudget {
        timeout: Duration::from_millis(timeout_ms),
        deadline_unix_ms,
    });
    option::of(budget)
}

prop_compose! {
    fn envelope()(
        message_id in id(),
        raw_type in short_text(),
        correlation_id in option::of(short_text()),
        reply_to in option::of(routing_key()),
        timestamp: u64,
        persistent: bool,
        names in (text(), text(), text(), text(), text()),
        trace in (text(), text()),
        wire: u32,
        budget in budget(),
        attempt in 1..=u32::MAX,
        trust in option::of(proptest::sample::select(&ContentTrust::ALL[..])),
        (accepts_input, has_client_key) in any::<(bool, bool)>(),
        body in vec(any::<u8>(), 0..64),
    ) -> Envelope {
        let (source, destination, tool_provider, mcp_server, dead_letter_reason) = names;
        let delivery_mode =
            if persistent { DeliveryMode::Persistent } else { DeliveryMode::Transient };
        Envelope {
            message_id,
            raw_type: raw_type.into(),
            correlation_id: correlation_id.map(Into::into),
            reply_to,
            timestamp,
            delivery_mode,
            user_id: None,
            source,
            destination,
            wire,
            budget,
            attempt,
            trust,
            tool_provider,
            mcp_server,
            dead_letter_reason,
            accepts_input,
            has_client_key,
            trace: TraceContext { parent: trace.0, state: trace.1 },
            body,
        }
    }
}

/// Any value that a header can have.
fn value() -> impl Strategy<Value = AMQPValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(AMQPValue::Boolean),
        any::<i8>().prop_map(AMQPValue::ShortShortInt),
        any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        any::<i16>().prop_map(AMQPValue::ShortInt),
        any::<u16>().prop_map(AMQPValue::ShortUInt),
        any::<i32>().prop_map(AMQPValue::LongInt),
        any::<u32>().prop_map(AMQPValue::LongUInt),
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        any::<f32>().prop_map(AMQPValue::Float),
        any::<f64>().prop_map(AMQPValue::Double),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        (any::<u8>(), any::<u32>())
            .prop_map(|(scale, value)| AMQPValue::DecimalValue(DecimalValue { scale, value })),
        short_text().prop_map(|text| AMQPValue::ShortString(text.into())),
        vec(any::<u8>(), 0..40).prop_map(|bytes| AMQPValue::LongString(bytes.into())),
        any::<i64>().prop_map(|number| AMQPValue::LongString(number.to_string().into())),
        vec(any::<u8>(), 0..40).prop_map(|bytes| AMQPValue::ByteArray(bytes.into())),
        Just(AMQPValue::Void),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|values| AMQPValue::FieldArray(array(values))),
            vec((header_name(), inner), 0..4)
                .prop_map(|entries| AMQPValue::FieldTable(table(entries))),
        ]
    })
}

fn array(values: Vec<AMQPValue>) -> FieldArray {
    let mut array = FieldArray::default();
    values.into_iter().for_each(|value| array.push(value));
    array
}

fn table(entries: Vec<(String, AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(name.into(), value);
    }
    table
}

/// A known name with zero to three prefixes, or any other name.
fn header_name() -> impl Strategy<Value = String> {
    let known = proptest::sample::select(&Header::ALL[..]);
    let known = (known, proptest::sample::select(&["", "rb-", "rb-rb-", "rb-rb-rb-"][..]));
    prop_oneof![
        known.prop_map(|(header, prefix)| {
            format!("{prefix}{}", header.on_wire().trim_start_matches("rb-"))
        }),
        short_text(),
    ]
}

prop_compose! {
    fn properties()(
        texts in (
            option::of(short_text()),
            option::of(short_text()),
            option::of(short_text()),
            option::of(short_text()),
            option::of(short_text()),
        ),
        numbers in (option::of(any::<u64>()), option::of(any::<u8>()), option::of(any::<u8>())),
        headers in option::of(vec((header_name(), value()), 0..12)),
    ) -> BasicProperties {
        let mut properties = BasicProperties::default();
        let (message_id, kind, correlation_id, reply_to, content_type) = texts;
        let set = |text: Option<String>| text.map(ShortString::from);
        if let Some(text) = set(message_id) { properties = properties.with_message_id(text); }
        if let Some(text) = set(kind) { properties = properties.with_type(text); }
        if let Some(text) = set(correlation_id) { properties = properties.with_correlation_id(text); }
        if let Some(text) = set(reply_to) { properties = properties.with_reply_to(text); }
        if let Some(text) = set(content_type) { properties = properties.with_content_type(text); }
        let (timestamp, delivery_mode, priority) = numbers;
        if let Some(number) = timestamp { properties = properties.with_timestamp(number); }
        if let Some(number) = delivery_mode { properties = properties.with_delivery_mode(number); }
        if let Some(number) = priority { properties = properties.with_priority(number); }
        if let Some(headers) = headers { properties = properties.with_headers(table(headers)); }
        properties
    }
}

proptest! {
    #[test]
    fn envelope_round_trips(envelope in envelope()) {
        let properties = encode(&envelope).expect("it fits");
        prop_assert_eq!(&decode(&properties, envelope.body.clone()), &envelope);
        let read = over_the_wire(&properties);
        prop_assert_eq!(&decode(&read, envelope.body.clone()), &envelope);
    }

    #[test]
    fn arbitrary_properties_decode_and_encode_again(properties in properties()) {
        let envelope = decode(&properties, b"body".to_vec());
        prop_assert_eq!(&envelope.body, b"body");
        // Dead letters are decoded and encoded again.
        let encoded = encode(&envelope).expect("decoded text fits");
        let budget = envelope.budget;
        let mut read = decode(&over_the_wire(&encoded), envelope.body.clone());
        // Times beyond the signed 64-bit range are clamped.
        read.budget = budget;
        prop_assert_eq!(read, envelope);
    }

    #[test]
    fn id_over_the_limit_is_rejected_by_name(length in MAX_ID_BYTES + 1..2000) {
        let envelope = Envelope::raw("Text", Vec::new()).with_correlation_id("x".repeat(length));
        let error = encode(&envelope).expect_err("too long");
        prop_assert_eq!((error.field, error.bytes), ("correlation_id", length));
    }

    #[test]
    fn non_numeric_version_is_too_new(value in value()) {
        let decoded = with_header("rb-wire", value.clone());
        let number = number_of(&value).and_then(|number| u32::try_from(number).ok());
        prop_assert_eq!(decoded.wire, number.unwrap_or(u32::MAX));
    }

    #[test]
    fn numbers_decode_from_any_type_and_text(number in 0..=i64::MAX as u64) {
        let signed = i64::try_from(number).expect("it fits");
        let mut forms = vec![
            AMQPValue::LongLongInt(signed),
            AMQPValue::Timestamp(number),
            AMQPValue::LongString(number.to_string().into()),
            AMQPValue::LongString(format!(" {number} ").into()),
            AMQPValue::ShortString(number.to_string().into()),
        ];
        forms.extend(u32::try_from(number).map(AMQPValue::LongUInt));
        forms.extend(u16::try_from(number).map(AMQPValue::ShortUInt));
        forms.extend(u8::try_from(number).map(AMQPValue::ShortShortUInt));
        for form in forms {
            let budget = with_header("rb-deadline", form.clone()).budget.expect("a budget");
            prop_assert_eq!(budget.deadline_unix_ms, number, "{:?}", form);
            // Without a timeout, the deadline alone limits the time.
            prop_assert_eq!(budget.timeout, Duration::from_millis(u64::MAX));
        }
    }

    #[test]
    fn own_headers_decode_with_one_or_two_prefixes(text in any::<String>()) {
        for prefix in ["rb-", "rb-rb-"] {
            let value = || AMQPValue::LongString(text.as_str().into());
            let decoded = with_header(&format!("{prefix}source"), value());
            prop_assert_eq!(decoded.source.as_deref(), Some(text.as_str()));
            let decoded = with_header(&format!("{prefix}traceparent"), value());
            prop_assert_eq!(decoded.trace.parent.as_deref(), Some(text.as_str()));
        }
        let value = || AMQPValue::LongString(text.as_str().into());
        prop_assert_eq!(with_header("source", value()).source, None);
        let plain = with_header("traceparent", value());
        prop_assert_eq!(plain.trace.parent.as_deref(), Some(text.as_str()));
    }
}

#[test]
fn missing_version_and_id_get_defaults() {
    let first = decode(&BasicProperties::default(), Vec::new());
    let second = decode(&BasicProperties::default(), Vec::new());
    assert_eq!(first.wire, WIRE_VERSION);
    assert_ne!(first.message_id, second.message_id);
}

#[test]
fn brokers_dead_letters_have_readable_reasons() {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let death = |reason: &str| AMQPValue::FieldTable(table(vec![("reason".into(), text(reason))]));
    let deaths = |reasons: &[&str]| {
        AMQPValue::FieldArray(array(reasons.iter().map(|reason| death(reason)).collect()))
    };
    let reason = |value| with_header("x-death", value).dead_letter_reason;
    for (broker_reason, expected) in [
        ("delivery_limit", DELIVERED_TOO_OFTEN),
        ("expired", "expired in the queue"),
        ("maxlen", "the queue was full"),
        ("rejected", "rejected by the consumer without a reason"),
        ("from_the_future", "dead-lettered by the broker"),
    ] {
        // The latest entry comes first.
        assert_eq!(reason(deaths(&[broker_reason, "expired"])).as_deref(), Some(expected));
    }
    assert_eq!(reason(deaths(&[])), None);
    assert_eq!(reason(text("expired")), None);
    let own = ("rb-dead-letter-reason".to_owned(), text("invalid request"));
    let headers = table(vec![("x-death".to_owned(), deaths(&["rejected"])), own]);
    let envelope = decode(&BasicProperties::default().with_headers(headers), Vec::new());
    assert_eq!(envelope.dead_letter_reason.as_deref(), Some("invalid request"));
}

fn with_header(name: &str, value: AMQPValue) -> Envelope {
    let headers = table(vec![(name.to_owned(), value)]);
    decode(&BasicProperties::default().with_headers(headers), Vec::new())
}

/// Independent implementation of the codec's number conversion.
fn number_of(value: &AMQPValue) -> Option<u64> {
    let integer: i128 = match value {
        AMQPValue::ShortShortInt(number) => (*number).into(),
        AMQPValue::ShortShortUInt(number) => (*number).into(),
        AMQPValue::ShortInt(number) => (*number).into(),
        AMQPValue::ShortUInt(number) => (*number).into(),
        AMQPValue::LongInt(number) => (*number).into(),
        AMQPValue::LongUInt(number) => (*number).into(),
        AMQPValue::LongLongInt(number) => (*number).into(),
        AMQPValue::Timestamp(number) => (*number).into(),
        AMQPValue::ShortString(text) => return text.as_str().trim().parse().ok(),
        AMQPValue::LongString(text) => {
            return std::str::from_utf8(text.as_bytes()).ok()?.trim().parse().ok();
        }
        _ => return None,
    };
    u64::try_from(integer).ok()
}

#[test]
fn only_the_count_of_a_redelivery_is_believed() {
    let counted = |value| {
        let mut headers = FieldTable::default();
        headers.insert("x-delivery-count".into(), value);
        BasicProperties::default().with_headers(headers)
    };
    let attempt = |value, redelivered| delivery_attempt(&counted(value), redelivered, 5);
    let number = AMQPValue::LongLongInt;
    for forged in [number(1), number(i64::from(u32::MAX)), AMQPValue::LongString("3".into())] {
        assert_eq!(attempt(forged, false), 1);
    }
    assert_eq!(attempt(number(1), true), 2);
    assert_eq!(attempt(number(4), true), 5);
    for beyond in [5, i64::from(u32::MAX)] {
        assert_eq!(attempt(number(beyond), true), 5, "the broker dead-letters it before");
    }
    for invalid in [number(-1), number(i64::MAX), AMQPValue::Void] {
        assert_eq!(attempt(invalid, true), 2);
    }
    assert_eq!(delivery_attempt(&BasicProperties::default(), true, 5), 2);
}
