//! Requests that follow redirects hop by hop.

use bytes::Bytes;
use reqwest::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderMap, LOCATION,
    PROXY_AUTHORIZATION, TRANSFER_ENCODING,
};
use reqwest::{Method, Request, Response, StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use crate::client::GuardedClient;
use crate::error::EgressError;
use crate::refused::RedirectRefused;

/// The longest `Location` that is followed, in bytes.
const MAX_LOCATION_BYTES: usize = 8 * 1024;
/// Headers that are sent to the first origin only, in addition to those marked as sensitive.
const CREDENTIALS: [reqwest::header::HeaderName; 3] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];
/// Headers that describe a body.
const BODY_HEADERS: [reqwest::header::HeaderName; 4] =
    [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING];

/// A request that follows redirects, each of them checked by the policy of its client.
///
/// [`Fetch::finish`] follows all of them. Callers that decide about each hop use [`Fetch::next_hop`]: it sends
/// one request and returns the response or the redirect, and the next call follows that redirect.
///
/// - 301, 302 and 303 continue with GET (or HEAD) and without the body; 307 and 308 keep both.
/// - A redirect from https to http, to a URL that the policy forbids, or beyond the maximum is an error.
/// - `Authorization`, `Cookie`, `Proxy-Authorization` and headers marked as sensitive are not sent to
///   another origin. Headers of [`ClientOptions`](crate::ClientOptions) are sent to every origin.
/// - A fragment is kept, unless the redirect has one of its own.
///
/// The client must return redirects ([`ClientRedirects::Return`](crate::ClientRedirects::Return)).
#[derive(Debug)]
pub struct Fetch {
    client: GuardedClient,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
    max_redirects: usize,
    redirects: usize,
    deadline: Option<Instant>,
}

/// The outcome of one hop.
#[derive(Debug)]
pub enum Hop {
    /// The final response. Redirect statuses without a `Location` are final too.
    Response(Response),
    /// A redirect that may be followed.
    Redirect(Redirect),
}

/// A redirect that may be followed.
#[derive(Debug)]
pub struct Redirect {
    /// The redirecting response.
    pub response: Response,
    /// The target, allowed by the policy.
    pub url: Url,
    /// The method of the next request.
    pub method: Method,
    /// The target has the origin of the redirecting URL.
    pub is_same_origin: bool,
}

/// The final response of a fetch.
#[derive(Debug)]
pub struct Fetched {
    /// The response.
    pub response: Response,
    /// Its URL, with the fragment.
    pub url: Url,
}

impl Fetch {
    /// Creates a request without headers and body that follows at most 5 redirects. Nothing is sent yet.
    #[must_use]
    pub fn new(client: &GuardedClient, method: Method, url: Url) -> Self {
        Self {
            client: client.clone(),
            method,
            url,
            headers: HeaderMap::new(),
            body: None,
            max_redirects: 5,
            redirects: 0,
            deadline: None,
        }
    }

    /// Sets the headers.
    #[must_use]
    pub fn with_headers(self, headers: HeaderMap) -> Self {
        Self { headers, ..self }
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(self, body: impl Into<Bytes>) -> Self {
        Self { body: Some(body.into()), ..self }
    }

    /// Sets the maximum number of redirects.
    #[must_use]
    pub fn with_max_redirects(self, max_redirects: usize) -> Self {
        Self { max_redirects, ..self }
    }

    /// Sets the time by which each hop must have responded. It does not bound the reading of the body;
    /// pass it to [`read_body`](crate::read_body) as well.
    #[must_use]
    pub fn with_deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Returns the URL of the next request.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Sends the request of the current hop.
    ///
    /// After a [`Hop::Redirect`], the next call follows it. Dropping the future closes the connection.
    ///
    /// # Errors
    /// See [`EgressError`]. An error before anything was sent to a redirect's target is
    /// [`EgressError::AfterRedirect`], because the first URL has received its request.
    pub async fn next_hop(&mut self) -> Result<Hop, EgressError> {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        request.headers_mut().clone_from(&self.headers);
        *request.body_mut() = self.body.clone().map(Into::into);
        let sending = self.client.execute(request);
        let response = match self.deadline {
            Some(deadline) => {
                timeout_at(deadline, sending).await.unwrap_or(Err(EgressError::TimedOut))
            }
            None => sending.await,
        };
        let response = response.map_err(|error| match self.redirects {
            0 => error,
            _ if error.was_sent() => error,
            _ => EgressError::AfterRedirect(Box::new(error)),
        })?;
        let Some(url) = self.target(&response)? else { return Ok(Hop::Response(response)) };
        let is_same_origin = url.origin() == self.url.origin();
        self.redirect_to(response.status(), url.clone(), is_same_origin);
        Ok(Hop::Redirect(Redirect { response, url, method: self.method.clone(), is_same_origin }))
    }

    /// Follows all redirects and returns the final response.
    ///
    /// # Errors
    /// See [`Fetch::next_hop`].
    pub async fn finish(mut self) -> Result<Fetched, EgressError> {
        loop {
            if let Hop::Response(response) = self.next_hop().await? {
                return Ok(Fetched { response, url: self.url });
            }
        }
    }

    /// Returns the target of a redirect, or `None` for any other response.
    fn target(&self, response: &Response) -> Result<Option<Url>, RedirectRefused> {
        if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
        if self.redirects >= self.max_redirects {
            return Err(RedirectRefused::TooMany(self.max_redirects));
        }
        let location = Some(location.as_bytes()).filter(|text| text.len() <= MAX_LOCATION_BYTES);
        let location = location.and_then(|text| std::str::from_utf8(text).ok());
        let mut url = location
            .and_then(|location| self.url.join(location).ok())
            .ok_or(RedirectRefused::Location)?;
        if url.fragment().is_none() {
            url.set_fragment(self.url.fragment());
        }
        if self.url.scheme() == "https" && url.scheme() == "http" {
            return Err(RedirectRefused::Downgrade);
        }
        self.client.policy().check(&url)?;
        Ok(Some(url))
    }

    fn redirect_to(&mut self, status: StatusCode, url: Url, is_same_origin: bool) {
        self.redirects += 1;
        self.url = url;
        if matches!(status.as_u16(), 301..=303) {
            if self.method != Method::HEAD {
                self.method = Method::GET;
            }
            self.body = None;
            for name in &BODY_HEADERS {
                self.headers.remove(name);
            }
        }
        if !is_same_origin {
            let sensitive = self.headers.iter().filter(|(_, value)| value.is_sensitive());
            let names: Vec<_> = sensitive.map(|(name, _)| name.clone()).collect();
            for name in names.iter().chain(&CREDENTIALS) {
                self.headers.remove(name);
            }
        }
    }
}
