//! The collector that takes spans, over gRPC or over HTTP.

use std::{error::Error, panic::AssertUnwindSafe, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderValue, StatusCode, header,
    uri::{PathAndQuery, Scheme},
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, sleep, timeout};
use tonic::{
    Code, Status,
    client::Grpc,
    metadata::MetadataMap,
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use super::written::Written;
use crate::telemetry::section::OtlpProtocol;

/// How long a request may take, with all its attempts.
pub(super) const WITHIN: Duration = Duration::from_secs(5);
/// How long an attempt may take: a connection may be dead, and only silence tells.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(2);
/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_millis(1500);
/// How often a request is sent when the collector is busy or away.
const ATTEMPTS: u32 = 4;
/// How long the second attempt waits, more or less, where the collector says nothing; each later one
/// twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long the rest of an answer over HTTP may take: the spans were taken when it begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The longest answer that is read: it says how many spans were rejected. That it also says why is for
/// its own log.
const MOST_ANSWER: usize = 64 * 1024;

const USER_AGENT: &str = concat!("rockbot/", env!("CARGO_PKG_VERSION"));
const EXPORT: PathAndQuery =
    PathAndQuery::from_static("/opentelemetry.proto.collector.trace.v1.TraceService/Export");

/// An endpoint that no request can be made for.
#[derive(Debug, thiserror::Error)]
#[error("it can't be used: {}", root(&**.0))]
pub struct UnusableEndpoint(#[source] Box<dyn Error + Send + Sync>);

fn endpoint(url: &str) -> Result<Endpoint, Box<dyn Error + Send + Sync>> {
    let endpoint = Endpoint::from_shared(url.to_owned())?
        .user_agent(USER_AGENT)?
        .connect_timeout(CONNECT_WITHIN);
    if endpoint.uri().scheme() == Some(&Scheme::HTTPS) {
        return Ok(endpoint.tls_config(ClientTlsConfig::new().with_native_roots())?);
    }
    Ok(endpoint)
}

fn client(url: &str) -> Result<(Client, Url), Box<dyn Error + Send + Sync>> {
    let client = Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_WITHIN)
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    Ok((client, Url::parse(url)?))
}

/// Where spans are sent.
pub(super) enum Collector {
    /// The channel is made where it is needed, within the runtime that it works in.
    Grpc {
        endpoint: Box<Endpoint>,
        channel: Option<Channel>,
        metadata: MetadataMap,
    },
    Http {
        client: Client,
        url: Url,
        headers: HeaderMap,
    },
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undelivered {
    #[error("the collector can't be reached: {0}")]
    Unreachable(String),
    #[error("the collector answered {status}")]
    Http { status: StatusCode, retry_after: Option<Duration> },
    #[error("the collector answered {code:?}: {}", code.description())]
    Grpc { code: Code },
    #[error("the collector did not answer within {0:?}")]
    Late(Duration),
    #[error("the collector's answer made what reads it panic")]
    Panicked,
}

impl Undelivered {
    /// How long to wait for the next attempt, `pause` where the collector does not say; `None` when
    /// there is to be none. Which answers are worth one is in the
    /// [specification](https://opentelemetry.io/docs/specs/otlp/#failures), but for `OutOfRange`, which
    /// is also what tonic makes of an answer that is too long.
    fn again(&self, pause: Duration) -> Option<Duration> {
        match self {
            Self::Unreachable(_) | Self::Late(_) => Some(pause),
            Self::Http { status, retry_after } => {
                let is_worth = matches!(status.as_u16(), 429 | 502 | 503 | 504);
                is_worth.then(|| retry_after.unwrap_or(pause))
            }
            Self::Grpc { code } => {
                let is_worth = matches!(
                    code,
                    Code::Cancelled
                        | Code::DeadlineExceeded
                        | Code::Aborted
                        | Code::Unavailable
                        | Code::DataLoss
                );
                is_worth.then_some(pause)
            }
            Self::Panicked => None,
        }
    }
}

impl Collector {
    /// Connects to nothing yet.
    pub(super) fn new(
        url: &str,
        protocol: OtlpProtocol,
        mut headers: HeaderMap,
    ) -> Result<Self, UnusableEndpoint> {
        let collector = match protocol {
            OtlpProtocol::Grpc => endpoint(url).map(|endpoint| Self::Grpc {
                endpoint: Box::new(endpoint),
                channel: None,
                metadata: MetadataMap::from_headers(headers),
            }),
            OtlpProtocol::Http => client(url).map(|(client, url)| {
                let protobuf = HeaderValue::from_static("application/x-protobuf");
                headers.insert(header::CONTENT_TYPE, protobuf);
                Self::Http { client, url, headers }
            }),
        };
        collector.map_err(UnusableEndpoint)
    }

    /// Sends a request, again where that may help, and returns how many of its spans were rejected.
    pub(super) async fn deliver(
        &mut self,
        request: Bytes,
        within: Duration,
    ) -> Result<u64, Undelivered> {
        let deadline = Instant::now() + within;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut pause = FIRST_PAUSE.mul_f64(rand::random_range(0.5..1.5));
        let mut attempt = 1;
        loop {
            let within = ATTEMPT_WITHIN.min(left());
            // What reads answers is not ours, and the thread that sends must outlive them.
            let sent = AssertUnwindSafe(self.send(request.clone())).catch_unwind();
            let problem = match timeout(within, sent).await {
                Ok(Ok(Ok(rejected))) => return Ok(rejected),
                Ok(Ok(Err(problem))) => problem,
                Ok(Err(_)) => Undelivered::Panicked,
                Err(_) => {
                    self.disconnect();
                    Undelivered::Late(within)
                }
            };
            match problem.again(pause).filter(|wait| attempt < ATTEMPTS && *wait < left()) {
                Some(wait) => sleep(wait).await,
                None => return Err(problem),
            }
            pause *= 2;
            attempt += 1;
        }
    }

    /// Leaves a connection behind on which nothing is heard. HTTP/1 does so by itself.
    fn disconnect(&mut self) {
        if let Self::Grpc { channel, .. } = self {
            *channel = None;
        }
    }

    async fn send(&mut self, request: Bytes) -> Result<u64, Undelivered> {
        match self {
            Self::Grpc { endpoint, channel, metadata } => {
                let channel = channel.get_or_insert_with(|| endpoint.connect_lazy());
                let mut client = Grpc::new(channel.clone()).max_decoding_message_size(MOST_ANSWER);
                client.ready().await.map_err(|error| Undelivered::Unreachable(root(&error)))?;
                let mut request = tonic::Request::new(request);
                *request.metadata_mut() = metadata.clone();
                let answer = client
                    .unary(request, EXPORT, Written)
                    .await
                    .map_err(|status| refused(&status))?;
                Ok(rejected(&answer.into_inner()))
            }
            Self::Http { client, url, headers } => {
                let sent = client.post(url.clone()).headers(headers.clone()).body(request).send();
                let answer = sent.await.map_err(|error| unreachable(&error))?;
                let status = answer.status();
                if !status.is_success() {
                    let retry_after = retry_after(answer.headers());
                    return Err(Undelivered::Http { status, retry_after });
                }
                // One that can't be read is still a success.
                let answer = timeout(ANSWER_WITHIN, read(answer)).await.unwrap_or_default();
                let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
                Ok(rejected(&answer))
            }
        }
    }
}

fn refused(status: &Status) -> Undelivered {
    match status.source() {
        // It comes from here and not from the collector.
        Some(_) => Undelivered::Unreachable(root(status)),
        None => Undelivered::Grpc { code: status.code() },
    }
}

fn unreachable(error: &reqwest::Error) -> Undelivered {
    Undelivered::Unreachable(root(error))
}

/// The innermost cause: those around it repeat what is known, such as the URL.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// In seconds; a date is not read.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The answer, as much of it as came and is read.
async fn read(mut answer: Response) -> Bytes {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > MOST_ANSWER {
            break;
        }
    }
    body.into()
}

fn rejected(answer: &ExportTraceServiceResponse) -> u64 {
    let rejected = answer.partial_success.as_ref().map_or(0, |partial| partial.rejected_spans);
    rejected.try_into().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{Router, extract::State, http::HeaderMap, response::IntoResponse, routing::post};
    use opentelemetry_proto::tonic::{
        collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceRequest},
        trace::v1::{ResourceSpans, ScopeSpans, Span},
    };
    use rockbot_testkit::proxy::FaultProxy;
    use tokio::{net::TcpListener, task::JoinHandle};

    use super::*;

    fn request() -> Bytes {
        let span = Span { name: "one".to_owned(), ..Span::default() };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        let of_process = ResourceSpans { scope_spans, ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![of_process] }.encode_to_vec().into()
    }

    fn collector(url: &str, protocol: OtlpProtocol) -> Collector {
        crate::process::install_tls_provider();
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-tenant"),
            http::HeaderValue::from_static("us"),
        )]);
        Collector::new(url, protocol, headers).unwrap()
    }

    /// What it answers, the next one last.
    type Answers = Vec<(u16, Option<&'static str>, Vec<u8>)>;

    /// A collector over HTTP that gives these answers, and keeps what it was sent.
    struct Http {
        url: String,
        sent: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
        serving: JoinHandle<()>,
    }

    impl Http {
        async fn start(answers: Answers) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
            let sent = Arc::new(Mutex::new(Vec::new()));
            let answers = Arc::new(Mutex::new(answers));
            let export = |State(sent): State<Arc<Mutex<Vec<_>>>>,
                          headers: HeaderMap,
                          body: Bytes| async move {
                sent.lock().unwrap().push((headers, body));
                let (status, retry_after, body) = answers.lock().unwrap().pop().unwrap();
                let after = retry_after.map(|after| [(header::RETRY_AFTER, after)]);
                (StatusCode::from_u16(status).unwrap(), after, body).into_response()
            };
            let router = Router::new().route("/v1/traces", post(export)).with_state(sent.clone());
            let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
            Self { url, sent, serving }
        }

        fn sent(&self) -> Vec<(HeaderMap, Bytes)> {
            self.sent.lock().unwrap().clone()
        }
    }

    impl Drop for Http {
        fn drop(&mut self) {
            self.serving.abort();
        }
    }

    #[tokio::test]
    async fn a_collector_that_is_busy_is_asked_again() {
        let partial = ExportTracePartialSuccess { rejected_spans: 2, ..Default::default() };
        let accepted = ExportTraceServiceResponse { partial_success: Some(partial) };
        let server = Http::start(vec![
            (200, None, accepted.encode_to_vec()),
            (502, None, Vec::new()),
            (503, Some("0"), Vec::new()),
        ])
        .await;
        let mut collector = collector(&server.url, OtlpProtocol::Http);
        assert_eq!(collector.deliver(request(), WITHIN).await.unwrap(), 2);
        let sent = server.sent();
        assert_eq!(sent.len(), 3);
        for (headers, body) in sent {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            assert_eq!(headers["x-tenant"], "us");
            assert!(headers["user-agent"].to_str().unwrap().starts_with("rockbot/"));
            assert_eq!(body, request());
        }
    }

    #[tokio::test]
    async fn a_collector_that_refuses_or_wants_long_to_pass_is_not_asked_again() {
        for (status, retry_after) in
            [(400, None), (302, None), (429, Some("3600")), (503, Some("18446744073709551615"))]
        {
            let server = Http::start(vec![(status, retry_after, Vec::new())]).await;
            let mut collector = collector(&server.url, OtlpProtocol::Http);
            let problem = collector.deliver(request(), WITHIN).await.unwrap_err().to_string();
            assert!(problem.starts_with(&format!("the collector answered {status}")), "{problem}");
            assert_eq!(server.sent().len(), 1);
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_not_what_it_should_be_is_a_success() {
        for body in [vec![0xff; 10], vec![b'x'; 10 * MOST_ANSWER]] {
            let server = Http::start(vec![(200, None, body)]).await;
            let mut collector = collector(&server.url, OtlpProtocol::Http);
            assert_eq!(collector.deliver(request(), WITHIN).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn one_that_is_away_is_told_by_the_cause() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        for protocol in [OtlpProtocol::Grpc, OtlpProtocol::Http] {
            let mut collector = collector(&format!("http://{closed}"), protocol);
            let problem = collector.deliver(request(), WITHIN).await.unwrap_err().to_string();
            let cause = "the collector can't be reached: Connection refused";
            assert!(problem.starts_with(cause), "{problem}");
        }
    }

    #[tokio::test]
    async fn over_grpc_spans_arrive_and_a_refusal_is_told() {
        let server = rockbot_testkit::collector::Collector::start().await;
        let mut collector = collector(&server.endpoint(), OtlpProtocol::Grpc);
        assert_eq!(collector.deliver(request(), WITHIN).await.unwrap(), 0);
        assert_eq!(server.trace_with("one", &["one"]).await.len(), 1);
        // No message at all, which the server can't read.
        let problem = collector.deliver(Bytes::from_static(&[0xff]), WITHIN).await.unwrap_err();
        assert!(matches!(problem, Undelivered::Grpc { code: Code::Internal }), "{problem}");
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_is_heard_is_left_behind() {
        let server = rockbot_testkit::collector::Collector::start().await;
        let url = server.endpoint().replace("http://", "http://nobody:nothing@");
        let proxy = FaultProxy::start(&url).await;
        let url = format!("http://127.0.0.1:{}", proxy.port());
        let mut collector = collector(&url, OtlpProtocol::Grpc);
        collector.deliver(request(), WITHIN).await.unwrap();
        proxy.stall();
        let soon = Duration::from_millis(100);
        let problem = collector.deliver(request(), soon).await.unwrap_err();
        assert!(matches!(problem, Undelivered::Late(within) if within <= soon), "{problem}");
        assert_eq!(proxy.connections(), 1);
        proxy.resume();
        collector.deliver(request(), WITHIN).await.unwrap();
        assert_eq!(proxy.connections(), 2);
    }

    #[test]
    fn an_endpoint_that_is_none_is_told() {
        crate::process::install_tls_provider();
        for protocol in [OtlpProtocol::Grpc, OtlpProtocol::Http] {
            let problem = Collector::new("http://a b", protocol, HeaderMap::new()).err().unwrap();
            assert!(problem.to_string().starts_with("it can't be used: invalid"), "{problem}");
        }
    }
}
