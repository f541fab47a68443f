//! Audit records that the gateways of a test write.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry,
};

/// Captures audit records of the current thread: the subscriber is thread-local, so the test needs a current-thread
/// runtime.
pub(crate) struct AuditRecords {
    records: Arc<Mutex<Vec<Value>>>,
    _subscriber: DefaultGuard,
}

impl AuditRecords {
    pub(crate) fn capture() -> Self {
        let records = Arc::default();
        let subscriber = registry().with(RecordLayer(Arc::clone(&records)));
        Self { records, _subscriber: tracing::subscriber::set_default(subscriber) }
    }

    /// Returns the outcomes of an action, in order.
    pub(crate) fn outcomes(&self, action: &str) -> Vec<String> {
        let records = self.with_action(action).into_iter();
        records.map(|record| record["outcome"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the records of an action, in order.
    pub(crate) fn with_action(&self, action: &str) -> Vec<Value> {
        let records = self.records.lock();
        records.iter().filter(|record| record["action"] == action).cloned().collect()
    }
}

struct RecordLayer(Arc<Mutex<Vec<Value>>>);

impl<S: Subscriber> Layer<S> for RecordLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "rockbot_audit" {
            event.record(&mut RecordVisitor(&self.0));
        }
    }
}

struct RecordVisitor<'a>(&'a Mutex<Vec<Value>>);

impl Visit for RecordVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "record" {
            self.0.lock().push(serde_json::from_str(value).unwrap());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
