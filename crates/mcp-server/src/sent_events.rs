//! The events that were sent to clients over HTTP, so that a client can continue a stream whose connection it lost.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_util::stream;
use parking_lot::Mutex;
use rmcp::{
    model::JsonRpcMessage,
    transport::streamable_http_server::session::{
        EventStore, EventStoreError, EventStream, ServerSseMessage,
    },
};
use tokio::{sync::watch, time::Instant};

/// Events of a stream that are kept, at most. The oldest are dropped.
const MAX_EVENTS: usize = 256;
/// Streams that are kept, at most.
const MAX_STREAMS: usize = 4096;
/// Size of all events that are kept, at most, in bytes of JSON.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Time for which the events of a stream are kept after its end.
const KEPT_AFTER_END: Duration = Duration::from_secs(300);

/// End of the name that the sessions give their streams of notifications, which do not end.
const NOTIFICATIONS: &str = ":common";

/// The latest events of all clients. Those of the stream that began first are dropped first.
#[derive(Default)]
pub(crate) struct SentEvents(Mutex<Streams>);

#[derive(Default)]
struct Streams {
    /// The numbers of the streams, by owner and name.
    numbers: HashMap<(u64, String), u64>,
    streams: BTreeMap<u64, SentStream>,
    /// The streams that ended, with the times at which they are dropped.
    ended: VecDeque<(Instant, u64)>,
    bytes: usize,
    last_number: u64,
}

/// The events of one stream.
struct SentStream {
    owner: u64,
    name: String,
    /// Number of the first event that is kept.
    first: u64,
    /// The events with their sizes.
    events: VecDeque<(ServerSseMessage, usize)>,
    has_ended: bool,
    changed: watch::Sender<()>,
}

/// The events of one client. Ids of others are unknown to it.
#[derive(Clone)]
pub(crate) struct ClientEvents {
    sent: Arc<SentEvents>,
    owner: u64,
}

impl SentEvents {
    /// Returns the part for a client.
    pub(crate) fn of_client(self: &Arc<Self>) -> ClientEvents {
        let mut streams = self.0.lock();
        streams.last_number += 1;
        ClientEvents { sent: self.clone(), owner: streams.last_number }
    }
}

impl fmt::Debug for SentEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = self.0.lock();
        f.debug_struct("SentEvents")
            .field("streams", &streams.streams.len())
            .field("bytes", &streams.bytes)
            .finish_non_exhaustive()
    }
}

impl Streams {
    /// Keeps an event and returns its id.
    fn add(&mut self, owner: u64, name: &str, event: &ServerSseMessage) -> String {
        let now = Instant::now();
        while let Some((_, number)) = self.ended.pop_front_if(|(until, _)| *until <= now) {
            self.remove(number);
        }
        let number = self.number_of(owner, name);
        let bytes = size(event);
        let Some(stream) = self.streams.get_mut(&number) else { return String::new() };
        if stream.events.len() >= MAX_EVENTS
            && let Some((_, dropped)) = stream.events.pop_front()
        {
            stream.first += 1;
            self.bytes -= dropped;
        }
        let id = format!("{number}-{}", stream.first + stream.events.len() as u64);
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        if is_response(&event) && !stream.name.ends_with(NOTIFICATIONS) {
            stream.has_ended = true;
            self.ended.push_back((now + KEPT_AFTER_END, number));
        }
        stream.events.push_back((event, bytes));
        stream.changed.send_replace(());
        self.bytes += bytes;
        self.limit();
        id
    }

    /// Drops streams until the others are within the limits.
    fn limit(&mut self) {
        while self.bytes > MAX_BYTES || self.streams.len() > MAX_STREAMS {
            let Some((&oldest, _)) = self.streams.first_key_value() else { break };
            self.remove(oldest);
        }
    }

    fn number_of(&mut self, owner: u64, name: &str) -> u64 {
        let key = (owner, name.to_owned());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.last_number += 1;
        let (number, name) = (self.last_number, key.1.clone());
        let (events, changed) = (VecDeque::new(), watch::Sender::new(()));
        let stream = SentStream { owner, name, first: 0, events, has_ended: false, changed };
        self.streams.insert(number, stream);
        self.numbers.insert(key, number);
        number
    }

    /// Drops a stream. Its readers end.
    fn remove(&mut self, number: u64) {
        let Some(stream) = self.streams.remove(&number) else { return };
        self.bytes -= stream.events.iter().map(|(_, bytes)| bytes).sum::<usize>();
        self.numbers.remove(&(stream.owner, stream.name));
    }

    fn remove_all_of(&mut self, owner: u64) {
        let of_owner = self.streams.iter().filter(|(_, stream)| stream.owner == owner);
        let numbers: Vec<_> = of_owner.map(|(number, _)| *number).collect();
        for number in numbers {
            self.remove(number);
        }
    }
}

/// Returns whether the event is the response to a request, with which its stream ends.
fn is_response(event: &ServerSseMessage) -> bool {
    let message = event.message.as_deref();
    matches!(message, Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)))
}

fn size(event: &ServerSseMessage) -> usize {
    let message = event.message.as_deref();
    message.and_then(|message| serde_json::to_vec(message).ok()).map_or(64, |json| 64 + json.len())
}

/// Reads a stream from an event on.
struct Reader {
    sent: Arc<SentEvents>,
    number: u64,
    next: u64,
    changed: watch::Receiver<()>,
}

impl Reader {
    /// Waits for the next event. Returns `None` at the end of the stream, or if it was dropped.
    async fn next(mut self) -> Option<(ServerSseMessage, Self)> {
        loop {
            self.changed.mark_unchanged();
            if let Some(event) = self.kept()? {
                return Some((event, self));
            }
            self.changed.changed().await.ok()?;
        }
    }

    /// Returns the next event if there is one yet, and `None` if there will be none.
    fn kept(&mut self) -> Option<Option<ServerSseMessage>> {
        let streams = self.sent.0.lock();
        let stream = streams.streams.get(&self.number)?;
        self.next = self.next.max(stream.first);
        let at = usize::try_from(self.next - stream.first).ok()?;
        match stream.events.get(at) {
            Some((event, _)) => {
                self.next += 1;
                Some(Some(event.clone()))
            }
            None if stream.has_ended => None,
            None => Some(None),
        }
    }
}

impl ClientEvents {
    /// Returns the events of a stream after the one with this id, and those that follow until its end. `None` if this
    /// client has no such event.
    pub(crate) fn after(&self, id: &str) -> Option<EventStream> {
        let (number, event) = id.split_once('-')?;
        let (number, event): (u64, u64) = (number.parse().ok()?, event.parse().ok()?);
        let streams = self.sent.0.lock();
        let stream = streams.streams.get(&number).filter(|stream| stream.owner == self.owner)?;
        if event >= stream.first + stream.events.len() as u64 {
            return None;
        }
        Some(self.read(number, event + 1, stream))
    }

    /// Returns the notifications of a session that are kept, and those that follow.
    pub(crate) fn notifications(&self, session: &str) -> EventStream {
        let mut streams = self.sent.0.lock();
        let number = streams.number_of(self.owner, &format!("{session}{NOTIFICATIONS}"));
        streams.limit();
        match streams.streams.get(&number) {
            Some(stream) => self.read(number, 0, stream),
            None => Box::pin(stream::empty()),
        }
    }

    fn read(&self, number: u64, next: u64, stream: &SentStream) -> EventStream {
        let (sent, changed) = (self.sent.clone(), stream.changed.subscribe());
        Box::pin(stream::unfold(Reader { sent, number, next, changed }, Reader::next))
    }

    /// Drops all events of the client.
    pub(crate) fn clear(&self) {
        self.sent.0.lock().remove_all_of(self.owner);
    }
}

type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, EventStoreError>> + Send + 'a>>;

impl EventStore for ClientEvents {
    fn store_event<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        stream_id: &'life1 str,
        event: &'life2 ServerSseMessage,
    ) -> StoreFuture<'async_trait, String>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        let id = self.sent.0.lock().add(self.owner, stream_id, event);
        Box::pin(std::future::ready(Ok(id)))
    }

    fn replay_events_after<'life0, 'life1, 'async_trait>(
        &'life0 self,
        last_event_id: &'life1 str,
    ) -> StoreFuture<'async_trait, EventStream>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        let events = self.after(last_event_id);
        let unknown = "the event is unknown or was dropped; send the request again";
        Box::pin(std::future::ready(events.ok_or_else(|| unknown.into())))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;

    fn add(client: &ClientEvents, name: &str) -> String {
        let event = ServerSseMessage::retry(Duration::from_secs(1));
        client.sent.0.lock().add(client.owner, name, &event)
    }

    /// Returns the ids that a reader gets without waiting.
    fn ids(mut events: EventStream) -> Vec<String> {
        let next = || events.next().now_or_never().flatten()?.event_id;
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn events_after_one_are_returned_once_and_in_order() {
        let client = Arc::<SentEvents>::default().of_client();
        let added: Vec<_> = (0..4).map(|_| add(&client, "one")).collect();
        add(&client, "two");
        assert_eq!(ids(client.after(&added[1]).unwrap()), added[2..]);
        assert!(ids(client.after(&added[3]).unwrap()).is_empty());
        for unknown in ["", "0", "1-", "x-1", "1-18446744073709551615"] {
            assert!(client.after(unknown).is_none(), "{unknown}");
        }
        assert!(client.sent.of_client().after(&added[1]).is_none());
    }

    #[test]
    fn kept_events_are_bounded() {
        let client = Arc::<SentEvents>::default().of_client();
        let added: Vec<_> = (0..MAX_EVENTS + 3).map(|_| add(&client, "one")).collect();
        assert_eq!(ids(client.after(&added[0]).unwrap()), added[3..]);
        for number in 0..MAX_STREAMS {
            add(&client, &number.to_string());
        }
        assert!(client.after(&added[3]).is_none());
        assert_eq!(client.sent.0.lock().streams.len(), MAX_STREAMS);
        client.clear();
        let streams = client.sent.0.lock();
        assert_eq!((streams.bytes, streams.streams.len(), streams.numbers.len()), (0, 0, 0));
    }
}
