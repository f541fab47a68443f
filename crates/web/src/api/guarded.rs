//! The transport over the guarded HTTP client.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_egress::{
    ClientOptions, DialPolicy, EgressError, GuardedClient, PrivateTarget, read_body, read_prefix,
};
use tokio::time::timeout_at;

use super::{ApiError, ApiRequest, ApiResponse, ApiTransport, Oversize};

/// Sends requests with a [`GuardedClient`], which accepts gzip and follows no redirect.
#[derive(Debug, Clone)]
pub struct GuardedTransport(GuardedClient);

impl GuardedTransport {
    /// Creates a transport that dials public addresses and these private targets. Plain `http` is
    /// dialed, because the configuration decides which base URLs may use it.
    ///
    /// # Errors
    /// When the trusted certificates cannot be read.
    pub fn new(allow_private: Vec<PrivateTarget>) -> Result<Self, EgressError> {
        let policy = DialPolicy { allow_private, allow_plain_http: true, ..DialPolicy::default() };
        let options = ClientOptions { gzip: true, ..ClientOptions::default() };
        Ok(Self(GuardedClient::new(Arc::new(policy), options)?))
    }

    async fn exchange(&self, request: ApiRequest) -> Result<ApiResponse, EgressError> {
        let ApiRequest { method, url, headers, body, max_bytes, oversize, deadline } = request;
        let mut builder = self.0.request(method, url)?.headers(headers);
        if !body.is_empty() {
            builder = builder.body(body);
        }
        let response =
            timeout_at(deadline, builder.send()).await.map_err(|_| EgressError::TimedOut)??;
        let (status, headers) = (response.status(), response.headers().clone());
        let (body, truncated) = match oversize {
            Oversize::Refuse => (read_body(response, max_bytes, Some(deadline)).await?, false),
            Oversize::Truncate => {
                let prefix = read_prefix(response, max_bytes, Some(deadline)).await?;
                (prefix.bytes, !prefix.is_complete)
            }
        };
        Ok(ApiResponse { status, headers, body, truncated })
    }
}

impl ApiTransport for GuardedTransport {
    fn send(&self, request: ApiRequest) -> BoxFuture<'_, Result<ApiResponse, ApiError>> {
        Box::pin(async move { Ok(self.exchange(request).await?) })
    }
}

impl From<EgressError> for ApiError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::TimedOut => Self::TimedOut,
            EgressError::TooLarge { max_bytes } => Self::TooLarge { limit: max_bytes },
            other => Self::Failed(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{
        Router,
        body::Body,
        http::{HeaderMap, Response, Uri},
    };
    use http::{HeaderValue, header::ACCEPT};
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
    use url::Url;

    use super::*;
    use crate::search::{SearchSection, WebSearch};

    /// `{"web":{"results":[{"title":"Packed","url":"https://packed.example/"}]}}`, compressed.
    const PACKED: [u8; 87] = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x2a, 0x4f, 0x4d,
        0x52, 0xb2, 0xaa, 0x56, 0x2a, 0x4a, 0x2d, 0x2e, 0xcd, 0x29, 0x29, 0x56, 0xb2, 0x8a, 0xae,
        0x56, 0x2a, 0xc9, 0x2c, 0xc9, 0x49, 0x55, 0xb2, 0x52, 0x0a, 0x48, 0x4c, 0xce, 0x4e, 0x4d,
        0x51, 0xd2, 0x51, 0x2a, 0x2d, 0xca, 0x01, 0x72, 0x33, 0x4a, 0x4a, 0x0a, 0x8a, 0xad, 0xf4,
        0xf5, 0x0b, 0xc0, 0xc2, 0x7a, 0xa9, 0x15, 0x89, 0xb9, 0x05, 0x39, 0xa9, 0xfa, 0x4a, 0xb5,
        0xb1, 0xb5, 0xb5, 0x00, 0x36, 0x7a, 0x19, 0xa5, 0x48, 0x00, 0x00, 0x00,
    ];

    type Requests = Arc<Mutex<Vec<(String, HeaderMap)>>>;

    /// A server on this machine; it stops when dropped.
    struct Server {
        url: Url,
        requests: Requests,
        task: JoinHandle<()>,
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    impl Server {
        async fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            let requests = Requests::default();
            let record = requests.clone();
            let app = Router::new().fallback(async move |uri: Uri, headers: HeaderMap| {
                record.lock().push((uri.to_string(), headers));
                respond(uri.path())
            });
            let task =
                tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
            Self { url: Url::parse(&url).expect("a URL"), requests, task }
        }

        fn request(&self, path: &str, max_bytes: usize) -> ApiRequest {
            let url = self.url.join(path).expect("a URL");
            ApiRequest::get(url, max_bytes, Instant::now() + Duration::from_secs(10))
        }
    }

    fn respond(path: &str) -> Response<Body> {
        let response = Response::builder();
        let response = match path {
            "/res/v1/web/search" => {
                response.header("content-encoding", "gzip").body(Body::from(PACKED.to_vec()))
            }
            "/moved" => response.status(302).header("location", "/other").body(Body::empty()),
            "/long" => response.body(Body::from(vec![b'x'; 1_000])),
            "/silent" => response.body(Body::from_stream(futures_util::stream::pending::<
                Result<Vec<u8>, std::io::Error>,
            >())),
            _ => response.status(404).body(Body::empty()),
        };
        response.expect("a response")
    }

    fn local() -> GuardedTransport {
        let loopback = "127.0.0.0/8".parse().expect("a network");
        GuardedTransport::new(vec![loopback]).expect("a transport")
    }

    #[tokio::test]
    async fn search_reads_compressed_response() {
        let server = Server::start().await;
        let section = json!({"brave": {"api_key": "token", "base_url": server.url.as_str()}});
        let section: SearchSection = serde_json::from_value(section).expect("a section");
        assert_eq!(section.validate(|_| None), [""; 0]);
        let transport: Arc<dyn ApiTransport> = Arc::new(local());
        let tool = WebSearch::from_section(&section, |_| None, &transport).expect("a provider");
        let text = crate::search::tests::search(&tool).await.expect("a result");
        assert!(text.ends_with("\n1. [Packed](https://packed.example/)"), "{text}");
        let requests = server.requests.lock();
        let (uri, headers) = &requests[0];
        assert!(uri.starts_with("/res/v1/web/search?q=rust&count=5"), "{uri}");
        assert_eq!(headers["x-subscription-token"], "token");
        assert_eq!(headers["accept-encoding"], "gzip");
        assert!(headers["user-agent"].to_str().expect("text").starts_with("rockbot/"));
    }

    #[tokio::test]
    async fn redirect_is_a_response() {
        let server = Server::start().await;
        let request = server.request("/moved", 10);
        let request = request.with_header(ACCEPT, HeaderValue::from_static("text/plain"));
        let response = local().send(request).await.expect("a response");
        assert_eq!((response.status.as_u16(), response.header("location")), (302, Some("/other")));
        assert_eq!(server.requests.lock().len(), 1);
    }

    #[tokio::test]
    async fn body_over_limit_is_refused_or_truncated() {
        let server = Server::start().await;
        let refused = local().send(server.request("/long", 999)).await;
        assert!(matches!(refused, Err(ApiError::TooLarge { limit: 999 })), "{refused:?}");
        let request = ApiRequest { oversize: Oversize::Truncate, ..server.request("/long", 999) };
        let response = local().send(request).await.expect("a response");
        assert_eq!((response.body.len(), response.truncated), (999, true));
        let whole = local().send(server.request("/long", 1_000)).await.expect("a response");
        assert_eq!((whole.body.len(), whole.truncated), (1_000, false));
    }

    #[tokio::test]
    async fn silent_server_is_left_at_the_deadline() {
        let server = Server::start().await;
        let deadline = Instant::now() + Duration::from_millis(50);
        let request = ApiRequest { deadline, ..server.request("/silent", 10) };
        let response = local().send(request).await;
        assert!(matches!(response, Err(ApiError::TimedOut)), "{response:?}");
    }

    #[tokio::test]
    async fn private_address_needs_permission() {
        let server = Server::start().await;
        let guarded = GuardedTransport::new(Vec::new()).expect("a transport");
        let response = guarded.send(server.request("/long", 10)).await;
        assert!(matches!(response, Err(ApiError::Failed(_))), "{response:?}");
        assert!(server.requests.lock().is_empty());
    }
}
