//! The login link of the person who started the process.

use std::io::{self, Write};

use rockbot_gateway::Guard;
use rockbot_service::ServeError;

use super::unavailable_error;

/// Prints a login link to standard error. It is a secret, so it is not logged.
pub(crate) fn print_login_link(guard: &Guard) -> Result<(), ServeError> {
    if let Some(link) = guard.login_link().map_err(unavailable_error)? {
        // A closed standard error is not an error: the link is for people at a terminal.
        let _ = writeln!(io::stderr(), "open {link} within 5 minutes to sign in");
    }
    Ok(())
}
