//! Validation of the reply-to of requests and messages of users.

use rockbot_contracts::{Envelope, RoutingKey, topology::is_user_reply};

/// Returns the reply address of a user's request or message.
///
/// # Errors
/// Returns why no reply may be sent.
pub(crate) fn user_reply_to(envelope: &Envelope) -> Result<&RoutingKey, &'static str> {
    match &envelope.reply_to {
        Some(key) if is_user_reply(key) => Ok(key),
        // A reply to any other key would let the sender publish requests through this process.
        Some(_) => Err("reply-to is not an agent reply address"),
        None => Err("reply-to is missing"),
    }
}
