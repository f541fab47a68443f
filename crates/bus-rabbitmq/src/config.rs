//! Configuration of the connection.

use std::{net::IpAddr, time::Duration};

use lapin::{
    types::ShortString,
    uri::{AMQPScheme, AMQPUri, SASLMechanism},
};
use rockbot_contracts::{json::Limits, topology::DEFAULT_NAMESPACE};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    section::{BusSection, TlsSection},
    tls::TlsFiles,
    topology::Namespace,
};

/// Configuration of a connection to the broker.
#[derive(Debug, Clone)]
pub struct RabbitConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://`. Secret, because it contains the password.
    ///
    /// Its user is set as the user id of every message. With `?auth_mechanism=external`, the broker
    /// authenticates the user of the certificate, and the URL must name the same user.
    pub url: SecretString,
    /// Certificates, for `amqps://`.
    pub tls: TlsFiles,
    /// Name of the exchange and prefix of every queue. Default `rockbot`.
    pub namespace: String,
    /// Name of the connection, shown to operators.
    pub connection_name: String,
    /// Timeout of one connection attempt. Default 5 s.
    pub connect_timeout: Duration,
    /// Size limit of published bodies. Default 4 MiB.
    pub limits: Limits,
}

/// Error for an invalid URL, certificate or namespace.
#[derive(Debug, Clone, thiserror::Error)]
#[error("invalid broker configuration: {reason}")]
pub struct InvalidUrl {
    reason: String,
}

impl InvalidUrl {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }

    pub(crate) fn namespace(name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        Self::new(format!("{name:?} is not a namespace of 1 to 64 bytes without wildcards"))
    }
}

impl RabbitConfig {
    /// Creates a configuration with defaults for the broker at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>, connection_name: impl Into<String>) -> Self {
        Self::from_secret(SecretString::from(url.into()), connection_name)
    }

    /// Creates a configuration with defaults for the broker at a secret URL.
    #[must_use]
    pub fn from_secret(url: SecretString, connection_name: impl Into<String>) -> Self {
        Self {
            url,
            tls: TlsFiles::default(),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            connection_name: connection_name.into(),
            connect_timeout: Duration::from_secs(5),
            limits: Limits::default(),
        }
    }

    /// Creates the configuration from the section `[bus]`.
    #[must_use]
    pub fn from_section(section: &BusSection, connection_name: impl Into<String>) -> Self {
        let TlsSection { ca_file, cert_file, key_file } = section.tls.clone();
        Self::from_secret(section.url.clone(), connection_name)
            .with_namespace(&section.namespace)
            .with_tls(TlsFiles { ca_file, cert_file, key_file })
    }

    /// Sets the namespace.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the certificates.
    #[must_use]
    pub fn with_tls(mut self, tls: TlsFiles) -> Self {
        self.tls = tls;
        self
    }

    /// Validates the configuration without connecting.
    ///
    /// # Errors
    /// When the URL, a certificate or the namespace is invalid.
    pub fn validate(&self) -> Result<(), InvalidUrl> {
        self.parse_url()?;
        match Namespace::new(&self.namespace) {
            Some(_) => Ok(()),
            None => Err(InvalidUrl::namespace(&self.namespace)),
        }
    }

    /// Returns the errors that must prevent a start, for operators: those of [`RabbitConfig::validate`],
    /// and in production those of [`RabbitConfig::unsafe_in_production`].
    #[must_use]
    pub fn validation_errors(&self, production: bool) -> Vec<String> {
        let invalid = self.validate().err().map(|error| format!("bus: {error}"));
        let mut problems = Vec::from_iter(invalid);
        if production {
            problems.extend(self.unsafe_in_production());
        }
        problems
    }

    /// Returns the settings that are unsafe in production, for operators: a password sent unencrypted over
    /// a network, and the default user. Empty for an invalid URL.
    #[must_use]
    pub fn unsafe_in_production(&self) -> Vec<String> {
        let Ok(uri) = self.parse_url() else { return Vec::new() };
        let mut problems = Vec::new();
        if uri.scheme == AMQPScheme::AMQP && !is_loopback(&uri.authority.host) {
            problems.push(
                "bus.url: amqp:// to another host is not permitted in production; use amqps://, \
                 with bus.tls.ca_file for a private authority, or set service.profile = \
                 \"development\""
                    .to_owned(),
            );
        }
        if uri.authority.userinfo.username == GUEST {
            problems.push(
                "bus.url: the user guest is not permitted in production; use this service's own user, \
                 created by `rockbot admin broker-users`, or set service.profile = \"development\""
                    .to_owned(),
            );
        }
        problems
    }

    /// Returns whether its user was created for its namespace ([`rockbot_contracts::identity`]), which
    /// implies that all services of the fleet have users.
    #[must_use]
    pub fn has_own_user(&self) -> bool {
        let user = self.user();
        let rest = user.as_ref().and_then(|user| user.strip_prefix(&self.namespace));
        rest.is_some_and(|rest| rest.starts_with('.'))
    }

    /// Returns the user id of its messages; `None` when the URL is invalid.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        let user = self.parse_url().ok().and_then(|uri| user_of(&uri).ok());
        user.map(|user| user.to_string())
    }

    pub(crate) fn parse_url(&self) -> Result<AMQPUri, InvalidUrl> {
        let mut uri: AMQPUri = self.url.expose_secret().parse().map_err(|reason| {
            InvalidUrl::new(format!(
                "{reason}; expected amqp://USER:PASSWORD@HOST:PORT/VHOST, with special characters \
                 percent-encoded"
            ))
        })?;
        // RabbitMQ has no virtual host with an empty name.
        if uri.vhost.is_empty() {
            return Err(InvalidUrl::new(
                "the URL ends with / and names no virtual host; end it with /%2f for the default \
                 virtual host",
            ));
        }
        if uri.scheme == AMQPScheme::AMQPS {
            self.tls.connector().map_err(|error| InvalidUrl::new(error.to_string()))?;
        } else if !self.tls.is_empty() {
            return Err(InvalidUrl::new(
                "certificates require amqps://, but the URL has amqp://; change the URL or remove \
                 bus.tls",
            ));
        }
        let external = uri.query.auth_mechanism == Some(SASLMechanism::External);
        if external && uri.authority.userinfo.username == GUEST {
            return Err(InvalidUrl::new(
                "auth_mechanism=external requires the user of the certificate in the URL: \
                 amqps://USER@HOST/VHOST?auth_mechanism=external",
            ));
        }
        // A dead peer is detected within two missed heartbeats, unless the URL sets another interval.
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(uri)
    }
}

/// Returns the user of a URL.
pub(crate) fn user_of(uri: &AMQPUri) -> Result<ShortString, InvalidUrl> {
    let user = uri.authority.userinfo.username.as_str();
    ShortString::try_new(user).map_err(|_| InvalidUrl::new("the user has more than 255 bytes"))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The default user of a broker, which the library also uses for URLs without a user.
const GUEST: &str = "guest";
const HEARTBEAT_SECONDS: u16 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_virtual_host_is_rejected_with_a_hint() {
        let validate = |url: &str| RabbitConfig::new(url, "test").validate();
        for url in ["amqp://broker", "amqp://broker/%2f", "amqp://broker/fleet?heartbeat=5"] {
            validate(url).unwrap();
        }
        for url in ["amqp://broker:5672/", "amqp://broker/?heartbeat=5"] {
            let error = validate(url).unwrap_err().to_string();
            assert!(error.contains("/%2f"), "{error}");
        }
    }

    #[test]
    fn own_user_has_the_namespace_as_prefix() {
        let has_own_user = |user: &str| {
            let url = format!("amqp://{user}:secret@localhost:5672/%2f");
            RabbitConfig::new(url, "test").with_namespace("rockbot").has_own_user()
        };
        assert!(has_own_user("rockbot.tool-handler"));
        for other in ["guest", "rockbot", "rockbots.cli"] {
            assert!(!has_own_user(other), "{other}");
        }
    }
}
