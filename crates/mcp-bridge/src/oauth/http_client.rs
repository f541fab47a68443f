//! The HTTP client of the OAuth flows: dialed by policy, with bounded responses.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use rmcp::transport::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy,
    OAuthHttpRequest,
};
use rockbot_egress::{ClientOptions, GuardedClient};

use crate::transport::peer::{read_within, redirecting_client};
use crate::transport::{ConnectError, DialPolicy};

/// The largest response, in bytes; metadata and tokens are small.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// The longest and the default timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct PolicyHttpClient {
    redirecting: GuardedClient,
    direct: GuardedClient,
}

impl PolicyHttpClient {
    pub(super) fn new(policy: &Arc<DialPolicy>) -> Result<Self, ConnectError> {
        Ok(Self {
            redirecting: redirecting_client(policy, HeaderMap::new(), Some(TIMEOUT))?,
            direct: GuardedClient::new(policy.clone(), ClientOptions::default())?,
        })
    }

    async fn send(
        &self,
        OAuthHttpRequest { request, redirect_policy, timeout, .. }: OAuthHttpRequest,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let mut request = reqwest::Request::try_from(request)?;
        *request.timeout_mut() = Some(timeout.unwrap_or(TIMEOUT).min(TIMEOUT));
        let client = match redirect_policy {
            OAuthHttpRedirectPolicy::Follow => &self.redirecting,
            _ => &self.direct,
        };
        let response = client.execute(request).await.map_err(ConnectError::from)?;
        let mut builder = http::Response::builder().status(response.status());
        if let Some(headers) = builder.headers_mut() {
            headers.clone_from(response.headers());
        }
        let body = read_within(response, MAX_RESPONSE_BYTES).await?;
        Ok(builder.body(body.ok_or(ConnectError::Malformed("its response is too large"))?)?)
    }
}

impl OAuthHttpClient for PolicyHttpClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.send(request))
    }
}
