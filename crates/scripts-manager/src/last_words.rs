//! What `run.py` leaves in the status of its container: a line of facts, and the end of stderr.
//!
//! A script can write there too, and forge what is said about itself and nothing else.

use std::time::Duration;

/// What ended a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedBy {
    Itself,
    Timeout,
    Output,
    Memory,
}

/// What is known about a script that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastWords {
    pub(crate) ended_by: EndedBy,
    pub(crate) code: i32,
    pub(crate) elapsed: Duration,
    /// How many bytes it printed.
    pub(crate) printed: usize,
    /// The end of what it complained about.
    pub(crate) complaints: String,
}

impl LastWords {
    /// Reads them; nothing when they are somebody else's.
    pub(crate) fn read(message: &str) -> Option<Self> {
        let (facts, complaints) = message.split_once('\n')?;
        let mut facts = facts.split(' ');
        let ended_by = match facts.next()? {
            "exit" => EndedBy::Itself,
            "timeout" => EndedBy::Timeout,
            "output" => EndedBy::Output,
            "memory" => EndedBy::Memory,
            _ => return None,
        };
        let code = facts.next()?.parse().ok()?;
        let elapsed = Duration::from_millis(facts.next()?.parse().ok()?);
        let printed = facts.next()?.parse().ok()?;
        let complaints = complaints.to_owned();
        facts.next().is_none().then_some(Self { ended_by, code, elapsed, printed, complaints })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_read_and_nothing_else_is_taken_for_them() {
        let words = LastWords::read("exit 3 1500 42\nValueError\n").unwrap();
        let expected = LastWords {
            ended_by: EndedBy::Itself,
            code: 3,
            elapsed: Duration::from_millis(1500),
            printed: 42,
            complaints: "ValueError\n".to_owned(),
        };
        assert_eq!(words, expected);
        for foreign in [
            "",
            "exit",
            "exit 3 1500 42",
            "exit 3 1500\n",
            "exit 3 1500 42 7\n",
            "exit x 1500 42\n",
            "exit 3 -1 42\n",
            "left 3 1500 42\n",
            "\nexit 3 1500 42\n",
        ] {
            assert_eq!(LastWords::read(foreign), None, "{foreign:?}");
        }
    }
}
