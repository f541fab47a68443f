//! HTTP clients that enforce the dial policy.

use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Client, ClientBuilder, StatusCode, redirect};

use super::dial_error::{MAX_REDIRECTS, RedirectRefused};
use super::dial_policy::DialPolicy;
use super::failure::ConnectError;
use super::tls;

/// The time limit for establishing a connection, including TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The idle timeout of pooled connections. Shorter than the five seconds after which many servers close
/// them: a request that races with the close fails with an unknown outcome.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// The keep-alive interval that detects peers that vanished.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The read timeout of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadTimeout {
    /// [`DialPolicy::idle_timeout`].
    Idle,
    /// None: a standing stream may be idle for days. A peer that vanished is detected by keep-alive and by
    /// pings of the session.
    Unlimited,
}

/// Creates a client that dials only what the policy allows, directly and never through a proxy.
///
/// It has a connect timeout of 10 seconds and the policy's idle timeout, and no total timeout, which
/// would cut long streams. It follows at most 5 redirects, only to the same origin. It does not
/// decompress, so that byte limits hold for buffered data.
///
/// # Errors
/// When the trusted certificates cannot be read.
pub(crate) fn http_client(
    policy: &Arc<DialPolicy>,
    headers: HeaderMap,
    read_timeout: ReadTimeout,
) -> Result<Client, ConnectError> {
    let on_redirect = policy.clone();
    let mut builder = client_builder(policy)?
        .redirect(redirect::Policy::custom(move |attempt| follow(&on_redirect, attempt)))
        .default_headers(headers);
    if read_timeout == ReadTimeout::Idle {
        builder = builder.read_timeout(policy.idle_timeout);
    }
    builder.build().map_err(ConnectError::from)
}

/// Creates a client like [`http_client`] that returns redirects as responses.
///
/// # Errors
/// See [`http_client`].
pub(crate) fn direct_client(policy: &Arc<DialPolicy>) -> Result<Client, ConnectError> {
    let builder = client_builder(policy)?.redirect(redirect::Policy::none());
    builder.read_timeout(policy.idle_timeout).build().map_err(ConnectError::from)
}

fn client_builder(policy: &Arc<DialPolicy>) -> Result<ClientBuilder, ConnectError> {
    Ok(Client::builder()
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .tls_backend_preconfigured(tls::client_config(policy)?)
        .dns_resolver(PolicyResolver(policy.clone()))
        .user_agent(concat!("rockbot/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(TCP_KEEPALIVE)
        .pool_idle_timeout(POOL_IDLE))
}

fn follow(policy: &DialPolicy, attempt: redirect::Attempt<'_>) -> redirect::Action {
    match may_follow(policy, &attempt) {
        Ok(()) => attempt.follow(),
        Err(reason) => attempt.error(ConnectError::from(reason)),
    }
}

fn may_follow(policy: &DialPolicy, attempt: &redirect::Attempt<'_>) -> Result<(), RedirectRefused> {
    let keeps_message = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
    let to = attempt.url().origin();
    if attempt.previous().iter().any(|from| from.origin() != to) {
        Err(RedirectRefused::ForeignOrigin)
    } else if !keeps_message.contains(&attempt.status()) {
        Err(RedirectRefused::DropsMessage(attempt.status().as_u16()))
    } else if attempt.previous().len() > MAX_REDIRECTS {
        Err(RedirectRefused::TooMany)
    } else {
        Ok(policy.check(attempt.url())?)
    }
}

struct PolicyResolver(Arc<DialPolicy>);

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0.clone();
        Box::pin(async move {
            let addresses = policy.resolve(name.as_str(), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::AddressRefused;

    /// A name may be public when the URL is checked, and private when it is dialed.
    #[tokio::test]
    async fn client_checks_address_when_dialing() {
        let policy = Arc::new(DialPolicy { allow_plain_http: true, ..DialPolicy::default() });
        let client = http_client(&policy, HeaderMap::new(), ReadTimeout::Idle).expect("a client");
        for client in [client, direct_client(&policy).expect("a client")] {
            let get = async |url| client.get(url).send().await.map_err(ConnectError::from);
            let private = get("http://localhost:9/").await;
            assert!(matches!(private, Err(ConnectError::Refused(AddressRefused::Private(_)))));
            let unresolved = get("http://no-such-host.invalid/").await;
            assert!(matches!(unresolved, Err(ConnectError::Dns(_))));
        }
    }
}
