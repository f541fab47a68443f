//! The sections of the configuration that several processes share.

use std::time::Duration;

use rockbot_contracts::{InstanceId, topology::DEFAULT_NAMESPACE};
use secrecy::SecretString;
use serde::Deserialize;

/// `[bus]`: which bus, and under which namespace.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BusSection {
    /// `amqp://` or `amqps://` URL of the broker, or `memory` where a process can embed the fleet.
    pub url: SecretString,
    /// Name of the exchange and prefix of the queues. Default `rockbot`.
    pub namespace: String,
}

impl Default for BusSection {
    fn default() -> Self {
        Self { url: SecretString::from("memory"), namespace: DEFAULT_NAMESPACE.to_owned() }
    }
}

/// `[service]`: this process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSection {
    /// Name of this process among its replicas; generated when absent.
    pub instance: Option<InstanceId>,
    /// How long a stop waits for what is under way, in seconds. Default 25, under the 30 that
    /// Kubernetes gives.
    pub drain_seconds: Option<u64>,
}

impl ServiceSection {
    /// The configured instance, or one made of the host's name and a random part.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        if let Some(instance) = &self.instance {
            return instance.clone();
        }
        let random = InstanceId::generate();
        // The end of the id is its random part; the beginning is the time.
        let random = &random.as_str()[24..];
        let host = std::env::var("HOSTNAME").unwrap_or_default();
        let named = InstanceId::new(format!("{host}-{random}")).ok().filter(|_| !host.is_empty());
        named.unwrap_or_else(InstanceId::generate)
    }

    /// How long a stop waits for what is under way.
    #[must_use]
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.unwrap_or(25))
    }
}

/// `[log]`: what is logged, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// A level, or a filter such as `warn,rockbot_bus=debug`. Default `info`.
    pub level: String,
    /// For people or for machines. Default `text`.
    pub format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}
