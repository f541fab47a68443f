//! How to reach the broker.

use std::time::Duration;

use lapin::uri::AMQPUri;
use rockbot_contracts::{json::Limits, topology::DEFAULT_NAMESPACE};
use secrecy::{ExposeSecret, SecretString};

use crate::topology::Namespace;

/// How to reach the broker, and under which name.
#[derive(Debug, Clone)]
pub struct RabbitConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://`. It holds a password, so it never
    /// shows in logs.
    pub url: SecretString,
    /// Name of the exchange and prefix of every queue. Default `rockbot`.
    pub namespace: String,
    /// The name operators see on the connection.
    pub connection_name: String,
    /// How long one attempt to connect may take. Default 5 s.
    pub connect_timeout: Duration,
    /// Largest body that is published. Default 4 MiB.
    pub limits: Limits,
}

/// The URL of the broker can't be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the broker's address can't be used: {reason}")]
pub struct InvalidUrl {
    reason: String,
}

impl InvalidUrl {
    pub(crate) fn namespace(name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        Self { reason: format!("{name:?} is not a namespace of 1 to 64 bytes without wildcards") }
    }
}

impl RabbitConfig {
    /// The defaults, for a broker at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>, connection_name: impl Into<String>) -> Self {
        Self::secret(SecretString::from(url.into()), connection_name)
    }

    /// The defaults, for a broker at a URL that is kept secret already.
    #[must_use]
    pub fn secret(url: SecretString, connection_name: impl Into<String>) -> Self {
        Self {
            url,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            connection_name: connection_name.into(),
            connect_timeout: Duration::from_secs(5),
            limits: Limits::default(),
        }
    }

    /// The same in another namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Says whether a bus could be started with it, without connecting.
    ///
    /// # Errors
    /// When the URL or the namespace can't be used.
    pub fn check(&self) -> Result<(), InvalidUrl> {
        self.parse_url()?;
        match Namespace::new(&self.namespace) {
            Some(_) => Ok(()),
            None => Err(InvalidUrl::namespace(&self.namespace)),
        }
    }

    pub(crate) fn parse_url(&self) -> Result<AMQPUri, InvalidUrl> {
        let mut uri: AMQPUri = self.url.expose_secret().parse().map_err(|reason| InvalidUrl {
            reason: format!(
                "{reason}; expected amqp://USER:PASSWORD@HOST:PORT/VHOST, with special \
                     characters percent-encoded"
            ),
        })?;
        // A dead peer is noticed within two missed heartbeats, unless the URL asks otherwise.
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(uri)
    }
}

const HEARTBEAT_SECONDS: u16 = 10;
