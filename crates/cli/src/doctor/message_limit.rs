//! The broker's limit on the size of messages.

use std::time::Duration;

use rockbot_bus::{Bus as _, Publication, PublishError};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{Envelope, InstanceId, RoutingKey, json::Limits, topology::doctor_ping};
use serde_json::json;
use tokio::time::Instant;

use crate::{render, settings::Settings};

/// Time limit of connecting and of the message.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a repeated check probes the broker again.
const INTERVAL: Duration = Duration::from_secs(300);

/// The broker's response to a message over the limit of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessageLimit {
    /// The broker accepts it.
    Accepted,
    /// The broker refuses it, as it should.
    Refused,
    /// The response is not known, for this reason.
    Unknown(String),
}

/// The last probe of the broker.
#[derive(Debug, Default)]
pub(super) struct MessageLimitProbe(Option<(Instant, MessageLimit)>);

impl MessageLimit {
    /// Returns the line of the report. A broker that refuses the message has none.
    pub(super) fn line(&self) -> Option<String> {
        match self {
            Self::Accepted => Some("message limit  over 4 MiB".to_owned()),
            Self::Refused => None,
            Self::Unknown(reason) => {
                Some(format!("message limit  unknown: {}", render::short_line(reason, 300)))
            }
        }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Accepted => json!({"oversized": "accepted"}),
            Self::Refused => json!({"oversized": "refused"}),
            Self::Unknown(reason) => json!({"oversized": "unknown", "reason": reason}),
        }
    }
}

impl MessageLimitProbe {
    /// Returns the result of the last probe, which is repeated after some minutes, because it sends over 4 MiB and the
    /// broker logs a refusal.
    pub(super) async fn current(&mut self, settings: &Settings) -> MessageLimit {
        if let Some((time, limit)) = &self.0
            && time.elapsed() < INTERVAL
        {
            return limit.clone();
        }
        let limit = probe(settings).await;
        self.0 = Some((Instant::now(), limit.clone()));
        limit
    }
}

/// Publishes a message over the limit of a fleet on a connection of its own, which a refusal affects. The message has
/// no queue, so a broker that accepts it drops it.
async fn probe(settings: &Settings) -> MessageLimit {
    let limit = Limits::default().bytes;
    // Larger than the message, which this process would reject otherwise.
    let limits = Limits { bytes: 2 * limit };
    let bus = match RabbitBus::start(&RabbitConfig { limits, ..settings.rabbit() }) {
        Ok(bus) => bus,
        Err(error) => return MessageLimit::Unknown(error.to_string()),
    };
    let response = match bus.connected(TIMEOUT).await {
        Ok(()) => publish(&bus, limit + 1).await,
        Err(error) => MessageLimit::Unknown(error.to_string()),
    };
    bus.close().await;
    response
}

async fn publish(bus: &RabbitBus, bytes: usize) -> MessageLimit {
    let key = match RoutingKey::new(format!("{}.{}", doctor_ping(), InstanceId::generate())) {
        Ok(key) => key,
        Err(error) => return MessageLimit::Unknown(error.to_string()),
    };
    let envelope = Envelope::raw("Ping", vec![b' '; bytes]).transient();
    let sent = bus.publish(Publication::mandatory(key, envelope).within(TIMEOUT)).await;
    from_outcome(&sent)
}

fn from_outcome(sent: &Result<(), PublishError>) -> MessageLimit {
    match sent {
        Ok(()) | Err(PublishError::Unroutable { .. }) => MessageLimit::Accepted,
        Err(PublishError::TooLarge { .. }) => MessageLimit::Refused,
        Err(error) => MessageLimit::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_follows_the_outcome_of_the_message() {
        let key = RoutingKey::new("doctor.ping.1").unwrap();
        let unroutable = PublishError::Unroutable { key: key.clone() };
        assert_eq!(from_outcome(&Err(unroutable)), MessageLimit::Accepted);
        let too_large = PublishError::TooLarge { bytes: 5, limit: 4 };
        assert_eq!(from_outcome(&Err(too_large)), MessageLimit::Refused);
        let reason = "ACCESS_REFUSED\u{1b}[31m\nmore".to_owned();
        let unknown = from_outcome(&Err(PublishError::Unconfirmed { key, reason }));
        let line = unknown.line().unwrap();
        assert!(line.starts_with("message limit  unknown: "), "{line}");
        assert!(line.ends_with("ACCESS_REFUSED more"), "{line}");
        assert_eq!(unknown.to_json()["oversized"], "unknown");
        assert_eq!(MessageLimit::Refused.line(), None);
    }
}
