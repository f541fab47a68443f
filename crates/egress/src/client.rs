//! HTTP clients that enforce the dial policy.

use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, Request, RequestBuilder, Response, StatusCode, Url, redirect};

use crate::connection::{ConnectionSignal, SignalLayer};
use crate::error::EgressError;
use crate::policy::DialPolicy;
use crate::refused::RedirectRefused;
use crate::tls::tls_config;

/// The idle timeout of pooled connections. Shorter than the five seconds after which many servers close
/// them: a request that races with the close fails with an unknown outcome.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// The keep-alive interval that detects peers that vanished.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The header `User-Agent`. Default: `rockbot/VERSION`.
    pub user_agent: HeaderValue,
    /// The time limit for establishing a connection, including name resolution and TLS. Default: 10
    /// seconds.
    pub connect_timeout: Duration,
    /// The idle timeout, from the request to the head of the response and between reads of the body.
    /// `None`: no limit, for streams that may be idle for days; a peer that vanished is detected by TCP
    /// keep-alive. Default: 30 seconds.
    pub read_timeout: Option<Duration>,
    /// Accepts responses compressed with gzip and decompresses them. When false, `Accept-Encoding` is not
    /// sent, and a compressed body is passed on as it is. No other compression is accepted. Default:
    /// false.
    pub gzip: bool,
    /// Headers of every request. Default: none.
    pub headers: HeaderMap,
    /// Redirects that the client follows by itself. Default: none.
    pub redirects: ClientRedirects,
    /// Keeps connections open for further requests. When false, each request opens its own, so that
    /// [`GuardedClient::execute_with_signal`] can tell when it has one. Default: true.
    pub reuse_connections: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: HeaderValue::from_static(concat!("rockbot/", env!("CARGO_PKG_VERSION"))),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Some(Duration::from_secs(30)),
            gzip: false,
            headers: HeaderMap::new(),
            redirects: ClientRedirects::Return,
            reuse_connections: true,
        }
    }
}

/// Redirects that a client follows by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientRedirects {
    /// None: a redirect is a response. [`Fetch`](crate::Fetch) follows it.
    #[default]
    Return,
    /// At most `max`, to the same origin, and only those that keep method and body (307 and 308). Every
    /// other one fails with [`EgressError::Redirect`].
    SameOrigin {
        /// The maximum number of redirects in a row.
        max: usize,
    },
}

/// An HTTP client that dials only what its policy allows.
///
/// It connects directly: the proxies of the environment (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`) and of
/// the system are ignored, because a proxy resolves names itself, where no address can be checked. It
/// stores no cookies, sends no `Referer`, and has no total timeout; callers bound requests with
/// deadlines.
///
/// Clones share one connection pool.
#[derive(Debug, Clone)]
pub struct GuardedClient {
    client: Client,
    policy: Arc<DialPolicy>,
    reuses_connections: bool,
}

impl GuardedClient {
    /// Creates a client.
    ///
    /// # Errors
    /// [`EgressError::Tls`] when the trusted certificates cannot be read.
    #[expect(clippy::disallowed_methods, reason = "this is the guarded client")]
    pub fn new(policy: Arc<DialPolicy>, options: ClientOptions) -> Result<Self, EgressError> {
        let mut builder = Client::builder()
            .no_proxy()
            .gzip(options.gzip)
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .referer(false)
            .tls_backend_preconfigured(tls_config(&policy)?)
            .dns_resolver(PolicyResolver(policy.clone()))
            .user_agent(options.user_agent)
            .default_headers(options.headers)
            .redirect(redirect_policy(&policy, options.redirects))
            .connect_timeout(options.connect_timeout)
            .tcp_keepalive(TCP_KEEPALIVE)
            .pool_idle_timeout(POOL_IDLE);
        if let Some(read_timeout) = options.read_timeout {
            builder = builder.read_timeout(read_timeout);
        }
        if !options.reuse_connections {
            builder = builder.pool_max_idle_per_host(0).connector_layer(SignalLayer);
        }
        let reuses_connections = options.reuse_connections;
        Ok(Self { client: builder.build()?, policy, reuses_connections })
    }

    /// Returns the policy of the client.
    #[must_use]
    pub fn policy(&self) -> &Arc<DialPolicy> {
        &self.policy
    }

    /// Begins a request to a URL that the policy allows. Errors of [`RequestBuilder::send`] convert to
    /// [`EgressError`].
    ///
    /// # Errors
    /// [`EgressError::Refused`] when the policy forbids the URL.
    pub fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, EgressError> {
        self.policy.check(&url)?;
        Ok(self.client.request(method, url))
    }

    /// Sends a request and returns the head of the response.
    ///
    /// Dropping the future closes the connection of the request.
    ///
    /// # Errors
    /// See [`EgressError`]. Any status is a response.
    pub async fn execute(&self, request: Request) -> Result<Response, EgressError> {
        self.policy.check(request.url())?;
        Ok(self.client.execute(request).await?)
    }

    /// Sends a request as [`execute`](Self::execute) does, and sets `signal` when the request has a
    /// connection. A client that reuses connections cannot know, and sets it at once.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    pub async fn execute_with_signal(
        &self,
        request: Request,
        signal: &ConnectionSignal,
    ) -> Result<Response, EgressError> {
        self.policy.check(request.url())?;
        if self.reuses_connections {
            signal.set();
        }
        Ok(signal.scope(self.client.execute(request)).await?)
    }
}

fn redirect_policy(policy: &Arc<DialPolicy>, redirects: ClientRedirects) -> redirect::Policy {
    let ClientRedirects::SameOrigin { max } = redirects else { return redirect::Policy::none() };
    let policy = policy.clone();
    redirect::Policy::custom(move |attempt| match may_follow(&policy, &attempt, max) {
        Ok(()) => attempt.follow(),
        Err(reason) => attempt.error(reason),
    })
}

fn may_follow(
    policy: &DialPolicy,
    attempt: &redirect::Attempt<'_>,
    max: usize,
) -> Result<(), RedirectRefused> {
    let keeps_message = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
    let to = attempt.url().origin();
    if attempt.previous().iter().any(|from| from.origin() != to) {
        Err(RedirectRefused::ForeignOrigin)
    } else if !keeps_message.contains(&attempt.status()) {
        Err(RedirectRefused::DropsMessage(attempt.status().as_u16()))
    } else if attempt.previous().len() > max {
        Err(RedirectRefused::TooMany(max))
    } else {
        Ok(policy.check(attempt.url())?)
    }
}

#[derive(Debug)]
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
