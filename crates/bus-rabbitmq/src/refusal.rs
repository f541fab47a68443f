//! Errors of operations that the broker refuses, with a remedy.

use lapin::{Error, ErrorKind, protocol::AMQPErrorKind};

/// Reply codes of AMQP 0-9-1 that are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyCode {
    /// 403: the user lacks a permission.
    AccessRefused,
    /// 404: the exchange, queue or virtual host does not exist.
    NotFound,
    /// 405: another connection uses the queue exclusively.
    ResourceLocked,
    /// 406: the queue or exchange exists with other arguments.
    PreconditionFailed,
}

/// Returns the reply code of an error, if it is one that is handled.
pub(crate) fn reply_code(error: &Error) -> Option<ReplyCode> {
    let ErrorKind::ProtocolError(error) = error.kind() else { return None };
    let code = match error.kind() {
        AMQPErrorKind::Soft(soft) => soft.get_id(),
        AMQPErrorKind::Hard(hard) => hard.get_id(),
    };
    match code {
        403 => Some(ReplyCode::AccessRefused),
        404 => Some(ReplyCode::NotFound),
        405 => Some(ReplyCode::ResourceLocked),
        406 => Some(ReplyCode::PreconditionFailed),
        _ => None,
    }
}

/// Returns whether a queue is refused because another connection declared or consumes it exclusively. The
/// broker refuses a declaration as locked, and a consumer with an explanation only.
pub(crate) fn is_in_use(error: &Error) -> bool {
    match reply_code(error) {
        Some(ReplyCode::ResourceLocked) => true,
        Some(ReplyCode::AccessRefused) => error.to_string().contains("in exclusive use"),
        _ => false,
    }
}

/// Returns the size of a message that the broker dropped because of `max_message_size`, and that limit, in bytes.
/// RabbitMQ reports `message size 5000000 is larger than configured max size 4194304`.
pub(crate) fn oversized(error: &Error) -> Option<(usize, usize)> {
    if reply_code(error) != Some(ReplyCode::PreconditionFailed) {
        return None;
    }
    parse_sizes(&error.to_string())
}

fn parse_sizes(text: &str) -> Option<(usize, usize)> {
    let (_, rest) = text.split_once("message size ")?;
    let (size, rest) = rest.split_once(" is larger than ")?;
    let (_, limit) = rest.split_once("max size ")?;
    let digits = limit.find(|c: char| !c.is_ascii_digit()).unwrap_or(limit.len());
    Some((size.parse().ok()?, limit[..digits].parse().ok()?))
}

/// Describes an error, with a remedy if a queue or exchange exists with other arguments.
pub(crate) fn explain(error: &Error) -> String {
    let text = error.to_string();
    if reply_code(error) != Some(ReplyCode::PreconditionFailed) {
        return text;
    }
    match Difference::parse(&text) {
        Some(difference) => difference.explain(),
        None => format!("{text}; {}", remedy("queue")),
    }
}

/// An argument of a queue or exchange that exists with another value.
#[derive(Debug, PartialEq, Eq)]
struct Difference<'a> {
    argument: &'a str,
    /// `queue` or `exchange`.
    kind: &'a str,
    name: &'a str,
    /// Value in the declaration of this process, if any.
    declared: Option<&'a str>,
    /// Value at the broker, if any.
    present: Option<&'a str>,
}

impl<'a> Difference<'a> {
    /// Parses `inequivalent arg 'ARG' for queue 'NAME' in vhost '/': received the value 'A' of type 'T'
    /// but current is the value 'B' of type 'T'`. A value can also be `none`, or have no `the value`
    /// before it.
    fn parse(text: &'a str) -> Option<Self> {
        let (_, rest) = text.split_once("inequivalent arg '")?;
        let (argument, rest) = rest.split_once("' for ")?;
        let (kind, rest) = rest.split_once(" '")?;
        let (name, rest) = rest.split_once("' in vhost ")?;
        let (_, rest) = rest.split_once(": received ")?;
        let (declared, present) = rest.split_once(" but current is ")?;
        Some(Self { argument, kind, name, declared: value(declared), present: value(present) })
    }

    fn explain(&self) -> String {
        let Self { argument, kind, name, declared, present } = self;
        let (declared, present) = (declared.unwrap_or("none"), present.unwrap_or("none"));
        format!(
            "{kind} {name} exists with {argument} = {present}, but this process declares {argument} \
             = {declared}; {}",
            remedy(kind)
        )
    }
}

/// Returns the first quoted value; `None` for `none`.
fn value(text: &str) -> Option<&str> {
    if text.starts_with("none") {
        return None;
    }
    text.split('\'').nth(1)
}

fn remedy(kind: &str) -> &'static str {
    if kind == "exchange" {
        "delete the exchange, so that it is declared again, or use another namespace"
    } else {
        "drain and delete the queue, so that it is declared again, or use another namespace"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_oversized_message_are_read() {
        for text in [
            "PRECONDITION_FAILED - message size 62914600 is larger than configured max size 4194304",
            "message size 62914600 is larger than max size 4194304, and more",
        ] {
            assert_eq!(parse_sizes(text), Some((62_914_600, 4_194_304)), "{text}");
        }
        assert_eq!(parse_sizes("message size many is larger than max size 4"), None);
        assert_eq!(parse_sizes("inequivalent arg 'x-max-length' for queue 'a'"), None);
    }

    #[test]
    fn explanation_names_argument_and_both_values() {
        let text = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'a.b' in \
                    vhost '/': received the value '7' of type 'long' but current is the value \
                    '10000' of type 'long'";
        let explained = Difference::parse(text).expect("parsed").explain();
        assert!(
            explained.starts_with(
                "queue a.b exists with x-max-length = 10000, but this process declares \
                 x-max-length = 7; drain"
            ),
            "{explained}"
        );
    }

    #[test]
    fn value_may_be_missing_or_unprefixed() {
        let text = "inequivalent arg 'x-expires' for queue 'q' in vhost '/': received none but \
                    current is the value '5' of type 'long'";
        let parsed = Difference::parse(text).expect("parsed");
        assert_eq!((parsed.declared, parsed.present), (None, Some("5")));
        let text = "inequivalent arg 'type' for exchange 'e' in vhost 'v': received 'topic' but \
                    current is 'direct'";
        let parsed = Difference::parse(text).expect("parsed");
        assert_eq!(
            (parsed.kind, parsed.declared, parsed.present),
            ("exchange", Some("topic"), Some("direct"))
        );
        assert_eq!(Difference::parse("something else"), None);
    }
}
