//! A trace collector that receives OTLP over gRPC.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{AnyValue, KeyValue, any_value},
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

use crate::fixture::TEST_TIMEOUT;

/// A collector that keeps the received spans until it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    spans: watch::Receiver<Vec<Span>>,
    serving: JoinHandle<()>,
}

/// A received span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// `service.name` of the process.
    pub service: String,
    /// Its name.
    pub name: String,
    /// The id of its trace.
    pub trace: Vec<u8>,
    /// Its id.
    pub id: Vec<u8>,
    /// Its parent's id; empty at the root.
    pub parent: Vec<u8>,
    /// The traces and spans that it is linked to.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
}

struct Service(watch::Sender<Vec<Span>>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send_modify(|spans| spans.extend(spans_of(request.into_inner())));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts a collector on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, spans) = watch::channel(Vec::new());
        let service = TraceServiceServer::new(Service(sender));
        let serving = tokio::spawn(async move {
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(TcpIncoming::from(listener)).await.expect("it serves");
        });
        Self { address, spans, serving }
    }

    /// Returns the endpoint for exporters.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all spans received so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.spans.borrow().clone()
    }

    /// Waits until a trace with a span called `name` has spans of all `names`, two where a name is
    /// given twice, and returns its spans. A name that ends in `*` is a prefix.
    ///
    /// # Panics
    /// When the trace is not complete in time; the message lists the received spans.
    pub async fn trace_with(&self, name: &str, names: &[&str]) -> Vec<Span> {
        self.wait_for_trace(name, |trace| has_names(trace, names)).await
    }

    /// As [`Self::trace_with`], and waits for the parents of all spans too. Processes export their spans
    /// independently, so that a child may arrive before its parent.
    ///
    /// # Panics
    /// When the trace is not complete in time; the message lists the received spans.
    pub async fn tree_with(&self, name: &str, names: &[&str]) -> Vec<Span> {
        self.wait_for_trace(name, |trace| has_names(trace, names) && has_all_parents(trace)).await
    }

    async fn wait_for_trace(&self, name: &str, complete: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let mut spans = self.spans.clone();
        let received = |spans: &Vec<Span>| trace_where(spans, name, &complete).is_some();
        let received = timeout(TEST_TIMEOUT, spans.wait_for(received)).await;
        assert!(received.is_ok(), "no complete trace of {name} in {:#?}", self.summaries());
        trace_where(&self.spans(), name, &complete).expect("a complete trace")
    }

    /// Waits for `count` spans called `name`, of any traces, and returns them in the order of their arrival.
    ///
    /// # Panics
    /// When they do not arrive in time; the message lists the received spans.
    pub async fn spans_named(&self, name: &str, count: usize) -> Vec<Span> {
        let mut spans = self.spans.clone();
        let is_named = |span: &&Span| span.name == name;
        let complete = |spans: &Vec<Span>| spans.iter().filter(is_named).count() >= count;
        let received = timeout(TEST_TIMEOUT, spans.wait_for(complete)).await;
        assert!(received.is_ok(), "not {count} spans {name} in {:#?}", self.summaries());
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    fn summaries(&self) -> BTreeSet<String> {
        let spans = self.spans();
        spans
            .iter()
            .map(|span| format!("{:02x?} {} {}", &span.trace[..4], span.service, span.name))
            .collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns the first complete trace with a span called `name`.
fn trace_where(
    spans: &[Span],
    name: &str,
    complete: impl Fn(&[Span]) -> bool,
) -> Option<Vec<Span>> {
    let traces = spans.iter().filter(|span| span.name == name).map(|span| &span.trace);
    traces
        .map(|trace| spans.iter().filter(|span| span.trace == *trace).cloned().collect::<Vec<_>>())
        .find(|trace| complete(trace))
}

fn has_names(trace: &[Span], names: &[&str]) -> bool {
    let is_named = |span: &Span, name: &str| match name.strip_suffix('*') {
        Some(prefix) => span.name.starts_with(prefix),
        None => span.name == name,
    };
    names.iter().all(|name| {
        let expected = names.iter().filter(|other| *other == name).count();
        trace.iter().filter(|span| is_named(span, name)).count() >= expected
    })
}

fn has_all_parents(trace: &[Span]) -> bool {
    let ids: BTreeSet<_> = trace.iter().map(|span| &span.id).collect();
    trace.iter().all(|span| span.parent.is_empty() || ids.contains(&span.parent))
}

fn spans_of(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut all = Vec::new();
    for process in request.resource_spans {
        let resource = process.resource.map(|resource| texts(resource.attributes));
        let service =
            resource.and_then(|mut texts| texts.remove("service.name")).unwrap_or_default();
        for span in process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            all.push(Span {
                service: service.clone(),
                name: span.name,
                trace: span.trace_id,
                id: span.span_id,
                parent: span.parent_span_id,
                links: span.links.into_iter().map(|link| (link.trace_id, link.span_id)).collect(),
                attributes: texts(span.attributes),
            });
        }
    }
    all
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(other) => format!("{other:?}"),
        None => String::new(),
    };
    attributes.into_iter().map(|one| (one.key, text(one.value))).collect()
}
