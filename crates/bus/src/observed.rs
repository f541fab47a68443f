//! A bus whose messages are counted and traced.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use metrics::{Histogram, counter, histogram};
use rockbot_contracts::{
    QueueName,
    labels::{family_of, type_of},
    trace,
};
use tokio::time::Instant;
use tracing::{Span, info_span};

use crate::{
    port::{Assurance, Bus, ConsumeError, Consumer, Publication, PublishError, Subscription},
    report::BusReport,
};

/// Wraps a bus: each message that is published takes the trace of its sender with it, is a span of
/// that trace until the bus has it (`send`, by OpenTelemetry's conventions for messaging), and is
/// counted with what became of it.
///
/// | metric | labels |
/// |---|---|
/// | `rockbot_bus_published_total` | `kind`, the message's type; `outcome` |
/// | `rockbot_bus_publish_duration_seconds` | |
pub struct Observed {
    bus: Arc<dyn Bus>,
    system: &'static str,
    confirmed_after: Histogram,
}

impl Observed {
    /// Watches over `bus`, which is called `system` in traces, such as `rabbitmq`.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, system: &'static str) -> Arc<Self> {
        let confirmed_after = histogram!("rockbot_bus_publish_duration_seconds");
        Arc::new(Self { bus, system, confirmed_after })
    }

    async fn send(&self, mut publication: Publication) -> Result<(), PublishError> {
        let confirmed = publication.assurance == Assurance::Confirmed;
        // Progress and announcements are many, and say nothing of where time goes.
        let span = if confirmed { self.span(&publication) } else { Span::none() };
        let kind = type_of(publication.envelope.message_type());
        let confirmed_after = confirmed.then_some(&self.confirmed_after);
        let flight = Flight { kind, outcome: "abandoned", confirmed_after, since: Instant::now() };
        // With a context of its own a message belongs elsewhere.
        if publication.envelope.trace.parent.is_none() {
            // Where its sending is no span, it belongs to what sends it.
            publication.envelope.trace =
                if confirmed { trace::context_of(&span) } else { trace::current() };
        }
        // Nothing below makes spans, so this one need not be current.
        let sent = self.bus.publish(publication).await;
        let outcome = outcome_of(&sent, confirmed);
        flight.landed(outcome);
        if sent.is_err() {
            trace::fail(&span, outcome);
        }
        sent
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

/// A message on its way, counted when it is known what became of it, or when nobody waits for that
/// any more: an answer can overtake the confirm of its question.
struct Flight<'a> {
    kind: &'static str,
    outcome: &'static str,
    /// Of messages that the bus confirms.
    confirmed_after: Option<&'a Histogram>,
    since: Instant,
}

impl Flight<'_> {
    fn landed(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let labels = [("kind", self.kind), ("outcome", self.outcome)];
        counter!("rockbot_bus_published_total", &labels).increment(1);
        if let Some(confirmed_after) = self.confirmed_after {
            confirmed_after.record(self.since.elapsed());
        }
    }
}

fn outcome_of(sent: &Result<(), PublishError>, confirmed: bool) -> &'static str {
    match sent {
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
