//! The sections of the configuration that several processes share.

use std::{path::PathBuf, sync::LazyLock, time::Duration};

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
    /// Certificates, for `amqps://`.
    pub tls: TlsSection,
}

/// `[bus.tls]`: files in PEM, for `amqps://`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSection {
    /// The only authorities that the broker's certificate may come from; the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// This process's own certificate; goes with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The key of that certificate; goes with `cert_file`.
    pub key_file: Option<PathBuf>,
}

impl Default for BusSection {
    fn default() -> Self {
        Self {
            url: SecretString::from("memory"),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            tls: TlsSection::default(),
        }
    }
}

/// `[service]`: this process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSection {
    /// How strict the process is about its surroundings. Default `development`.
    pub profile: Profile,
    /// Name of this process among its replicas; generated when absent.
    pub instance: Option<InstanceId>,
    /// How long a stop waits for what is under way, in seconds. Default 25, under the 30 that
    /// Kubernetes gives.
    pub drain_seconds: Option<u64>,
}

/// How strict a process is about its surroundings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// What is easy to start with goes.
    #[default]
    Development,
    /// What gives a stranger a way in is refused: no password in clear across a network, no `guest`,
    /// and no request whose sender the broker does not vouch for.
    Production,
}

impl ServiceSection {
    /// Whether what gives a stranger a way in is refused.
    #[must_use]
    pub fn is_production(&self) -> bool {
        self.profile == Profile::Production
    }

    /// The configured instance, or one made of the host's name and a random part, which is the same
    /// as long as the process lives.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        static GENERATED: LazyLock<InstanceId> = LazyLock::new(ServiceSection::generated);
        self.instance.clone().unwrap_or_else(|| GENERATED.clone())
    }

    fn generated() -> InstanceId {
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
    /// For people or for machines. Default `auto`.
    pub format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people on a terminal, for machines elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
