//! The events that were sent to clients over HTTP, so that a client can continue a stream whose connection it lost.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use rmcp::{
    model::JsonRpcMessage,
    transport::streamable_http_server::session::{
        EventStore, EventStoreError, EventStream, ServerSseMessage, SessionId,
    },
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// Events of a stream that are kept, at most. The oldest are dropped.
const MAX_EVENTS: usize = 256;
/// Streams of all clients that are kept, at most, and their size.
const MAX_OF_ALL: Size = Size { streams: 4096, bytes: 16 * 1024 * 1024 };
/// Streams of one client that are kept, at most, and their size.
const MAX_OF_CLIENT: Size = Size { streams: 512, bytes: 4 * 1024 * 1024 };
/// Time for which the events of a stream are kept after its end.
const KEPT_AFTER_END: Duration = Duration::from_secs(300);

/// End of the name that the sessions give their streams of notifications, which do not end.
const NOTIFICATIONS: &str = ":common";

/// The latest events of all clients.
///
/// Beyond the limits, the streams that ended first are dropped first, then the streams of running requests in the
/// order of their beginnings, then those of notifications. A client that exceeds its share loses its own streams.
pub(crate) struct SentEvents(Mutex<Streams>);

struct Streams {
    /// The numbers of the streams, by owner and name.
    numbers: HashMap<(u64, String), u64>,
    streams: HashMap<u64, SentStream>,
    /// The numbers of the streams, in the order in which they are dropped.
    order: BTreeMap<Rank, u64>,
    owners: HashMap<u64, Owner>,
    size: Size,
    last_number: u64,
    /// Time after which the stream of a request without a response is dropped.
    longest_request: Duration,
}

/// A client.
#[derive(Default)]
struct Owner {
    sessions: HashSet<SessionId>,
    size: Size,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Size {
    streams: usize,
    /// Size of the events, in bytes of JSON.
    bytes: usize,
}

/// Place of a stream in the order in which streams are dropped: its stage, and the number of its beginning or end.
type Rank = (Stage, u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Ended,
    Running,
    Notifications,
}

/// The events of one stream.
struct SentStream {
    owner: u64,
    name: String,
    /// The session, once it is known.
    session: Option<SessionId>,
    rank: Rank,
    /// Time at which the stream is dropped.
    until: Option<Instant>,
    /// Number of the first event that is kept. The first event of a stream has number 1.
    first: u64,
    /// The events with their sizes.
    events: VecDeque<(ServerSseMessage, usize)>,
    changed: watch::Sender<()>,
}

/// The events of one client. Ids of others are unknown to it.
#[derive(Clone)]
pub(crate) struct ClientEvents {
    sent: Arc<SentEvents>,
    owner: u64,
}

impl SentEvents {
    /// Creates it without events. `longest_call` is the time after which a request has its response.
    pub(crate) fn new(longest_call: Duration) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Streams {
            numbers: HashMap::new(),
            streams: HashMap::new(),
            order: BTreeMap::new(),
            owners: HashMap::new(),
            size: Size::default(),
            last_number: 0,
            longest_request: longest_call.saturating_add(KEPT_AFTER_END),
        })))
    }

    /// Returns the part for a client.
    pub(crate) fn of_client(self: &Arc<Self>) -> ClientEvents {
        let mut streams = self.0.lock();
        let owner = streams.next_number();
        streams.owners.insert(owner, Owner::default());
        ClientEvents { sent: self.clone(), owner }
    }
}

impl fmt::Debug for SentEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { streams, bytes } = self.0.lock().size;
        f.debug_struct("SentEvents")
            .field("streams", &streams)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

impl Size {
    fn exceeds(self, limit: Self) -> bool {
        self.streams > limit.streams || self.bytes > limit.bytes
    }
}

impl SentStream {
    /// Returns the number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn has_ended(&self) -> bool {
        self.rank.0 == Stage::Ended
    }
}

impl Streams {
    /// Keeps an event and returns its id. The id is empty after the end of the session or client.
    fn add(&mut self, owner: u64, name: &str, event: &ServerSseMessage) -> String {
        self.drop_expired();
        let Some(number) = self.number_of(owner, name) else { return String::new() };
        let Some(stream) = self.streams.get_mut(&number) else { return String::new() };
        let (bytes, mut freed) = (size(event), 0);
        if stream.events.len() >= MAX_EVENTS
            && let Some((_, dropped)) = stream.events.pop_front()
        {
            stream.first += 1;
            freed = dropped;
        }
        let id = format!("{number}-{}", stream.end());
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        let ends = is_response(&event) && stream.rank.0 == Stage::Running;
        stream.events.push_back((event, bytes));
        stream.changed.send_replace(());
        self.resize(owner, |size| size.bytes = size.bytes + bytes - freed);
        if ends {
            self.end(number);
        }
        self.limit(owner);
        id
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Changes the size of all streams, and of those of a client.
    fn resize(&mut self, owner: u64, change: impl Fn(&mut Size)) {
        change(&mut self.size);
        if let Some(owner) = self.owners.get_mut(&owner) {
            change(&mut owner.size);
        }
    }

    /// Drops streams of the client, then of all, until the others are within the limits.
    fn limit(&mut self, owner: u64) {
        let exceeds = |client: &Owner| client.size.exceeds(MAX_OF_CLIENT);
        while self.owners.get(&owner).is_some_and(exceeds) {
            let is_own = |number: &u64| self.streams.get(number).is_some_and(|s| s.owner == owner);
            let Some(number) = self.order.values().copied().find(is_own) else { break };
            self.remove(number);
        }
        while self.size.exceeds(MAX_OF_ALL) {
            let Some((_, number)) = self.order.pop_first() else { break };
            self.remove(number);
        }
    }

    fn drop_expired(&mut self) {
        let now = Instant::now();
        while let Some(number) = self.expired(now) {
            self.remove(number);
        }
    }

    /// Returns a stream whose time is over.
    fn expired(&self, now: Instant) -> Option<u64> {
        [Stage::Ended, Stage::Running].into_iter().find_map(|stage| {
            let (_, number) = self.order.range((stage, 0)..=(stage, u64::MAX)).next()?;
            let until = self.streams.get(number)?.until?;
            (until <= now).then_some(*number)
        })
    }

    /// Returns the number of a stream, which begins if it is new. `None` after the end of the session or client.
    fn number_of(&mut self, owner: u64, name: &str) -> Option<u64> {
        let key = (owner, name.to_owned());
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let sessions = &self.owners.get(&owner)?.sessions;
        let (session, stage, until) = match name.strip_suffix(NOTIFICATIONS) {
            Some(session) => (Some(sessions.get(session)?.clone()), Stage::Notifications, None),
            None => (None, Stage::Running, Instant::now().checked_add(self.longest_request)),
        };
        let number = self.next_number();
        let stream = SentStream {
            owner,
            name: name.to_owned(),
            session,
            rank: (stage, number),
            until,
            first: 1,
            events: VecDeque::new(),
            changed: watch::Sender::new(()),
        };
        self.order.insert(stream.rank, number);
        self.streams.insert(number, stream);
        self.numbers.insert(key, number);
        self.resize(owner, |size| size.streams += 1);
        Some(number)
    }

    /// Returns the stream of notifications of a session, with its number.
    fn notifications(&mut self, owner: u64, session: &str) -> Option<(u64, &SentStream)> {
        self.drop_expired();
        let number = self.number_of(owner, &format!("{session}{NOTIFICATIONS}"))?;
        self.limit(owner);
        self.streams.get(&number).map(|stream| (number, stream))
    }

    /// Ends the stream of a request.
    fn end(&mut self, number: u64) {
        let rank = (Stage::Ended, self.next_number());
        let Some(stream) = self.streams.get_mut(&number) else { return };
        self.order.remove(&stream.rank);
        stream.rank = rank;
        stream.until = Some(Instant::now() + KEPT_AFTER_END);
        self.order.insert(rank, number);
    }

    /// Drops a stream. Its readers end.
    fn remove(&mut self, number: u64) {
        let Some(stream) = self.streams.remove(&number) else { return };
        let bytes = stream.events.iter().map(|(_, bytes)| bytes).sum::<usize>();
        self.order.remove(&stream.rank);
        self.numbers.remove(&(stream.owner, stream.name));
        self.resize(stream.owner, |size| {
            size.streams -= 1;
            size.bytes -= bytes;
        });
    }

    fn remove_all(&mut self, is_over: impl Fn(&SentStream) -> bool) {
        let over = self.streams.iter().filter(|(_, stream)| is_over(stream));
        let numbers: Vec<_> = over.map(|(number, _)| *number).collect();
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

/// Returns the numbers of the stream and of the event.
fn parse(id: &str) -> Option<(u64, u64)> {
    let (number, event) = id.split_once('-')?;
    Some((number.parse().ok()?, event.parse().ok()?))
}

/// Reads a stream from an event on.
struct Reader {
    sent: Arc<SentEvents>,
    number: u64,
    next: u64,
    /// Time at which the stream of a running request is dropped.
    until: Option<Instant>,
    changed: watch::Receiver<()>,
}

impl Reader {
    /// Waits for the next event. Returns `None` at the end of the stream, or if it or the event was dropped.
    async fn next(mut self) -> Option<(ServerSseMessage, Self)> {
        loop {
            self.changed.mark_unchanged();
            if let Some(event) = self.kept()? {
                return Some((event, self));
            }
            match self.until {
                Some(until) => timeout_at(until, self.changed.changed()).await.ok()?.ok()?,
                None => self.changed.changed().await.ok()?,
            }
        }
    }

    /// Returns the next event if there is one yet, and `None` if there will be none.
    fn kept(&mut self) -> Option<Option<ServerSseMessage>> {
        let streams = self.sent.0.lock();
        let stream = streams.streams.get(&self.number)?;
        let at = usize::try_from(self.next.checked_sub(stream.first)?).ok()?;
        match stream.events.get(at) {
            Some((event, _)) => {
                self.next += 1;
                Some(Some(event.clone()))
            }
            None if stream.has_ended() => None,
            None => Some(None),
        }
    }
}

impl ClientEvents {
    /// Keeps the events of a session until it is closed.
    pub(crate) fn open_session(&self, session: SessionId) {
        if let Some(owner) = self.sent.0.lock().owners.get_mut(&self.owner) {
            owner.sessions.insert(session);
        }
    }

    /// Drops the events of a session. Its readers end.
    pub(crate) fn close_session(&self, session: &SessionId) {
        let mut streams = self.sent.0.lock();
        if let Some(owner) = streams.owners.get_mut(&self.owner) {
            owner.sessions.remove(session);
        }
        let owner = self.owner;
        streams.remove_all(|s| s.owner == owner && s.session.as_ref() == Some(session));
    }

    /// Returns the stream of a request. Only its session can continue it.
    pub(crate) fn in_session<S: Stream<Item = ServerSseMessage>>(
        &self,
        session: &SessionId,
        stream: S,
    ) -> impl Stream<Item = ServerSseMessage> + use<S> {
        let (events, session, mut known) = (self.clone(), session.clone(), None);
        stream.inspect(move |event| {
            // A stream that was dropped begins again with another number.
            if let Some((number, _)) = event.event_id.as_deref().and_then(parse)
                && known.replace(number) != Some(number)
            {
                events.set_session(number, &session);
            }
        })
    }

    fn set_session(&self, number: u64, session: &SessionId) {
        let mut streams = self.sent.0.lock();
        let is_open = |client: &Owner| client.sessions.contains(session);
        if !streams.owners.get(&self.owner).is_some_and(is_open) {
            streams.remove(number);
        } else if let Some(stream) = streams.streams.get_mut(&number) {
            stream.session = Some(session.clone());
        }
    }

    /// Returns the events of a stream after the one with this id, and those that follow until its end. `None` if the
    /// session has no such event, or if events after it were dropped.
    pub(crate) fn after(&self, session: &SessionId, id: &str) -> Option<EventStream> {
        let (number, event) = parse(id)?;
        let streams = self.sent.0.lock();
        let stream = streams.streams.get(&number)?;
        let is_own = stream.owner == self.owner && stream.session.as_ref() == Some(session);
        let is_kept = event < stream.end() && event + 1 >= stream.first;
        (is_own && is_kept).then(|| self.read(number, event + 1, stream))
    }

    /// Returns the notifications of a session that are kept, and those that follow.
    pub(crate) fn notifications(&self, session: &SessionId) -> EventStream {
        match self.sent.0.lock().notifications(self.owner, session) {
            Some((number, stream)) => self.read(number, stream.first, stream),
            None => Box::pin(stream::empty()),
        }
    }

    /// Returns the id of the latest notification of a session; without any, that of the beginning.
    pub(crate) fn latest_notification(&self, session: &SessionId) -> Option<String> {
        let mut streams = self.sent.0.lock();
        let (number, stream) = streams.notifications(self.owner, session)?;
        Some(format!("{number}-{}", stream.end() - 1))
    }

    fn read(&self, number: u64, next: u64, stream: &SentStream) -> EventStream {
        let (sent, changed) = (self.sent.clone(), stream.changed.subscribe());
        let until = stream.until;
        Box::pin(stream::unfold(Reader { sent, number, next, until, changed }, Reader::next))
    }

    /// Drops all events of the client, and keeps none from then on.
    pub(crate) fn clear(&self) {
        let (mut streams, owner) = (self.sent.0.lock(), self.owner);
        streams.remove_all(|stream| stream.owner == owner);
        streams.owners.remove(&owner);
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
        // The sessions read streams with `after`, which compares the session.
        let problem = format!("event {last_event_id} cannot be read without its session");
        Box::pin(std::future::ready(Err(EventStoreError::from(problem))))
    }
}

#[cfg(test)]
mod tests;
