//! How to reach the broker.

use std::{net::IpAddr, time::Duration};

use lapin::{
    types::ShortString,
    uri::{AMQPScheme, AMQPUri, SASLMechanism},
};
use rockbot_contracts::{json::Limits, topology::DEFAULT_NAMESPACE};
use rockbot_service::{BusSection, TlsSection};
use secrecy::{ExposeSecret, SecretString};

use crate::{tls::TlsFiles, topology::Namespace};

/// How to reach the broker, and under which name.
#[derive(Debug, Clone)]
pub struct RabbitConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://`. It holds a password, so it never
    /// shows in logs.
    ///
    /// Its user signs every message. With `?auth_mechanism=external` the broker takes the user from
    /// the certificate, and the URL must name the same one.
    pub url: SecretString,
    /// Certificates, for `amqps://`.
    pub tls: TlsFiles,
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
    fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }

    pub(crate) fn namespace(name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        Self::because(format!("{name:?} is not a namespace of 1 to 64 bytes without wildcards"))
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
            tls: TlsFiles::default(),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            connection_name: connection_name.into(),
            connect_timeout: Duration::from_secs(5),
            limits: Limits::default(),
        }
    }

    /// What the section `[bus]` says, for a connection of that name.
    #[must_use]
    pub fn from_section(section: &BusSection, connection_name: impl Into<String>) -> Self {
        let TlsSection { ca_file, cert_file, key_file } = section.tls.clone();
        Self::secret(section.url.clone(), connection_name)
            .with_namespace(&section.namespace)
            .with_tls(TlsFiles { ca_file, cert_file, key_file })
    }

    /// The same in another namespace.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The same with certificates.
    #[must_use]
    pub fn with_tls(mut self, tls: TlsFiles) -> Self {
        self.tls = tls;
        self
    }

    /// Says whether a bus could be started with it, without connecting.
    ///
    /// # Errors
    /// When the URL, a certificate or the namespace can't be used.
    pub fn check(&self) -> Result<(), InvalidUrl> {
        self.parse_url()?;
        match Namespace::new(&self.namespace) {
            Some(_) => Ok(()),
            None => Err(InvalidUrl::namespace(&self.namespace)),
        }
    }

    /// What a process must not start with, in words for an operator: what
    /// [`RabbitConfig::check`] refuses, and in production what is not safe there.
    #[must_use]
    pub fn problems(&self, production: bool) -> Vec<String> {
        let unusable = self.check().err().map(|problem| format!("bus: {problem}"));
        let mut problems = Vec::from_iter(unusable);
        if production {
            problems.extend(self.unsafe_in_production());
        }
        problems
    }

    /// What must not be so in production, in words for an operator: a password that crosses a
    /// network in clear, and the user that every broker has. Empty when all is well, and for a URL
    /// that [`RabbitConfig::check`] refuses.
    #[must_use]
    pub fn unsafe_in_production(&self) -> Vec<String> {
        let Ok(uri) = self.parse_url() else { return Vec::new() };
        let mut problems = Vec::new();
        if uri.scheme == AMQPScheme::AMQP && !is_loopback(&uri.authority.host) {
            problems.push(
                "bus.url: in production only amqps:// leaves this machine; use it, with \
                 bus.tls.ca_file for an authority of your own, or set service.profile = \
                 \"development\""
                    .to_owned(),
            );
        }
        if uri.authority.userinfo.username == GUEST {
            problems.push(
                "bus.url: guest is not for production; name a user of this service's own, as `cargo \
                 xtask broker-users` makes them, or set service.profile = \"development\""
                    .to_owned(),
            );
        }
        problems
    }

    /// Whether it connects as a user that was made for its namespace
    /// ([`rockbot_contracts::identity`]), so that the others of the fleet have users too.
    #[must_use]
    pub fn has_own_user(&self) -> bool {
        let user = self.user();
        let rest = user.as_ref().and_then(|user| user.strip_prefix(&self.namespace));
        rest.is_some_and(|rest| rest.starts_with('.'))
    }

    /// The user that signs its messages; `None` when the URL can't be used.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        let user = self.parse_url().ok().and_then(|uri| user_of(&uri).ok());
        user.map(|user| user.to_string())
    }

    pub(crate) fn parse_url(&self) -> Result<AMQPUri, InvalidUrl> {
        let mut uri: AMQPUri = self.url.expose_secret().parse().map_err(|reason| {
            InvalidUrl::because(format!(
                "{reason}; expected amqp://USER:PASSWORD@HOST:PORT/VHOST, with special characters \
                 percent-encoded"
            ))
        })?;
        if uri.scheme == AMQPScheme::AMQPS {
            self.tls.connector().map_err(|error| InvalidUrl::because(error.to_string()))?;
        } else if !self.tls.is_empty() {
            return Err(InvalidUrl::because("certificates are for amqps://, and this is amqp://"));
        }
        let external = uri.query.auth_mechanism == Some(SASLMechanism::External);
        if external && uri.authority.userinfo.username == GUEST {
            return Err(InvalidUrl::because(
                "with auth_mechanism=external it must name the user of the certificate: \
                 amqps://USER@HOST/VHOST?auth_mechanism=external",
            ));
        }
        // A dead peer is noticed within two missed heartbeats, unless the URL asks otherwise.
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(uri)
    }
}

/// Who we are to the broker.
pub(crate) fn user_of(uri: &AMQPUri) -> Result<ShortString, InvalidUrl> {
    let user = uri.authority.userinfo.username.as_str();
    ShortString::try_new(user).map_err(|_| InvalidUrl::because("its user is over 255 bytes"))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The user that every broker has, and that the library takes where a URL names none.
const GUEST: &str = "guest";
const HEARTBEAT_SECONDS: u16 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_of_its_own_is_one_of_its_namespace() {
        let of = |user: &str| {
            let url = format!("amqp://{user}:secret@localhost:5672/%2f");
            RabbitConfig::new(url, "test").with_namespace("rockbot").has_own_user()
        };
        assert!(of("rockbot.tool-handler"));
        assert!(!of("guest") && !of("rockbot") && !of("rockbots.cli"));
    }
}
