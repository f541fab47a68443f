//! Failures of stopped scripts, with what the scripts had printed.

use std::fmt::Write;

use rockbot_tools::ToolFailure;

use crate::output::end_of;

/// The maximum size of stdout in a failure. Failures are cut to 2,000 characters on the bus.
const MAX_STDOUT_BYTES: usize = 1200;
/// The maximum size of stderr in a failure.
const MAX_STDERR_BYTES: usize = 500;

/// Adds what a script had printed to the failure that stopped it: the end of stdout and of stderr, together
/// at most 1,700 bytes. Without output, the failure is unchanged.
#[must_use]
pub fn with_output(failure: ToolFailure, stdout: &str, stderr: &str) -> ToolFailure {
    let mut output = String::new();
    for (name, text, limit) in
        [("stdout", stdout, MAX_STDOUT_BYTES), ("stderr", stderr, MAX_STDERR_BYTES)]
    {
        if text.trim().is_empty() {
            continue;
        }
        if !output.is_empty() {
            output.push('\n');
        }
        let end = end_of(text, limit);
        let _ = if end.len() < text.len() {
            let (shown, all) = (end.len(), text.len());
            writeln!(output, "{name} until then, the last {shown} of {all} bytes:")
        } else {
            writeln!(output, "{name} until then:")
        };
        output.push_str(end.trim_end());
    }
    if output.is_empty() {
        return failure;
    }
    ToolFailure::WithOutput { failure: Box::new(failure), output }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::Executed;

    use super::*;

    fn cancelled() -> ToolFailure {
        ToolFailure::Cancelled { executed: Executed::Yes }
    }

    #[test]
    fn failure_shows_both_streams() {
        let failure = with_output(cancelled(), "1\n2\n", "slow\n");
        assert_eq!(
            failure.to_string(),
            "cancelled\nstdout until then:\n1\n2\nstderr until then:\nslow"
        );
        assert_eq!(failure.executed(), Executed::Yes);
        assert!(matches!(with_output(cancelled(), "\n", ""), ToolFailure::Cancelled { .. }));
    }

    #[test]
    fn longest_output_fits_into_a_message() {
        let failure = with_output(cancelled(), &"é".repeat(9999), &"x".repeat(9999));
        let text = failure.to_string();
        assert!(text.contains("stdout until then, the last 1200 of 19998 bytes:\né"), "{text}");
        assert!(text.contains("é\nstderr until then, the last 500 of 9999 bytes:\nx"), "{text}");
        let message = failure.to_wire(rockbot_contracts::ToolCallId::generate(), "script").message;
        assert_eq!(message, text);
    }
}
