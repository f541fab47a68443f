//! A bounded queue between a writer that must not wait and a reader.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{AgentReply, ReplyBody};
use tokio::sync::Notify;

use crate::event::TurnEvent;

/// Maximum number of queued optional items.
const MAX_OPTIONAL: usize = 1024;
/// Maximum number of queued essential items: the starts and ends of 16 answers with the maximum of 128
/// calls, with an approval request and its end for each.
const MAX_ESSENTIAL: usize = 8 * 1024;
/// Queued text is joined up to this size, in bytes.
const MAX_JOINED_BYTES: usize = 8 * 1024;

/// Number of queued items from which further ones are queued without arguments and results of calls.
const MAX_DETAILED: usize = 256;

/// Progress of a turn.
pub(crate) trait Progress: Sized {
    /// Returns `true` if a reader can do without the item: text, which the answer repeats, and progress
    /// lines of tools. Starts, ends and approval requests of calls are essential.
    fn is_optional(&self) -> bool;

    /// Joins a later item to this one if both are text and the result has at most `max_bytes`.
    fn join(&mut self, later: &Self, max_bytes: usize) -> bool;

    /// Leaves out arguments and results of calls.
    fn brief(self) -> Self;
}

impl Progress for TurnEvent {
    fn brief(self) -> Self {
        Self::brief(self)
    }

    fn is_optional(&self) -> bool {
        matches!(self, Self::TextDelta { .. } | Self::ToolProgressed { .. })
    }

    fn join(&mut self, later: &Self, max_bytes: usize) -> bool {
        match (self, later) {
            (Self::TextDelta { text }, Self::TextDelta { text: later }) => {
                join_text(text, later, max_bytes)
            }
            _ => false,
        }
    }
}

impl Progress for AgentReply {
    fn brief(mut self) -> Self {
        match &mut self.body {
            ReplyBody::ToolStarted { arguments, arguments_left_out, .. } => {
                *arguments_left_out += std::mem::take(arguments).len() as u64;
            }
            ReplyBody::ToolFinished { result: Some(result), result_left_out, .. } => {
                *result_left_out += std::mem::take(result).len() as u64;
            }
            _ => {}
        }
        self
    }

    fn is_optional(&self) -> bool {
        matches!(self.body, ReplyBody::TextDelta { .. } | ReplyBody::ToolProgressed { .. })
    }

    fn join(&mut self, later: &Self, max_bytes: usize) -> bool {
        let (ReplyBody::TextDelta { text }, ReplyBody::TextDelta { text: more }) =
            (&mut self.body, &later.body)
        else {
            return false;
        };
        let joined = join_text(text, more, max_bytes);
        if joined {
            self.sequence = later.sequence;
        }
        joined
    }
}

fn join_text(text: &mut String, later: &str, max_bytes: usize) -> bool {
    let fits = text.len() + later.len() <= max_bytes;
    if fits {
        text.push_str(later);
    }
    fits
}

/// An item, and the number of items lost since the one before it.
#[derive(Debug, PartialEq)]
pub(crate) struct Queued<T> {
    pub(crate) lost_before: u64,
    pub(crate) item: T,
}

/// Accepts progress without blocking and returns it in order. If the reader is slower, text is joined.
/// Beyond that, new optional items are dropped and counted; essential ones have a limit of their own, so
/// that no amount of optional progress displaces them.
pub(crate) struct ProgressQueue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    items: VecDeque<Queued<T>>,
    optional: usize,
    /// Items lost since the last queued one.
    lost: u64,
    closed: bool,
}

impl<T> Default for ProgressQueue<T> {
    fn default() -> Self {
        let state = State { items: VecDeque::new(), optional: 0, lost: 0, closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<T: Progress> ProgressQueue<T> {
    /// Adds an item, or counts it as lost.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.state();
        let joined = state.lost == 0
            && state.items.back_mut().is_some_and(|last| last.item.join(&item, MAX_JOINED_BYTES));
        if !joined {
            let is_long = state.items.len() >= MAX_DETAILED;
            state.push(if is_long { item.brief() } else { item });
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Adds the last item, whatever the limits, and closes the queue.
    pub(crate) fn finish(&self, item: T) {
        let mut state = self.state();
        state.append(item);
        state.closed = true;
        drop(state);
        self.changed.notify_one();
    }

    /// Counts `lost` items as lost.
    pub(crate) fn record_lost(&self, lost: u64) {
        let mut state = self.state();
        state.lost = state.lost.saturating_add(lost);
    }

    /// Closes the queue. Queued items can still be read.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// Waits for the next item. Returns `None` once the queue is closed and empty. Cancel-safe, for one
    /// reader.
    pub(crate) async fn next(&self) -> Option<Queued<T>> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if let Some(next) = state.pop() {
                    return Some(next);
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Removes all items and returns how many were lost with and before them.
    pub(crate) fn discard(&self) -> u64 {
        let mut state = self.state();
        let mut lost = std::mem::take(&mut state.lost);
        while let Some(Queued { lost_before, .. }) = state.pop() {
            lost = lost.saturating_add(lost_before).saturating_add(1);
        }
        lost
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

impl<T: Progress> State<T> {
    fn push(&mut self, item: T) {
        let optional = item.is_optional();
        let is_full = if optional {
            self.optional >= MAX_OPTIONAL
        } else {
            self.items.len() - self.optional >= MAX_ESSENTIAL
        };
        if is_full {
            self.lost = self.lost.saturating_add(1);
        } else {
            self.append(item);
        }
    }

    fn append(&mut self, item: T) {
        self.optional += usize::from(item.is_optional());
        let lost_before = std::mem::take(&mut self.lost);
        self.items.push_back(Queued { lost_before, item });
    }

    fn pop(&mut self) -> Option<Queued<T>> {
        let next = self.items.pop_front()?;
        self.optional -= usize::from(next.item.is_optional());
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolCallId;

    use super::*;

    fn delta(text: &str) -> TurnEvent {
        TurnEvent::TextDelta { text: text.to_owned() }
    }

    fn line() -> TurnEvent {
        TurnEvent::ToolProgressed { tool_call_id: ToolCallId::generate(), text: "x".to_owned() }
    }

    fn queued(lost_before: u64, item: TurnEvent) -> Option<Queued<TurnEvent>> {
        Some(Queued { lost_before, item })
    }

    #[tokio::test]
    async fn queued_text_is_joined_in_order() {
        let queue = ProgressQueue::default();
        for event in [delta("a"), delta("b"), TurnEvent::Steered, delta("c")] {
            queue.push(event);
        }
        assert_eq!(queue.next().await, queued(0, delta("ab")));
        assert_eq!(queue.next().await, queued(0, TurnEvent::Steered));
        assert_eq!(queue.next().await, queued(0, delta("c")));
        queue.close();
        assert_eq!(queue.next().await, None);
    }

    #[test]
    fn full_queue_counts_lost_progress_and_keeps_essential_items() {
        let queue = ProgressQueue::default();
        (0..MAX_OPTIONAL + 5).for_each(|_| queue.push(line()));
        queue.push(TurnEvent::Steered);
        let items: Vec<_> = std::iter::from_fn(|| queue.state().pop()).collect();
        assert_eq!(items.len(), MAX_OPTIONAL + 1);
        assert_eq!(items.last(), queued(5, TurnEvent::Steered).as_ref());
    }

    #[test]
    fn queue_is_bounded() {
        let queue = ProgressQueue::default();
        for _ in 0..MAX_ESSENTIAL + 3 {
            queue.push(TurnEvent::Steered);
        }
        assert_eq!(queue.state().items.len(), MAX_ESSENTIAL);
        assert_eq!(queue.discard(), MAX_ESSENTIAL as u64 + 3);
        assert!(queue.state().items.is_empty());
    }
}
