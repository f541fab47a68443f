//! Arguments that queues are declared with at the broker.

use std::time::Duration;

use crate::topology::{
    DEAD_LETTER_DELIVERIES, DEAD_LETTER_TTL, MAX_DELIVERIES, QueueKind, QueueName, QueueSpec,
    REPLY_QUEUE_EXPIRY, RETAINED_TTL,
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
                ("x-delivery-limit", Argument::Number((MAX_DELIVERIES - 1).into())),
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
            QueueKind::Retained => arguments.extend([
                ("x-queue-type", text("quorum")),
                // The broker counts redeliveries, and drops the message afterwards.
                ("x-delivery-limit", Argument::Number((MAX_DELIVERIES - 1).into())),
                ("x-message-ttl", millis(RETAINED_TTL)),
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
    fn work_and_dead_letter_queues_are_bounded_in_bytes() {
        let queue = QueueSpec::work(&crate::topology::tool_invoke());
        for queue in [queue.dead_letters(), queue] {
            let arguments = queue.arguments("rockbot");
            let bytes = arguments.iter().find(|(name, _)| *name == "x-max-length-bytes");
            assert!(matches!(bytes, Some((_, Argument::Number(1..)))), "{arguments:?}");
        }
    }

    /// Every broker configuration that ships limits messages to the size that receivers accept, and
    /// gives calls their time.
    #[test]
    fn shipped_brokers_limit_messages_and_not_calls() {
        let size = format!("max_message_size = {}", crate::json::Limits::default().bytes);
        for (name, text) in [
            ("compose", include_str!("../../../deploy/compose/rabbitmq/rabbitmq.conf")),
            ("embedded", include_str!("../../../helm/rockbot/templates/rabbitmq/embedded.yaml")),
            ("operator", include_str!("../../../helm/rockbot/templates/rabbitmq/operator.yaml")),
            ("tests", include_str!("../../testkit/src/broker.rs")),
        ] {
            assert!(text.contains(&size), "{name}: {size}");
            assert!(text.contains("consumer_timeout = 90000000"), "{name}");
        }
    }

    #[test]
    fn retained_queue_is_bounded_and_its_messages_expire() {
        let queue = QueueSpec::retained(&crate::topology::tool_cancel());
        assert_eq!(queue_name("rockbot", &queue.name), "rockbot.tool.cancel.retained");
        let arguments = queue.arguments("rockbot");
        for bound in ["x-max-length", "x-max-length-bytes", "x-delivery-limit", "x-message-ttl"] {
            let found = arguments.iter().find(|(name, _)| *name == bound);
            assert!(matches!(found, Some((_, Argument::Number(1..)))), "{bound}: {arguments:?}");
        }
        // Without `x-overflow` the broker drops the head, and a publisher is never refused.
        let mut names = arguments.iter().map(|(name, _)| *name);
        assert!(names.all(|name| name != "x-overflow"), "{arguments:?}");
    }

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
