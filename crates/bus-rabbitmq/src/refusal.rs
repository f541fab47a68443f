//! What the broker refused, in words that say what to do.

use lapin::{Error, ErrorKind, protocol::AMQPErrorKind};

/// A code of AMQP 0-9-1 that is acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 403: the user may not.
    AccessRefused,
    /// 404: there is no such exchange, queue or virtual host.
    NotFound,
    /// 406: it exists with other arguments.
    PreconditionFailed,
}

/// The refusal in an error, if it is one of those.
pub(crate) fn refusal(error: &Error) -> Option<Refusal> {
    let ErrorKind::ProtocolError(error) = error.kind() else { return None };
    let code = match error.kind() {
        AMQPErrorKind::Soft(soft) => soft.get_id(),
        AMQPErrorKind::Hard(hard) => hard.get_id(),
    };
    match code {
        403 => Some(Refusal::AccessRefused),
        404 => Some(Refusal::NotFound),
        406 => Some(Refusal::PreconditionFailed),
        _ => None,
    }
}

/// Why the broker refused to declare or consume something, and what to do about it.
pub(crate) fn explain(error: &Error) -> String {
    let said = error.to_string();
    if refusal(error) != Some(Refusal::PreconditionFailed) {
        return said;
    }
    match Difference::read(&said) {
        Some(difference) => difference.explain(),
        None => format!("{said}; it exists with other arguments. {}", remedy("queue")),
    }
}

/// An argument that a queue or exchange already has with another value.
#[derive(Debug, PartialEq, Eq)]
struct Difference<'a> {
    argument: &'a str,
    /// `queue` or `exchange`.
    what: &'a str,
    name: &'a str,
    /// What this process asks for; none when it asks for nothing.
    wanted: Option<&'a str>,
    /// What is there.
    present: Option<&'a str>,
}

impl<'a> Difference<'a> {
    /// Reads `inequivalent arg 'ARG' for queue 'NAME' in vhost '/': received the value 'A' of type
    /// 'T' but current is the value 'B' of type 'T'`, where a value can also be `none` or stand
    /// without the words before it.
    fn read(said: &'a str) -> Option<Self> {
        let (_, rest) = said.split_once("inequivalent arg '")?;
        let (argument, rest) = rest.split_once("' for ")?;
        let (what, rest) = rest.split_once(" '")?;
        let (name, rest) = rest.split_once("' in vhost ")?;
        let (_, rest) = rest.split_once(": received ")?;
        let (wanted, present) = rest.split_once(" but current is ")?;
        Some(Self { argument, what, name, wanted: value(wanted), present: value(present) })
    }

    fn explain(&self) -> String {
        let Self { argument, what, name, wanted, present } = self;
        let (wanted, present) = (wanted.unwrap_or("none"), present.unwrap_or("none"));
        format!(
            "{what} {name} exists with {argument} = {present}, and this process needs {argument} \
             = {wanted}. {}",
            remedy(what)
        )
    }
}

/// The first quoted value; nothing for `none`.
fn value(said: &str) -> Option<&str> {
    if said.starts_with("none") {
        return None;
    }
    said.split('\'').nth(1)
}

fn remedy(what: &str) -> &'static str {
    if what == "exchange" {
        "Delete the exchange and it is declared anew, or use another namespace"
    } else {
        "Drain the queue and delete it, and it is declared anew, or use another namespace"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_and_both_values_are_named() {
        let said = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'a.b' in \
                    vhost '/': received the value '7' of type 'long' but current is the value \
                    '10000' of type 'long'";
        let explained = Difference::read(said).expect("it can be read").explain();
        assert!(
            explained.starts_with(
                "queue a.b exists with x-max-length = 10000, and this process needs x-max-length \
                 = 7. Drain"
            ),
            "{explained}"
        );
    }

    #[test]
    fn a_value_can_be_missing_on_either_side_or_stand_alone() {
        let said = "inequivalent arg 'x-expires' for queue 'q' in vhost '/': received none but \
                    current is the value '5' of type 'long'";
        let read = Difference::read(said).expect("it can be read");
        assert_eq!((read.wanted, read.present), (None, Some("5")));
        let said = "inequivalent arg 'type' for exchange 'e' in vhost 'v': received 'topic' but \
                    current is 'direct'";
        let read = Difference::read(said).expect("it can be read");
        assert_eq!(
            (read.what, read.wanted, read.present),
            ("exchange", Some("topic"), Some("direct"))
        );
        assert_eq!(Difference::read("something else"), None);
    }
}
