//! The recent events of all conversations, in one order, for viewers that reconnect.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use rockbot_contracts::{MessageId, SessionId};
use tokio::sync::watch;

use super::event::{ConversationEvent, EventBody};
use crate::clock::now_ms;

/// Largest number of events kept of a conversation.
const MAX_EVENTS: usize = 4096;
/// Size at which the oldest events of a conversation are dropped, in bytes.
const MAX_CONVERSATION_BYTES: usize = 4 * 1024 * 1024;
/// Size of all kept events at which the conversations without recent events are dropped, in bytes.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// Number of ended shares that are remembered. A stream that misses one ends by its lifetime.
const MAX_ENDED_SHARES: usize = 1024;
/// Largest number of conversations with kept events.
const MAX_CONVERSATIONS: usize = 4096;

/// A position in the events of this process: all events up to it were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u64);

/// Why events after a position are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// They were dropped.
    Gap {
        /// Their number, or an upper bound if several conversations have events; 0 if unknown.
        count: u64,
    },
    /// The position is of another process, or of none.
    Epoch,
}

/// Events of a conversation after a position, in order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Events {
    pub(crate) events: Vec<(Position, Arc<ConversationEvent>)>,
    /// More events follow.
    pub(crate) is_cut: bool,
}

/// The events of conversations. Sequence numbers grow over all conversations, so that one position covers
/// several of them.
#[derive(Debug)]
pub(crate) struct Hub {
    epoch: String,
    state: Mutex<State>,
    latest: watch::Sender<u64>,
    /// Shares that ended recently, oldest first.
    ended_shares: Mutex<VecDeque<String>>,
}

#[derive(Debug, Default)]
struct State {
    sequence: u64,
    bytes: usize,
    rings: HashMap<SessionId, Ring>,
    /// The latest event of a conversation that was dropped as a whole.
    dropped_through: u64,
}

/// The kept events of a conversation.
#[derive(Debug)]
struct Ring {
    events: VecDeque<(u64, Arc<ConversationEvent>)>,
    bytes: usize,
    /// Events up to this one were dropped.
    dropped_through: u64,
    /// The number of events that were dropped.
    dropped: u64,
}

impl Hub {
    /// Creates an empty hub with an epoch of its own.
    pub(crate) fn new() -> Self {
        let id = MessageId::generate();
        // The random end of the id.
        let epoch = id.as_str()[16..].to_owned();
        let latest = watch::channel(0).0;
        Self { epoch, state: Mutex::default(), latest, ended_shares: Mutex::default() }
    }

    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Returns the position after all events so far.
    pub(crate) fn now(&self) -> Position {
        Position(self.state.lock().sequence)
    }

    /// Returns the id of the event at a position.
    pub(crate) fn id_at(&self, position: Position) -> String {
        format!("{}-{}", self.epoch, position.0)
    }

    /// Parses the id of an event; `Err` if it is not of this process.
    pub(crate) fn parse(&self, id: &str) -> Result<Position, Missing> {
        let (epoch, sequence) = id.rsplit_once('-').ok_or(Missing::Epoch)?;
        let sequence = sequence.parse::<u64>().map_err(|_| Missing::Epoch)?;
        let is_known = epoch == self.epoch && sequence <= self.state.lock().sequence;
        if is_known { Ok(Position(sequence)) } else { Err(Missing::Epoch) }
    }

    /// Returns a receiver that is notified of each event.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Adds an event, and returns its position.
    pub(crate) fn publish(
        &self,
        conversation: &SessionId,
        message: Option<&MessageId>,
        body: EventBody,
    ) -> Position {
        let mut state = self.state.lock();
        state.sequence += 1;
        let sequence = state.sequence;
        let event = ConversationEvent {
            id: format!("{}-{sequence}", self.epoch),
            conversation: conversation.to_string(),
            message_id: message.map(ToString::to_string),
            at_ms: now_ms(),
            body,
        };
        state.add(conversation, sequence, event);
        // Under the lock, so that the latest number never decreases.
        self.latest.send_replace(sequence);
        Position(sequence)
    }

    /// Ends the streams of a share.
    pub(crate) fn end_share(&self, share: &str) {
        let mut ended = self.ended_shares.lock();
        if ended.len() >= MAX_ENDED_SHARES {
            ended.pop_front();
        }
        ended.push_back(share.to_owned());
        drop(ended);
        // Without a new event, to wake the viewers.
        self.latest.send_modify(|_| {});
    }

    /// Returns whether a share ended recently.
    pub(crate) fn is_ended_share(&self, share: &str) -> bool {
        self.ended_shares.lock().iter().any(|ended| ended == share)
    }

    /// Returns the kept events of a conversation after a position, the first `max_bytes` of them, or that some are
    /// missing.
    pub(crate) fn after(
        &self,
        conversation: &SessionId,
        position: Position,
        max_bytes: usize,
    ) -> Result<Events, Missing> {
        let state = self.state.lock();
        let Some(ring) = state.rings.get(conversation) else {
            let is_gap = position.0 < state.dropped_through;
            return if is_gap { Err(Missing::Gap { count: 0 }) } else { Ok(Events::default()) };
        };
        if position.0 < ring.dropped_through {
            // At most as many as were dropped, and as have happened since.
            let count = ring.dropped.min(ring.dropped_through - position.0);
            return Err(Missing::Gap { count });
        }
        let mut bytes = 0;
        let start = ring.events.partition_point(|(sequence, _)| *sequence <= position.0);
        let mut found = Events::default();
        for (sequence, event) in ring.events.range(start..) {
            bytes += event.body.size();
            if bytes > max_bytes && !found.events.is_empty() {
                found.is_cut = true;
                break;
            }
            found.events.push((Position(*sequence), event.clone()));
        }
        Ok(found)
    }
}

impl State {
    fn add(&mut self, conversation: &SessionId, sequence: u64, event: ConversationEvent) {
        let size = event.body.size();
        if !self.rings.contains_key(conversation) && self.rings.len() >= MAX_CONVERSATIONS {
            self.drop_stalest();
        }
        // Earlier events of the conversation may have been dropped with its ring.
        let dropped_through = self.dropped_through;
        let ring = self.rings.entry(conversation.clone()).or_insert_with(|| Ring {
            events: VecDeque::new(),
            bytes: 0,
            dropped_through,
            dropped: 0,
        });
        ring.events.push_back((sequence, Arc::new(event)));
        ring.bytes += size;
        self.bytes += size;
        while ring.events.len() > MAX_EVENTS || ring.bytes > MAX_CONVERSATION_BYTES {
            let Some((dropped, event)) = ring.events.pop_front() else { break };
            ring.bytes -= event.body.size();
            self.bytes -= event.body.size();
            ring.dropped_through = dropped;
            ring.dropped += 1;
        }
        while self.bytes > MAX_BYTES && self.rings.len() > 1 {
            self.drop_stalest();
        }
    }

    /// Drops the events of the conversation whose last event is the oldest.
    fn drop_stalest(&mut self) {
        let last = |ring: &Ring| ring.events.back().map_or(0, |(sequence, _)| *sequence);
        let stalest = self.rings.iter().min_by_key(|(_, ring)| last(ring));
        let Some(conversation) = stalest.map(|(conversation, _)| conversation.clone()) else {
            return;
        };
        if let Some(ring) = self.rings.remove(&conversation) {
            self.bytes -= ring.bytes;
            self.dropped_through = self.dropped_through.max(last(&ring));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    fn delta(text: &str) -> EventBody {
        EventBody::TextDelta { text: text.to_owned() }
    }

    #[test]
    fn events_after_a_position_are_returned_once_and_in_order() {
        let hub = Hub::new();
        let (a, b) = (session("a"), session("b"));
        let start = hub.now();
        for text in ["1", "2", "3"] {
            hub.publish(&a, None, delta(text));
            hub.publish(&b, None, delta("other"));
        }
        let found = hub.after(&a, start, usize::MAX).unwrap().events;
        assert_eq!(found.len(), 3);
        let second = hub.parse(&found[1].1.id).unwrap();
        let rest = hub.after(&a, second, usize::MAX).unwrap().events;
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].1.body, delta("3"));
        assert!(hub.after(&a, hub.now(), usize::MAX).unwrap().events.is_empty());
        assert_eq!(hub.after(&a, start, 1).unwrap().events.len(), 1, "at least one event");
    }

    #[test]
    fn position_of_another_process_is_unknown() {
        let hub = Hub::new();
        hub.publish(&session("a"), None, delta("1"));
        let other = Hub::new();
        for id in [format!("{}-1", other.epoch()), format!("{}-2", hub.epoch()), "x".to_owned()] {
            assert_eq!(hub.parse(&id), Err(Missing::Epoch), "{id}");
        }
        assert_eq!(hub.parse(&format!("{}-1", hub.epoch())), Ok(Position(1)));
    }

    #[test]
    fn dropped_events_are_reported_as_a_gap() {
        let hub = Hub::new();
        let conversation = session("a");
        let start = hub.now();
        for _ in 0..MAX_EVENTS + 5 {
            hub.publish(&conversation, None, delta("x"));
        }
        assert_eq!(hub.after(&conversation, start, usize::MAX), Err(Missing::Gap { count: 5 }));
        assert_eq!(
            hub.after(&conversation, Position(5), usize::MAX).unwrap().events.len(),
            MAX_EVENTS
        );
    }

    #[test]
    fn conversations_are_dropped_stalest_first() {
        let hub = Hub::new();
        let names: Vec<_> = (0..=MAX_CONVERSATIONS).map(|n| session(&format!("c{n}"))).collect();
        for name in &names {
            hub.publish(name, None, delta("x"));
        }
        assert!(hub.after(&names[0], Position(0), usize::MAX).is_err());
        assert_eq!(hub.after(&names[1], Position(1), usize::MAX).unwrap().events.len(), 1);
        // A dropped conversation that continues has a gap before its next event.
        hub.publish(&names[0], None, delta("y"));
        assert!(hub.after(&names[0], Position(0), usize::MAX).is_err());
        let before = Position(hub.now().0 - 1);
        assert_eq!(hub.after(&names[0], before, usize::MAX).unwrap().events.len(), 1);
    }
}
