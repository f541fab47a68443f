//! Messages between the processes of one agent.

use serde::{Deserialize, Serialize};

use crate::{ids::InstanceId, message::Message, user::UserMessage};

/// A user's message for the process that runs its conversation, forwarded by the process that received it
/// to `user.message.<agent>.at.<instance>`.
///
/// Its envelope has the message id, reply-to, time budget and trace context of the user's message, and a
/// correlation id that the [`ForwardReceipt`] repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardedMessage {
    /// The process that forwards it and waits for the receipt at `user.message.<agent>.at.<from>`.
    pub from: InstanceId,
    /// Broker user of the sender, validated by the process that forwards it; absent on a bus without
    /// users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The user's message.
    pub message: UserMessage,
}

impl Message for ForwardedMessage {
    const TYPE: &'static str = "ForwardedMessage";
}

/// Ends the responsibility of a process for a message that it forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardReceipt {
    /// Outcome of the message.
    pub outcome: ForwardOutcome,
}

impl Message for ForwardReceipt {
    const TYPE: &'static str = "ForwardReceipt";
}

/// Outcome of a forwarded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardOutcome {
    /// Its final reply was published, or its sender is gone.
    Answered,
    /// The process does not run the conversation, or stopped doing so. The message is the sender's again.
    /// Unknown outcomes parse as this one.
    #[serde(other)]
    Returned,
}
