//! A buffer for the events of a turn.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::event::{ProgressSink, TurnEvent};

/// Maximum number of buffered events.
const MAX_EVENTS: usize = 1024;
/// Buffered text deltas are joined up to this size, in bytes.
const MAX_JOINED_BYTES: usize = 8 * 1024;

/// Accepts events without blocking and returns them in order. If the bus is slower than the model, text
/// deltas are joined. If the buffer is full, new events are dropped, because the final answer contains the
/// whole text.
#[derive(Default)]
pub(crate) struct ProgressBuffer {
    events: Mutex<VecDeque<TurnEvent>>,
    arrived: Notify,
}

impl ProgressBuffer {
    /// Returns the sink that the turn writes to.
    pub(crate) fn sink(self: &Arc<Self>) -> ProgressSink {
        let buffer = self.clone();
        Arc::new(move |event| buffer.push(event))
    }

    /// Waits for the next event. Cancel-safe.
    pub(crate) async fn next(&self) -> TurnEvent {
        loop {
            let arrived = self.arrived.notified();
            if let Some(event) = self.pop() {
                return event;
            }
            arrived.await;
        }
    }

    /// Returns the next event, if there is one.
    pub(crate) fn pop(&self) -> Option<TurnEvent> {
        self.events().pop_front()
    }

    fn push(&self, event: TurnEvent) {
        let mut events = self.events();
        if let (Some(TurnEvent::TextDelta { text: before }), TurnEvent::TextDelta { text }) =
            (events.back_mut(), &event)
            && before.len() + text.len() <= MAX_JOINED_BYTES
        {
            before.push_str(text);
        } else if events.len() < MAX_EVENTS {
            events.push_back(event);
        }
        drop(events);
        self.arrived.notify_one();
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<TurnEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(text: &str) -> TurnEvent {
        TurnEvent::TextDelta { text: text.to_owned() }
    }

    #[tokio::test]
    async fn buffered_text_is_joined_in_order() {
        let buffer = Arc::new(ProgressBuffer::default());
        let sink = buffer.sink();
        for event in [delta("a"), delta("b"), TurnEvent::Steered, delta("c")] {
            sink(event);
        }
        assert_eq!(buffer.next().await, delta("ab"));
        assert_eq!(buffer.next().await, TurnEvent::Steered);
        assert_eq!(buffer.next().await, delta("c"));
        assert_eq!(buffer.pop(), None);
    }

    #[test]
    fn buffer_is_bounded() {
        let buffer = Arc::new(ProgressBuffer::default());
        let sink = buffer.sink();
        for _ in 0..MAX_EVENTS * 2 {
            sink(TurnEvent::Steered);
        }
        assert_eq!(buffer.events().len(), MAX_EVENTS);
    }
}
