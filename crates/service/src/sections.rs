//! Configuration sections shared by several processes.

use std::{sync::LazyLock, time::Duration};

use rockbot_contracts::{InstanceId, period::optional_duration};
use serde::Deserialize;

/// `[service]`: the process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSection {
    /// Strictness about the environment. Default `development`.
    pub profile: Profile,
    /// Name of the process among its replicas; generated when absent.
    pub instance: Option<InstanceId>,
    /// Grace period for running work on shutdown. Default 25 s, below the 30 s of Kubernetes.
    #[serde(deserialize_with = "optional_duration")]
    pub drain: Option<Duration>,
}

/// Strictness of a process about its environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Accepts an insecure environment, for an easy start.
    #[default]
    Development,
    /// Refuses plain-text passwords of broker and database across a network, the user `guest`, and requests whose sender the
    /// broker has not validated.
    Production,
}

impl ServiceSection {
    /// Returns whether the profile is [`Profile::Production`].
    #[must_use]
    pub fn is_production(&self) -> bool {
        self.profile == Profile::Production
    }

    /// Returns the configured instance, or one of the host name and a random part, which stays the same
    /// for the lifetime of the process.
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

    /// Returns the grace period for running work on shutdown.
    #[must_use]
    pub fn drain(&self) -> Duration {
        self.drain.unwrap_or(Duration::from_secs(25))
    }
}

/// `[log]`: level and format of log lines.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// A level, or a filter such as `warn,rockbot_bus=debug`. Default `info`.
    pub level: String,
    /// Format of log lines. Default `auto`.
    pub format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// [`Text`](Self::Text) on a terminal, [`Json`](Self::Json) elsewhere.
    #[default]
    Auto,
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}
