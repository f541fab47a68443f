//! Arguments that queues are declared with at the broker.

use std::time::Duration;

use crate::topology::{
    DEAD_LETTER_DELIVERIES, DEAD_LETTER_TTL, QueueKind, QueueName, QueueSpec, REPLY_QUEUE_EXPIRY,
};

/// Value of a queue argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// Text.
    Text(String),
    /// An integer.
    Number(u64),
}

/// Returns the name of the dead-letter exchange of `namespace`.
#[must_use]
pub fn dead_letter_exchange(namespace: &str) -> String {
    format!("{namespace}.dlx")
}

/// Returns the name of `queue` at the broker.
#[must_use]
pub fn queue_name(namespace: &str, queue: &QueueName) -> String {
    format!("{namespace}.{queue}")
}

impl QueueSpec {
    /// Returns the arguments for the declaration of the queue in `namespace`.
    #[must_use]
    pub fn arguments(&self, namespace: &str) -> Vec<(&'static str, Argument)> {
        let text = |text: &str| Argument::Text(text.to_owned());
        let mut arguments = vec![("x-max-length", Argument::Number(self.max_length.into()))];
        if let Some(bytes) = self.max_bytes {
            arguments.push(("x-max-length-bytes", Argument::Number(bytes)));
        }
        match self.kind {
            QueueKind::Work => arguments.extend([
                ("x-queue-type", text("quorum")),
                // The broker counts redeliveries.
                (
                    "x-delivery-limit",
                    Argument::Number(u64::from(self.deliveries.saturating_sub(1))),
                ),
                ("x-overflow", text("reject-publish")),
                ("x-dead-letter-exchange", Argument::Text(dead_letter_exchange(namespace))),
                (
                    "x-dead-letter-routing-key",
                    Argument::Text(queue_name(namespace, &self.dead_letters_as)),
                ),
                ("x-dead-letter-strategy", text("at-least-once")),
            ]),
            QueueKind::DeadLetters => arguments.extend([
                ("x-queue-type", text("quorum")),
                ("x-delivery-limit", Argument::Number(DEAD_LETTER_DELIVERIES.into())),
                ("x-message-ttl", millis(DEAD_LETTER_TTL)),
            ]),
            QueueKind::Reply => arguments.push(("x-expires", millis(REPLY_QUEUE_EXPIRY))),
            QueueKind::Exclusive => {}
        }
        arguments
    }
}

fn millis(duration: Duration) -> Argument {
    Argument::Number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::InstanceId;

    #[test]
    fn monitor_queue_is_bounded_and_drops_its_oldest_message() {
        let queue = QueueSpec::monitor(&InstanceId::new("i").unwrap(), Vec::new());
        assert_eq!(queue_name("rockbot", &queue.name), "rockbot.monitor.i");
        let arguments = queue.arguments("rockbot");
        let names: Vec<_> = arguments.iter().map(|(name, _)| *name).collect();
        // Without `x-overflow` the broker drops the head.
        assert_eq!(names, ["x-max-length", "x-max-length-bytes"]);
        assert!(arguments.iter().all(|(_, bound)| matches!(bound, Argument::Number(1..))));
    }
}
