//! The termination message that `run.py` writes: a line of facts, and the end of stderr.
//!
//! A script can write it as well, and so forge the report about itself, but nothing else.

use std::time::Duration;

/// The limit that stopped a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoppedBy {
    None,
    Timeout,
    Output,
    Memory,
}

/// The facts about an exited script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TerminationMessage {
    pub(crate) stopped_by: StoppedBy,
    pub(crate) code: i32,
    pub(crate) elapsed: Duration,
    /// The size of its output.
    pub(crate) output_bytes: usize,
    /// The end of its stderr.
    pub(crate) stderr: String,
}

impl TerminationMessage {
    /// Parses a message; `None` if it does not come from `run.py`.
    pub(crate) fn parse(message: &str) -> Option<Self> {
        let (facts, stderr) = message.split_once('\n')?;
        let mut facts = facts.split(' ');
        let stopped_by = match facts.next()? {
            "exit" => StoppedBy::None,
            "timeout" => StoppedBy::Timeout,
            "output" => StoppedBy::Output,
            "memory" => StoppedBy::Memory,
            _ => return None,
        };
        let code = facts.next()?.parse().ok()?;
        let elapsed = Duration::from_millis(facts.next()?.parse().ok()?);
        let output_bytes = facts.next()?.parse().ok()?;
        let stderr = stderr.to_owned();
        facts.next().is_none().then_some(Self { stopped_by, code, elapsed, output_bytes, stderr })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_wrapper_are_parsed() {
        let message = TerminationMessage::parse("exit 3 1500 42\nValueError\n").unwrap();
        let expected = TerminationMessage {
            stopped_by: StoppedBy::None,
            code: 3,
            elapsed: Duration::from_millis(1500),
            output_bytes: 42,
            stderr: "ValueError\n".to_owned(),
        };
        assert_eq!(message, expected);
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
            assert_eq!(TerminationMessage::parse(foreign), None, "{foreign:?}");
        }
    }
}
