//! Sends spans to a collector that speaks OTLP.
//!
//! A span is written when it ends, by whoever ends it, and a thread sends what was written. The exporter of
//! OpenTelemetry moves each span to another thread and makes messages of its own there first: that costs
//! more than all the rest of a span.

mod batches;
mod collector;
pub(super) mod headers;
mod protobuf;
mod request;
mod written;

use std::{
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use metrics::counter;
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{Span, SpanData, SpanProcessor},
};
use tokio::runtime::Runtime;
use tracing::{info, warn};

use self::{
    batches::{Batch, Batches},
    collector::{Collector, Undelivered},
    request::Origin,
};
pub use self::{collector::UnusableEndpoint, headers::UnusableHeaders};
use super::section::OtlpProtocol;

/// How long a span waits for others.
const BATCH_AFTER: Duration = Duration::from_secs(1);
/// How long [`SpanProcessor::force_flush`] waits.
const FLUSH_WITHIN: Duration = Duration::from_secs(10);

/// Takes spans that ended; a thread of its own sends them, until it is shut down.
#[derive(Debug)]
pub(super) struct Sender {
    state: Arc<State>,
}

impl Sender {
    /// Starts the thread; nothing is sent yet. All spans come from `resource` and `scope`.
    pub(super) fn start(
        url: &str,
        protocol: OtlpProtocol,
        resource: &Resource,
        scope: &InstrumentationScope,
    ) -> Result<Self, SenderError> {
        let collector = Collector::new(url, protocol, headers::configured()?)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(SenderError::System)?;
        let origin = Origin::new(resource, scope);
        let state = Arc::new(State::default());
        let mut thread =
            SenderThread { state: state.clone(), collector, origin, runtime, loss: None };
        thread::Builder::new()
            .name("spans".to_owned())
            .spawn(move || thread.run())
            .map_err(SenderError::System)?;
        Ok(Self { state })
    }
}

impl SpanProcessor for Sender {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        let is_news = {
            let mut work = self.state.lock();
            work.stops.is_none() && work.batches.add(&span)
        };
        if is_news {
            self.state.changed.notify_all();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        let mut work = self.state.lock();
        work.hurries = true;
        self.state.changed.notify_all();
        let waits =
            |work: &mut Work| !work.has_ended && (work.is_sending || !work.batches.is_empty());
        let flushed = self.state.wait_within(work, FLUSH_WITHIN, waits);
        self.state.change(|work| work.hurries = false);
        flushed
    }

    /// Sends what waits, and gives up what can't be sent in time.
    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let mut work = self.state.lock();
        work.stops = Some(Instant::now() + timeout);
        self.state.changed.notify_all();
        self.state.wait_within(work, timeout, |work| !work.has_ended)?;
        let is_all_sent = self.state.lock().batches.is_empty();
        if is_all_sent { Ok(()) } else { Err(OTelSdkError::Timeout(timeout)) }
    }
}

impl Drop for Sender {
    /// The thread ends with it, at the latest when a request is done.
    fn drop(&mut self) {
        self.state.change(Work::stop_now);
    }
}

/// What those who end spans, who sends them and who waits for that share.
#[derive(Debug, Default)]
struct State {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    batches: Batches,
    is_sending: bool,
    /// Nothing is to wait for more.
    hurries: bool,
    /// No more is taken, and nothing is sent any more from then on.
    stops: Option<Instant>,
    has_ended: bool,
}

impl Work {
    /// Unless it stops already.
    fn stop_now(&mut self) {
        self.stops.get_or_insert_with(Instant::now);
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_within(
        &self,
        work: MutexGuard<'_, Work>,
        within: Duration,
        waits: impl FnMut(&mut Work) -> bool,
    ) -> OTelSdkResult {
        let waited = self.changed.wait_timeout_while(work, within, waits);
        let (_work, late) = waited.unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() { Err(OTelSdkError::Timeout(within)) } else { Ok(()) }
    }

    /// Waits for the next batch, and says how many spans found no room before it; `None` at the end.
    fn next(&self) -> Option<(Batch, u64)> {
        let idle = |work: &mut Work| work.batches.is_empty() && work.stops.is_none();
        let mut work = self.lock();
        work = self.changed.wait_while(work, idle).unwrap_or_else(PoisonError::into_inner);
        let fills =
            |work: &mut Work| !work.batches.has_full() && !work.hurries && work.stops.is_none();
        let waited = self.changed.wait_timeout_while(work, BATCH_AFTER, fills);
        (work, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if work.stops.is_some_and(|end| end <= Instant::now()) {
            return None;
        }
        let batch = work.batches.take()?;
        work.is_sending = true;
        Some((batch, work.batches.take_lost()))
    }

    fn change(&self, change: impl FnOnce(&mut Work)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// Sends batches, counts what is sent and what is lost, and says when that begins.
struct SenderThread {
    state: Arc<State>,
    collector: Collector,
    origin: Origin,
    /// Of its own: what sends spans competes with no call, and works while the process leaves.
    runtime: Runtime,
    /// What the log has last.
    loss: Option<Loss>,
}

impl SenderThread {
    fn run(&mut self) {
        while let Some((batch, no_room)) = self.state.next() {
            self.send(&batch, no_room);
            self.state.change(|work| work.is_sending = false);
        }
    }

    fn send(&mut self, batch: &Batch, no_room: u64) {
        let spans = batch.spans();
        let request = self.origin.request(batch.written()).into();
        let delivered = self.runtime.block_on(self.collector.deliver(request, collector::WITHIN));
        let rejected = delivered.as_ref().map_or(spans, |rejected| *rejected.min(&spans));
        for (outcome, spans) in [("sent", spans - rejected), ("lost", rejected + no_room)] {
            if spans > 0 {
                counter!("rockbot_telemetry_spans_total", "outcome" => outcome).increment(spans);
            }
        }
        self.tell(match delivered {
            Err(problem) => Some(Loss::Away(problem)),
            Ok(_) if rejected > 0 => Some(Loss::Rejected),
            Ok(_) if no_room > 0 => Some(Loss::NoRoom),
            Ok(_) => None,
        });
    }

    /// Tells the first of many: a collector that is away is away for a while.
    fn tell(&mut self, loss: Option<Loss>) {
        match (&loss, &self.loss) {
            (Some(loss), before) if before.as_ref().is_none_or(|before| !loss.is_like(before)) => {
                warn!(problem = %loss, "spans are lost");
            }
            (None, Some(_)) => info!("spans are sent again"),
            _ => {}
        }
        self.loss = loss;
    }
}

impl Drop for SenderThread {
    /// Also when it panicked: nobody is to wait for it, and nothing for nobody.
    fn drop(&mut self) {
        self.state.change(|work| {
            work.has_ended = true;
            work.stop_now();
        });
    }
}

/// Why spans of a batch, or before it, are lost.
#[derive(Debug, thiserror::Error)]
enum Loss {
    #[error("{0}")]
    Away(Undelivered),
    #[error("the collector does not take all of them; its log says why")]
    Rejected,
    #[error("they come faster than the collector takes them, or one is too long")]
    NoRoom,
}

impl Loss {
    fn is_like(&self, other: &Self) -> bool {
        mem::discriminant(self) == mem::discriminant(other)
    }
}

/// Why traces can't be sent from this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// The endpoint is none.
    #[error("telemetry.otlp_endpoint: {0}")]
    Endpoint(#[from] UnusableEndpoint),
    /// The environment has headers that can't be sent.
    #[error(transparent)]
    Headers(#[from] UnusableHeaders),
    /// The system refuses a thread, or what it takes to wait for answers.
    #[error("spans can't be sent: {0}")]
    System(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
    use rockbot_testkit::{collector::Collector as Server, proxy::FaultProxy};

    use super::{request::tests::span, *};

    fn sampled(name: &str) -> SpanData {
        let (trace, id) = (TraceId::from(7), SpanId::from(9));
        let state = TraceState::default();
        let span_context = SpanContext::new(trace, id, TraceFlags::SAMPLED, false, state);
        SpanData { span_context, ..span(name) }
    }

    fn sender(url: &str) -> Result<Sender, SenderError> {
        crate::process::install_tls_provider();
        let (resource, scope) =
            (Resource::builder_empty().build(), InstrumentationScope::default());
        Sender::start(url, OtlpProtocol::Grpc, &resource, &scope)
    }

    /// Does what blocks where the collector of this test can answer.
    async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(work).await.unwrap()
    }

    #[tokio::test]
    async fn what_waits_is_sent_before_it_ends_and_nothing_is_taken_afterwards() {
        let server = Server::start().await;
        let sender = sender(&server.endpoint()).unwrap();
        sender.on_end(span("not sampled"));
        for _ in 0..1000 {
            sender.on_end(sampled("early"));
        }
        let ended = aside(move || {
            sender.shutdown_with_timeout(collector::WITHIN).unwrap();
            sender.on_end(sampled("late"));
            sender.force_flush().unwrap();
            sender.shutdown_with_timeout(collector::WITHIN).unwrap();
        });
        ended.await;
        let names: Vec<_> = server.spans().into_iter().map(|span| span.name).collect();
        assert_eq!(names, vec!["early"; 1000]);
    }

    #[tokio::test]
    async fn a_collector_that_does_not_answer_holds_nobody_up() {
        let server = Server::start().await;
        let url = server.endpoint().replace("http://", "http://nobody:nothing@");
        let proxy = FaultProxy::start(&url).await;
        proxy.stall();
        let sender = sender(&format!("http://127.0.0.1:{}", proxy.port())).unwrap();
        sender.on_end(sampled("one"));
        let soon = Duration::from_millis(50);
        let ended = aside(move || sender.shutdown_with_timeout(soon)).await;
        assert!(matches!(ended, Err(OTelSdkError::Timeout(within)) if within == soon), "{ended:?}");
    }

    #[tokio::test]
    async fn one_span_alone_is_sent_after_a_while() {
        let server = Server::start().await;
        let sender = sender(&server.endpoint()).unwrap();
        sender.on_end(sampled("alone"));
        assert_eq!(server.trace_with("alone", &["alone"]).await.len(), 1);
        drop(sender);
    }

    #[tokio::test]
    async fn an_endpoint_that_cannot_be_used_is_an_error_also_within_a_runtime() {
        let problem = sender("http://a b").err().unwrap().to_string();
        assert!(problem.starts_with("telemetry.otlp_endpoint: it can't be used"), "{problem}");
    }
}
