//! Failures of commands that call a tool: each says whether the tool ran.

use std::fmt;

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_service::exit;
use rockbot_tools::ToolFailure;
use serde_json::json;

use crate::{
    failure::{Failure, Outcome, exit_code},
    print::outln,
    render,
};

/// A failed call, with its code and execution state.
#[derive(Debug)]
struct CallFailure {
    message: String,
    code: ToolErrorCode,
    executed: Executed,
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, code, executed } = self;
        write!(f, "{message} ({code}, executed: {executed})")
    }
}

impl std::error::Error for CallFailure {}

/// Returns the failure of a call.
pub(crate) fn failed(failure: &ToolFailure) -> Failure {
    let (code, executed) = (failure.code(), failure.executed());
    let message = render::clean(&failure.to_string());
    Failure { code: exit_code(&code), cause: CallFailure { message, code, executed }.into() }
}

/// Returns whether a failure is that of a call, rather than one before it.
pub(crate) fn is_of_call(failure: &Failure) -> bool {
    failure.cause.is::<CallFailure>()
}

/// Completes the outcome of a command that calls a tool: if it failed before the call, the tool did not
/// run. With `json`, the failure is printed as the result of the call.
pub(crate) fn complete(outcome: Outcome, json: bool) -> Outcome {
    let failure = match outcome {
        // An output that cannot be written says nothing about the call.
        Err(failure) if !matches!(failure.code, exit::OK | exit::IO) && !is_of_call(&failure) => {
            failure
        }
        other => return other,
    };
    let code = match failure.code {
        exit::USAGE => ToolErrorCode::InvalidArguments,
        _ => ToolErrorCode::Unavailable,
    };
    let message = format!("{:#}", failure.cause);
    if json {
        let is_retryable = code == ToolErrorCode::Unavailable;
        let result = json!({
            "ok": false, "code": code, "message": message, "executed": Executed::No,
            "isRetryable": is_retryable,
        });
        outln!("{}", render::json(&result))?;
        return Ok(failure.code);
    }
    let cause = CallFailure { message, code, executed: Executed::No };
    Err(Failure { code: failure.code, cause: cause.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: Outcome) -> String {
        format!("{:#}", complete(outcome, false).unwrap_err().cause)
    }

    #[test]
    fn only_failure_before_the_call_is_completed() {
        let unavailable = || Failure::unavailable("no broker");
        assert_eq!(text(Err(unavailable())), "no broker (unavailable, executed: no)");
        assert_eq!(text(Err(Failure::usage("no"))), "no (invalid_arguments, executed: no)");
        let failure = ToolFailure::TimedOut {
            after: std::time::Duration::from_secs(1),
            executed: Executed::Unknown,
            repeatable: false,
        };
        let message = text(Err(failed(&failure)));
        assert!(message.ends_with("(timeout, executed: unknown)"), "{message}");
        let unwritten = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert!(!text(Err(unwritten.into())).contains("executed"));
        assert_eq!(complete(Err(unavailable()), true).unwrap(), exit::UNAVAILABLE);
    }
}
