//! A transport for tests: responses from a function, and a record of all requests.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;

use super::{ApiError, ApiRequest, ApiResponse, ApiTransport, Oversize};

type Respond = dyn Fn(&ApiRequest) -> Result<ApiResponse, ApiError> + Send + Sync;

/// A transport that responds at once.
pub(crate) struct Recorded {
    respond: Box<Respond>,
    requests: Mutex<Vec<ApiRequest>>,
}

impl Recorded {
    pub(crate) fn new(
        respond: impl Fn(&ApiRequest) -> Result<ApiResponse, ApiError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { respond: Box::new(respond), requests: Mutex::default() })
    }

    /// Returns the requests so far.
    pub(crate) fn requests(&self) -> Vec<ApiRequest> {
        self.requests.lock().clone()
    }
}

impl ApiTransport for Recorded {
    fn send(&self, request: ApiRequest) -> BoxFuture<'_, Result<ApiResponse, ApiError>> {
        let response = (self.respond)(&request).map(|mut response| {
            if response.body.len() > request.max_bytes && request.oversize == Oversize::Truncate {
                response.body.truncate(request.max_bytes);
                response.truncated = true;
            }
            response
        });
        self.requests.lock().push(request);
        Box::pin(std::future::ready(response))
    }
}

/// Creates a response.
#[expect(clippy::needless_pass_by_value, reason = "most bodies are built in the call")]
pub(crate) fn response(
    status: u16,
    headers: &[(&'static str, &str)],
    body: impl ToString,
) -> ApiResponse {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).expect("a header");
        map.append(HeaderName::from_static(name), value);
    }
    let status = StatusCode::from_u16(status).expect("a status");
    ApiResponse { status, headers: map, body: body.to_string().into_bytes(), truncated: false }
}
