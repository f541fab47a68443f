//! Warnings and errors that are logged within a span, told with it.

use std::fmt;

use rockbot_contracts::trace::{self, Value};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, filter_fn},
    layer::Context,
};

/// Tells the current span of them.
struct Complaints;

/// What tells spans of warnings and errors of the house's own code.
pub(crate) fn layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let is_bad = filter_fn(|metadata: &Metadata<'_>| {
        let is_bad = metadata.is_event() && *metadata.level() <= Level::WARN;
        is_bad && metadata.target().starts_with("rockbot")
    });
    // Without the hint all that dependencies log goes through filters.
    Complaints.with_filter(is_bad.with_max_level_hint(LevelFilter::WARN))
}

impl<S: Subscriber> Layer<S> for Complaints {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let span = trace::Span::current();
        let Some(span) = span.told() else { return };
        let mut said = Said { message: String::new(), fields: Vec::new() };
        event.record(&mut said);
        let about = event.metadata();
        said.fields.push(("level", about.level().as_str().into()));
        said.fields.push(("target", about.target().into()));
        span.happened(said.message, said.fields);
        if *about.level() == Level::ERROR {
            span.failed();
        }
    }
}

struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Visit for Said {
    fn record_u64(&mut self, field: &Field, number: u64) {
        self.fields.push((field.name(), number.into()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value.into())),
        }
    }

    fn record_str(&mut self, field: &Field, text: &str) {
        self.fields.push((field.name(), text.to_owned().into()));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use opentelemetry::trace::{SpanKind, Status, TracerProvider};
    use opentelemetry_sdk::{
        error::OTelSdkResult,
        trace::{SdkTracerProvider, Span, SpanData, SpanProcessor},
    };
    use rockbot_contracts::trace::Kind;
    use tracing::{debug, error, info, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::telemetry::spans::Spans;

    #[derive(Debug, Clone, Default)]
    struct Ended(Arc<Mutex<Vec<SpanData>>>);

    impl SpanProcessor for Ended {
        fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().unwrap().push(span);
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_span_is_sent_with_what_was_said_of_it_and_complained_about_within_it() {
        let ended = Ended::default();
        let provider = SdkTracerProvider::builder().with_span_processor(ended.clone()).build();
        assert!(trace::install(Spans { tracer: provider.tracer("test"), content: false }));
        let registry = tracing_subscriber::registry().with(layer());
        let _logs = tracing::subscriber::set_default(registry);
        warn!("within nothing");
        let span = trace::Span::begin(Kind::Client, |span| {
            span.name("ask it".to_owned());
            span.set("known", "text".into());
        });
        span.clone()
            .within(async {
                debug!("too small");
                info!("too small");
                warn!(target: "another", "of others");
                warn!(attempt = 3_u64, "it is slow");
                error!(reason = %"no route", "it is gone");
            })
            .await;
        drop(span);

        let told = ended.0.lock().unwrap();
        let [span] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((&*span.name, &span.span_kind), ("ask it", &SpanKind::Client));
        assert!(matches!(span.status, Status::Error { .. }));
        let said = |pairs: &[opentelemetry::KeyValue]| {
            let said = pairs.iter().map(|one| format!("{}={}", one.key, one.value));
            said.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said(&span.attributes), "known=text");
        let events: Vec<_> = span
            .events
            .iter()
            .map(|event| format!("{}: {}", event.name, said(&event.attributes)))
            .collect();
        let slow = format!("it is slow: attempt=3 level=WARN target={}", module_path!());
        let gone = format!("it is gone: reason=no route level=ERROR target={}", module_path!());
        assert_eq!(events, [slow, gone]);
    }
}
