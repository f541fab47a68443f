//! Metrics and traces of published messages.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use metrics::{Histogram, counter, histogram};
use rockbot_contracts::{
    DeliveryMode, QueueName,
    labels::{family_of, type_of},
    trace,
};
use tokio::time::Instant;
use tracing::{Span, info_span};

use crate::{
    port::{Assurance, Bus, ConsumeError, Consumer, Publication, PublishError, Subscription},
    report::BusReport,
};

/// A bus that adds metrics and traces to another one. A published message carries the trace context of
/// its sender. A confirmed publish of a persistent message is a `send` span, after OpenTelemetry's
/// conventions for messaging.
///
/// | metric | labels |
/// |---|---|
/// | `rockbot_bus_published_total` | `kind`: the message type; `outcome` |
/// | `rockbot_bus_publish_duration_seconds` | |
pub struct Observed {
    bus: Arc<dyn Bus>,
    system: &'static str,
    confirm_duration: Histogram,
}

impl Observed {
    /// Wraps `bus`. Traces name the messaging system `system`, such as `rabbitmq`.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, system: &'static str) -> Arc<Self> {
        let confirm_duration = histogram!("rockbot_bus_publish_duration_seconds");
        Arc::new(Self { bus, system, confirm_duration })
    }

    async fn send(&self, mut publication: Publication) -> Result<(), PublishError> {
        let confirmed = publication.assurance == Assurance::Confirmed;
        // Progress and announcements are frequent and explain no latency, so they get no span.
        let traced = confirmed && publication.envelope.delivery_mode == DeliveryMode::Persistent;
        let span = if traced { self.span(&publication) } else { Span::none() };
        let kind = type_of(publication.envelope.message_type());
        let confirm_duration = confirmed.then_some(&self.confirm_duration);
        let publish =
            MeasuredPublish { kind, outcome: "abandoned", confirm_duration, since: Instant::now() };
        // A message that already has a context keeps it.
        if publication.envelope.trace.parent.is_none() {
            // Without a span of its own, the message belongs to the current one.
            publication.envelope.trace =
                if traced { trace::context_of(&span) } else { trace::current() };
        }
        // The wrapped bus creates no spans, so this one need not be current.
        let result = self.bus.publish(publication).await;
        let outcome = outcome_label(&result, confirmed);
        publish.finish(outcome);
        if result.is_err() {
            trace::fail(&span, outcome);
        }
        result
    }

    fn span(&self, publication: &Publication) -> Span {
        let envelope = &publication.envelope;
        let destination = family_of(publication.key.as_str());
        let span = info_span!(
            target: trace::TARGET,
            "send",
            otel.name = format!("send {destination}"),
            otel.kind = "producer",
            messaging.system = self.system,
            messaging.operation.name = "send",
            messaging.operation.type = "send",
            messaging.destination.name = destination,
            messaging.message.id = envelope.message_id.as_str(),
            messaging.message.conversation_id = envelope.correlation_id.as_deref(),
        );
        trace::continue_from(&span, &envelope.trace);
        span
    }
}

/// A publish in progress, counted when it is dropped: a reply can overtake the confirm of its request,
/// and the caller then drops the future of the publish.
struct MeasuredPublish<'a> {
    kind: &'static str,
    outcome: &'static str,
    /// Set for confirmed publishes.
    confirm_duration: Option<&'a Histogram>,
    since: Instant,
}

impl MeasuredPublish<'_> {
    fn finish(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for MeasuredPublish<'_> {
    fn drop(&mut self) {
        let labels = [("kind", self.kind), ("outcome", self.outcome)];
        counter!("rockbot_bus_published_total", &labels).increment(1);
        if let Some(confirm_duration) = self.confirm_duration {
            confirm_duration.record(self.since.elapsed());
        }
    }
}

fn outcome_label(result: &Result<(), PublishError>, confirmed: bool) -> &'static str {
    match result {
        Ok(()) if confirmed => "confirmed",
        Ok(()) => "sent",
        Err(PublishError::Unroutable { .. }) => "unroutable",
        Err(PublishError::Refused { .. }) => "refused",
        Err(PublishError::Unconfirmed { .. }) => "unconfirmed",
        Err(_) => "failed",
    }
}

impl Bus for Observed {
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(self.send(publication))
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        self.bus.consume(subscription)
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        self.bus.inspect(queues)
    }

    fn is_ready(&self) -> bool {
        self.bus.is_ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.bus.close()
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.system).finish()
    }
}
