//! The client of OpenRouter's account endpoints.

use std::time::Duration;

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, RETRY_AFTER},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use tokio::{sync::Semaphore, time::timeout};

use crate::question::Question;

/// Questions on their way at once.
const MAX_QUESTIONS: u32 = 64;

/// Why a client can't be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The key holds characters that a header can't.
    #[error("openrouter.api_key: holds characters that no key has; check for stray line breaks")]
    Key,
    /// The HTTP client has no TLS.
    #[error("the HTTP client cannot be made: {0}")]
    Client(#[source] reqwest::Error),
}

/// Why there is no answer. The words are for whoever called the tool, and hold nothing that came
/// from outside.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// OpenRouter said no.
    #[error("OpenRouter answered {status}: {}", reason(*.status))]
    Refused {
        /// The HTTP status.
        status: StatusCode,
    },
    /// OpenRouter wants to be asked less often.
    #[error(
        "OpenRouter answered 429: too many requests; try again {}",
        retry_after.map_or_else(|| "later".to_owned(), |seconds| format!("in {seconds} s"))
    )]
    TooManyRequests {
        /// The seconds it asks to wait for, if it says so.
        retry_after: Option<u32>,
    },
    /// The answer is too large.
    #[error("OpenRouter's answer has more than {limit} bytes, the most that is taken")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The answer is something else.
    #[error("OpenRouter's answer is not JSON")]
    NotJson,
    /// There was no whole answer in time.
    #[error("OpenRouter did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// There is no connection, or it broke.
    #[error("OpenRouter cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// Too much is asked of this process.
    #[error("too many calls at once; try again later")]
    Busy,
}

fn reason(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "the key is not accepted",
        402 => "the account has no credits left",
        403 => "the key may not do that; it takes a management key",
        404 => "there is no such thing in this account",
        300..=399 => "redirects are not followed; openrouter.base_url is not the final address",
        400..=499 => "the request is not accepted",
        _ => "OpenRouter has a problem; try again later",
    }
}

/// Asks OpenRouter about an account, with its key.
#[derive(Debug)]
pub struct OpenRouter {
    client: Client,
    base_url: Url,
    key: SecretString,
    authorization: HeaderValue,
    timeout: Duration,
    max_response_bytes: usize,
    questions: Semaphore,
}

impl OpenRouter {
    /// Prepares a client; nothing is sent. The process must have installed a rustls provider.
    ///
    /// `timeout` is for a whole answer, `max_response_bytes` for its body.
    ///
    /// # Errors
    /// When the key can't be sent, or there is no TLS.
    pub fn new(
        base_url: Url,
        key: SecretString,
        timeout: Duration,
        max_response_bytes: usize,
    ) -> Result<Self, ClientError> {
        let bearer = format!("Bearer {}", key.expose_secret());
        let mut authorization = HeaderValue::try_from(bearer).map_err(|_| ClientError::Key)?;
        authorization.set_sensitive(true);
        let mut client = Client::builder()
            .user_agent(concat!("rockbot/", env!("CARGO_PKG_VERSION")))
            // The key is for this host and no other.
            .redirect(reqwest::redirect::Policy::none());
        if is_this_machine(&base_url) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(ClientError::Client)?;
        let questions = Semaphore::new(MAX_QUESTIONS as usize);
        Ok(Self { client, base_url, key, authorization, timeout, max_response_bytes, questions })
    }

    /// Asks, and returns the answer, which is JSON. Dropping the future gives up the question.
    ///
    /// # Errors
    /// See [`UpstreamError`]; when there is no whole answer within the time-out, among others.
    pub async fn ask(&self, question: &Question) -> Result<String, UpstreamError> {
        let _one_of_many = self.questions.try_acquire().map_err(|_| UpstreamError::Busy)?;
        timeout(self.timeout, self.answer(question))
            .await
            .map_err(|_| UpstreamError::TimedOut(self.timeout))?
    }

    /// Takes no more questions, and returns when those under way are answered.
    pub(crate) async fn drained(&self) {
        // Whoever waits for all permits is before everybody who wants one; it never gives them back.
        if let Ok(permits) = self.questions.acquire_many(MAX_QUESTIONS).await {
            permits.forget();
        }
    }

    async fn answer(&self, question: &Question) -> Result<String, UpstreamError> {
        let response = self
            .client
            .get(question.url(&self.base_url))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json")
            .send()
            .await
            .map_err(unreachable)?;
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(UpstreamError::TooManyRequests { retry_after: retry_after(&response) });
        }
        if !status.is_success() {
            // What it says is not passed on: it may repeat what it was sent.
            return Err(UpstreamError::Refused { status });
        }
        let body = self.read(response).await?;
        let json: &RawValue = serde_json::from_slice(&body).map_err(|_| UpstreamError::NotJson)?;
        Ok(json.get().replace(self.key.expose_secret(), "[the key]"))
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, UpstreamError> {
        let limit = self.max_response_bytes;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if chunk.len() > limit - body.len() {
                return Err(UpstreamError::TooLarge { limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn unreachable(error: reqwest::Error) -> UpstreamError {
    UpstreamError::Unreachable(error.without_url())
}

fn retry_after(response: &Response) -> Option<u32> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// Whether a URL leads to this machine by its looks.
pub(crate) fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
