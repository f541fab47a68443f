//! Exit codes of failed operations on dead letters.

use rockbot_bus::PublishError;
use rockbot_monitor::letters::LetterError;
use rockbot_service::exit;

use crate::failure::Failure;

/// Returns the failure of a command for an error. The exit code says whether a repetition may succeed.
pub(super) fn failure_of(error: LetterError) -> Failure {
    let code = match &error {
        LetterError::NotPermitted { .. } => return Failure::denied(error.to_string()),
        LetterError::NoSuchQueue { .. } | LetterError::Bus(_) => exit::UNAVAILABLE,
        LetterError::Remains(_) | LetterError::Delete { .. } => exit::UNAVAILABLE,
        LetterError::NotFound { .. } => exit::ANSWERED_WITH_ERROR,
        LetterError::NoWorkQueue { .. } => exit::USAGE,
        LetterError::Publish { source, .. } => publish_code(source),
    };
    Failure { code, cause: error.into() }
}

fn publish_code(error: &PublishError) -> u8 {
    use PublishError::{Closed, Disconnected, Refused, Unconfirmed, Unroutable};
    match error {
        Refused { .. } | Unconfirmed { .. } => exit::TEMPORARY,
        Unroutable { .. } | Disconnected { .. } | Closed => exit::UNAVAILABLE,
        // The message can never be published.
        _ => exit::ANSWERED_WITH_ERROR,
    }
}
