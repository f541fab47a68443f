//! One request, with the redirects that it follows.

use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, LOCATION},
};
use reqwest::{Request, Response};
use rockbot_egress::{ConnectionSignal, EgressError, GuardedClient};
use url::Url;

use super::{multipart, verdict::RequestFailure};
use crate::request::{RequestBody, RequestParts};

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 3;

/// A response of any status, and the URL that it came from.
pub(super) struct Reply {
    pub(super) response: Response,
    pub(super) url: Url,
}

/// A request without a response.
pub(super) struct SendError {
    pub(super) error: EgressError,
    /// A server may have received the request.
    pub(super) was_sent: bool,
}

impl SendError {
    /// Returns the failure of the request.
    pub(super) fn failure(&self) -> RequestFailure {
        match self.error {
            _ if !self.was_sent => RequestFailure::NotSent,
            EgressError::TimedOut => RequestFailure::Silent,
            _ => RequestFailure::Broken,
        }
    }
}

/// Sends a request with `headers` in addition to its own, and follows redirects to the same origin that
/// keep the method, or that only read. Sets `signal` when the request has a connection.
pub(super) async fn send(
    client: &GuardedClient,
    parts: &RequestParts,
    headers: &HeaderMap,
    signal: &ConnectionSignal,
) -> Result<Reply, SendError> {
    let mut url = parts.url.clone();
    let mut redirects = 0;
    loop {
        let sent = async {
            client.execute_with_signal(build(client, parts, headers, &url)?, signal).await
        };
        let response = sent.await.map_err(|error| SendError {
            // The time may end before there is a connection.
            was_sent: redirects > 0 || error.was_sent() && signal.is_connected(),
            error,
        })?;
        match target(&response, &url, &parts.method).filter(|_| redirects < MAX_REDIRECTS) {
            Some(next) => {
                redirects += 1;
                url = next;
            }
            None => return Ok(Reply { response, url }),
        }
    }
}

fn build(
    client: &GuardedClient,
    parts: &RequestParts,
    headers: &HeaderMap,
    url: &Url,
) -> Result<Request, EgressError> {
    let request = client.request(parts.method.clone(), url.clone())?;
    let mut all = parts.headers.clone();
    all.extend(headers.clone());
    if !matches!(parts.body, RequestBody::Empty) {
        // The body has its own.
        all.remove(CONTENT_TYPE);
    }
    let request = request.headers(all);
    let request = match &parts.body {
        RequestBody::Empty => request,
        RequestBody::Bytes { content_type, bytes } => {
            request.header(CONTENT_TYPE, content_type).body(bytes.clone())
        }
        RequestBody::Multipart(parts) => request.multipart(multipart::form(parts)?),
    };
    Ok(request.build()?)
}

/// Returns the headers of the client itself. A header of the request takes precedence.
pub(super) fn default_headers(parts: &RequestParts, is_stream: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !parts.headers.contains_key(ACCEPT) {
        let accept = if is_stream {
            "text/event-stream, application/json, text/*;q=0.9, */*;q=0.5"
        } else {
            "application/json, text/*;q=0.9, */*;q=0.5"
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
    }
    if is_stream && !parts.headers.contains_key(ACCEPT_ENCODING) {
        // A compressed stream arrives in blocks.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    headers
}

/// Returns where a redirect leads, if it is followed.
fn target(response: &Response, url: &Url, method: &Method) -> Option<Url> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let follows = match response.status() {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => reads,
        _ => false,
    };
    location(response, url).filter(|to| follows && to.origin() == url.origin())
}

/// Returns the absolute `Location` of a response.
pub(super) fn location(response: &Response, url: &Url) -> Option<Url> {
    const MAX_BYTES: usize = 8 * 1024;
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let mut to = url.join(location).ok().filter(|_| location.len() <= MAX_BYTES)?;
    to.set_fragment(None);
    (to.username().is_empty() && to.password().is_none()).then_some(to)
}

#[cfg(test)]
mod tests {
    use rockbot_egress::ClientOptions;

    use super::*;

    #[test]
    fn body_has_one_content_type() {
        let client = GuardedClient::new(Default::default(), ClientOptions::default()).unwrap();
        let xml = HeaderValue::from_static("text/xml");
        let bytes = RequestBody::Bytes {
            content_type: HeaderValue::from_static("application/json"),
            bytes: b"{}".to_vec(),
        };
        let multipart = RequestBody::Multipart(Vec::new());
        for (body, expected) in [
            (bytes, "application/json"),
            (multipart, "multipart/form-data; boundary="),
            (RequestBody::Empty, "text/xml"),
        ] {
            let url = Url::parse("https://example.com/").unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, xml.clone())]);
            let method = Method::POST;
            let parts = RequestParts { method, url, headers, body, credentials: None };
            let request = build(&client, &parts, &HeaderMap::new(), &parts.url).unwrap();
            let sent: Vec<_> = request.headers().get_all(CONTENT_TYPE).iter().collect();
            assert_eq!(sent.len(), 1, "{sent:?}");
            assert!(sent[0].to_str().unwrap().starts_with(expected), "{sent:?}");
        }
    }
}
