//! Progress of a turn for several receivers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    approvals::Approvals,
    event::{ProgressSink, TurnEvent},
};

/// Maximum number of receivers; later ones only get the answer.
const MAX_RECEIVERS: usize = 16;

/// Receivers of a turn's progress. Copies of the message that started the turn add theirs.
#[derive(Clone)]
pub(crate) struct SharedProgress {
    state: Arc<Mutex<State>>,
    /// Knows which approval requests are open.
    approvals: Option<Arc<Approvals>>,
}

#[derive(Default)]
struct State {
    receivers: Vec<ProgressSink>,
    /// The event that started the part of the turn in this process.
    resumed: Option<TurnEvent>,
    /// Approval requests and requests for input that may be open.
    requests: Vec<TurnEvent>,
}

impl SharedProgress {
    pub(crate) fn new(approvals: Option<Arc<Approvals>>) -> Self {
        Self { state: Arc::default(), approvals }
    }

    /// Adds a receiver. Of the earlier events, it gets those that it must know: that the turn was resumed,
    /// and the approval requests that are open. It gets all later events.
    pub(crate) fn add(&self, receiver: ProgressSink) {
        let mut state = self.state.lock();
        if state.receivers.len() >= MAX_RECEIVERS {
            return;
        }
        // Under the lock, so that no later event precedes these.
        let open = state.requests.iter().filter_map(|request| self.if_open(request));
        for event in state.resumed.iter().cloned().chain(open) {
            receiver(event);
        }
        state.receivers.push(receiver);
    }

    /// Returns a sink that passes the events on to all receivers.
    pub(crate) fn sink(&self) -> ProgressSink {
        let shared = self.clone();
        Arc::new(move |event: TurnEvent| {
            let receivers = shared.record(&event);
            for receiver in &receivers {
                receiver(event.clone());
            }
        })
    }

    /// Keeps an event that later receivers must know. Returns the receivers of now.
    fn record(&self, event: &TurnEvent) -> Vec<ProgressSink> {
        let mut state = self.state.lock();
        match event {
            TurnEvent::Resumed { .. } => state.resumed = Some(event.clone()),
            TurnEvent::ApprovalAsked { .. } | TurnEvent::InputAsked { .. } => {
                // The number of open requests is bounded.
                state.requests.retain(|request| self.if_open(request).is_some());
                state.requests.push(event.clone());
            }
            _ => {}
        }
        state.receivers.clone()
    }

    /// Returns an approval request or a request for input with the time that is left; `None` if it is closed.
    fn if_open(&self, request: &TurnEvent) -> Option<TurnEvent> {
        let mut request = request.clone();
        match &mut request {
            TurnEvent::ApprovalAsked { approval_id, expiry, .. } => {
                *expiry = self.approvals.as_ref()?.remaining(approval_id)?;
            }
            TurnEvent::InputAsked { input_id, expiry, .. } => {
                *expiry = self.approvals.as_ref()?.input_remaining(input_id)?;
            }
            _ => {}
        }
        Some(request)
    }
}
