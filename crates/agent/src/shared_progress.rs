//! Progress of a turn for several receivers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::event::{ProgressSink, TurnEvent};

/// Maximum number of receivers; later ones only get the answer.
const MAX_RECEIVERS: usize = 16;

/// Receivers of a turn's progress. Copies of the message that started the turn add theirs.
#[derive(Clone, Default)]
pub(crate) struct SharedProgress(Arc<Mutex<Vec<ProgressSink>>>);

impl SharedProgress {
    /// Adds a receiver. It gets the later events.
    pub(crate) fn add(&self, sink: ProgressSink) {
        let mut sinks = self.0.lock();
        if sinks.len() < MAX_RECEIVERS {
            sinks.push(sink);
        }
    }

    /// Returns a sink that passes the events on to all receivers.
    pub(crate) fn sink(&self) -> ProgressSink {
        let sinks = self.0.clone();
        Arc::new(move |event: TurnEvent| {
            let sinks = sinks.lock().clone();
            for sink in &sinks {
                sink(event.clone());
            }
        })
    }
}
