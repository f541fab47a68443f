//! The requests of the OAuth flows, dialled by policy and read within bounds.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use reqwest::Client;
use rmcp::transport::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy,
    OAuthHttpRequest,
};

use crate::transport::dial::{Patience, direct_client, http_client};
use crate::transport::peer::read_body;
use crate::transport::{ConnectError, DialPolicy};

/// Metadata and tokens are small.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// For requests that bring no time-out of their own.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct PolicedClient {
    following: Client,
    direct: Client,
    policy: Arc<DialPolicy>,
}

impl PolicedClient {
    pub(super) fn new(policy: &Arc<DialPolicy>) -> Result<Self, ConnectError> {
        Ok(Self {
            following: http_client(policy, HeaderMap::new(), Patience::Answer)?,
            direct: direct_client(policy)?,
            policy: policy.clone(),
        })
    }

    async fn ask(
        &self,
        OAuthHttpRequest { request, redirect_policy, timeout, .. }: OAuthHttpRequest,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let mut request = reqwest::Request::try_from(request)?;
        *request.timeout_mut() = Some(timeout.unwrap_or(TIMEOUT).min(TIMEOUT));
        self.policy.check(request.url())?;
        let client = match redirect_policy {
            OAuthHttpRedirectPolicy::Follow => &self.following,
            _ => &self.direct,
        };
        let response = client.execute(request).await.map_err(ConnectError::from)?;
        let mut answer = http::Response::builder().status(response.status());
        if let Some(headers) = answer.headers_mut() {
            headers.clone_from(response.headers());
        }
        let body = read_body(response, MAX_ANSWER_BYTES).await?;
        Ok(answer.body(body.ok_or(ConnectError::Malformed("its answer is too large"))?)?)
    }
}

impl OAuthHttpClient for PolicedClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.ask(request))
    }
}
