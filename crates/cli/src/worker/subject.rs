//! The call that the checks make.

use rockbot_contracts::ToolRegistration;

use super::check::{Problem, skipped};

/// The tool that is called, and its arguments.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) tool: ToolRegistration,
    /// Arguments of a short call.
    pub(super) arguments: Option<String>,
    /// Arguments of a call that takes at least five seconds.
    pub(super) slow: Option<String>,
    /// Arguments of a call with a result over 1 MiB.
    pub(super) large: Option<String>,
}

impl Subject {
    /// Returns the arguments of a short call.
    pub(super) fn arguments(&self) -> Result<&str, Problem> {
        given(self.arguments.as_ref(), "this tool needs arguments; give --tool and --arguments")
    }

    /// Returns the arguments of a call that takes at least five seconds.
    pub(super) fn slow(&self) -> Result<&str, Problem> {
        given(self.slow.as_ref(), "give --slow-arguments of a call that takes at least 5 s")
    }

    /// Returns the arguments of a call with a large result.
    pub(super) fn large(&self) -> Result<&str, Problem> {
        given(self.large.as_ref(), "give --large-arguments of a call with a result over 1 MiB")
    }
}

fn given<'a>(arguments: Option<&'a String>, reason: &str) -> Result<&'a str, Problem> {
    match arguments {
        Some(arguments) => Ok(arguments),
        None => skipped(reason),
    }
}
