//! A user's message as it arrived at this process.

use std::{borrow::Cow, sync::Arc, time::Duration};

use rockbot_bus::Delivery;
use rockbot_contracts::{
    Envelope, ForwardedMessage, InstanceId, RoutingKey, UserMessage, json::Limits,
};

use super::replies::ReplyTarget;
use crate::reply_to::user_reply_to;

/// A validated message of a user.
pub(super) struct Incoming<'a> {
    pub(super) envelope: &'a Envelope,
    pub(super) reply_to: &'a RoutingKey,
    pub(super) message: UserMessage,
    /// The broker user of the sender, if the broker validates users.
    pub(super) sender: Option<Arc<str>>,
    /// Number of its delivery, from 1. Above 1, a process may have processed it before.
    pub(super) delivery: u32,
    /// The process that forwarded it, if it did not come from the inbox of the agent.
    pub(super) forwarded_by: Option<InstanceId>,
}

impl<'a> Incoming<'a> {
    /// Reads a message from the inbox of the agent.
    ///
    /// # Errors
    /// Returns why the message cannot be processed.
    pub(super) fn from_inbox(delivery: &'a Delivery) -> Result<Self, Cow<'static, str>> {
        let (envelope, delivery) = (delivery.envelope(), delivery.attempt());
        let reply_to = user_reply_to(envelope)?;
        let message = envelope.decode(Limits::default()).map_err(|error| error.to_string())?;
        let sender = envelope.user_id.clone();
        Ok(Self { envelope, reply_to, message, sender, delivery, forwarded_by: None })
    }

    /// Reads a message that another process of the agent forwarded.
    ///
    /// # Errors
    /// Returns why the message cannot be processed.
    pub(super) fn from_process(envelope: &'a Envelope) -> Result<Self, Cow<'static, str>> {
        let reply_to = user_reply_to(envelope)?;
        let forwarded: ForwardedMessage =
            envelope.decode(Limits::default()).map_err(|error| error.to_string())?;
        let ForwardedMessage { from, sender, message } = forwarded;
        let (sender, forwarded_by) = (sender.map(Arc::from), Some(from));
        Ok(Self { envelope, reply_to, message, sender, delivery: 1, forwarded_by })
    }

    /// Returns `true` if a process may have processed the message before.
    pub(super) fn is_redelivered(&self) -> bool {
        self.delivery > 1
    }

    /// Returns `true` if the sender may no longer wait for an answer.
    pub(super) fn is_expired(&self) -> bool {
        self.envelope.remaining() == Some(Duration::ZERO)
    }

    /// Returns `true` if the message may have been delivered before, by the broker or by the process that
    /// forwarded it. A client that asks for an answer again sends the message again; a cancel is not sent
    /// again.
    pub(super) fn is_copy(&self) -> bool {
        self.is_redelivered() || self.message.cancel || self.forwarded_by.is_some()
    }

    pub(super) fn target(&self) -> ReplyTarget {
        ReplyTarget {
            session_id: self.message.session_id.clone(),
            in_reply_to: self.envelope.message_id.clone(),
            reply_to: self.reply_to.clone(),
            detail: self.message.detail,
        }
    }
}
