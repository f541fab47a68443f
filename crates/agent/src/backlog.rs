//! Events of one turn that wait to be published.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::event::{ProgressSink, TurnEvent};

/// The most events that wait.
const MOST_EVENTS: usize = 1024;
/// Pieces of text that wait are joined up to this size, in bytes.
const MOST_JOINED_BYTES: usize = 8 * 1024;

/// Takes events without blocking and hands them out in order. When the bus is slower than the
/// model, pieces of text are joined; when even that is not enough, the newest events are lost, for
/// the final answer holds the whole text.
#[derive(Default)]
pub(crate) struct Backlog {
    events: Mutex<VecDeque<TurnEvent>>,
    arrived: Notify,
}

impl Backlog {
    /// The end that the turn writes to.
    pub(crate) fn sink(self: &Arc<Self>) -> ProgressSink {
        let backlog = self.clone();
        Arc::new(move |event| backlog.push(event))
    }

    /// The next event, when there is one. Safe to drop between polls.
    pub(crate) async fn next(&self) -> TurnEvent {
        loop {
            let arrived = self.arrived.notified();
            if let Some(event) = self.pop() {
                return event;
            }
            arrived.await;
        }
    }

    /// The next event, if one waits.
    pub(crate) fn pop(&self) -> Option<TurnEvent> {
        self.events().pop_front()
    }

    fn push(&self, event: TurnEvent) {
        let mut events = self.events();
        if let (Some(TurnEvent::TextDelta { text: before }), TurnEvent::TextDelta { text }) =
            (events.back_mut(), &event)
            && before.len() + text.len() <= MOST_JOINED_BYTES
        {
            before.push_str(text);
        } else if events.len() < MOST_EVENTS {
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
    async fn text_that_waits_is_joined_and_order_is_kept() {
        let backlog = Arc::new(Backlog::default());
        let sink = backlog.sink();
        for event in [delta("a"), delta("b"), TurnEvent::Steered, delta("c")] {
            sink(event);
        }
        assert_eq!(backlog.next().await, delta("ab"));
        assert_eq!(backlog.next().await, TurnEvent::Steered);
        assert_eq!(backlog.next().await, delta("c"));
        assert_eq!(backlog.pop(), None);
    }

    #[test]
    fn it_is_bounded() {
        let backlog = Arc::new(Backlog::default());
        let sink = backlog.sink();
        for _ in 0..MOST_EVENTS * 2 {
            sink(TurnEvent::Steered);
        }
        assert_eq!(backlog.events().len(), MOST_EVENTS);
    }
}
