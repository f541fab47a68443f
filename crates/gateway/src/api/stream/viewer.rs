//! A viewer: its positions in what it watches, and the events since then.

use std::{collections::VecDeque, future::pending, sync::Arc, time::Duration};

use axum::response::sse::Event;
use serde::Serialize;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::debug;

use super::topics::{ConversationTopic, Topics};
use crate::{
    api::{
        Api,
        calls::Viewing,
        conversations::{ConversationEvent, EventBody, Events, Missing, Position},
        fleet::FleetView,
        letters::LetterQueues,
    },
    clock::now_ms,
    open_counts::OpenPermit,
};

/// Time in which events are merged to one frame.
const MERGE_TIME: Duration = Duration::from_millis(100);
/// Largest size of the events of a conversation in a frame, in bytes.
const FRAME_BYTES: usize = 256 * 1024;
/// Largest size of joined text in an event, in bytes.
const MAX_JOINED_BYTES: usize = 16 * 1024;
/// Interval between two inspections of the fleet.
const FLEET_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two counts of dead letters.
const LETTERS_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a stream ends; its client reconnects, if it still may.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The viewer of a stream.
pub(super) struct Viewer {
    api: Arc<Api>,
    topics: Topics,
    /// The position in the events of all conversations.
    position: Position,
    events: watch::Receiver<u64>,
    calls: Option<CallsTopic>,
    fleet: Option<Polled<FleetView>>,
    letters: Option<Polled<LetterQueues>>,
    /// Events that are ready to be sent.
    ready: VecDeque<Event>,
    last_frame: Option<Instant>,
    until: Instant,
    _permit: OpenPermit,
}

struct CallsTopic {
    viewing: Viewing,
    changes: watch::Receiver<u64>,
    /// The last change that was sent.
    after: Option<u64>,
}

/// A topic that is read from time to time.
struct Polled<T> {
    due: Instant,
    last: Option<Arc<T>>,
}

impl<T> Default for Polled<T> {
    fn default() -> Self {
        Self { due: Instant::now(), last: None }
    }
}

/// Reason for which a viewer wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Changed,
    Fleet,
    Letters,
    End,
}

impl Viewer {
    /// Creates a viewer that has seen all events up to the one with the id `after`; without an id, all so far.
    pub(super) fn new(
        api: Arc<Api>,
        topics: Topics,
        after: Option<&str>,
        permit: OpenPermit,
    ) -> Self {
        let events = api.hub.subscribe();
        let now = api.hub.now();
        let calls = topics.calls.as_ref().and(api.calls.as_ref()).map(|board| {
            let viewing = board.view();
            let changes = viewing.changes();
            CallsTopic { viewing, changes, after: None }
        });
        let mut viewer = Self {
            fleet: topics.fleet.then(Polled::default),
            letters: topics.letters.then(Polled::default),
            position: now,
            events,
            calls,
            ready: VecDeque::new(),
            last_frame: None,
            until: Instant::now() + LIFETIME,
            _permit: permit,
            topics,
            api,
        };
        let hello = json!({"epoch": viewer.api.hub.epoch(), "serverTimeMs": now_ms()});
        viewer.ready.push_back(Event::default().comment("stream"));
        viewer.push("hello", &hello);
        match after.map(|id| viewer.api.hub.parse(id)) {
            Some(Ok(position)) => viewer.position = position,
            Some(Err(missing)) => {
                for topic in 0..viewer.topics.conversations.len() {
                    viewer.push_reset(topic, missing);
                }
            }
            None => {}
        }
        viewer.push_changes();
        viewer
    }

    /// Returns the next event; `None` once the stream has ended.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match self.wake().await {
                Wake::End => return None,
                Wake::Changed => {
                    if let Some(last) = self.last_frame {
                        sleep_until(last + MERGE_TIME).await;
                    } else {
                        sleep(MERGE_TIME).await;
                    }
                    self.last_frame = Some(Instant::now());
                    self.push_changes();
                }
                Wake::Fleet => self.push_fleet().await,
                Wake::Letters => self.push_letters().await,
            }
        }
    }

    async fn wake(&mut self) -> Wake {
        let has_conversations = !self.topics.conversations.is_empty();
        let call_changes = self.calls.as_mut().map(|calls| &mut calls.changes);
        tokio::select! {
            changed = self.events.changed(), if has_conversations => {
                if changed.is_ok() { Wake::Changed } else { Wake::End }
            }
            changed = changed(call_changes) => if changed { Wake::Changed } else { Wake::End },
            () = due(self.fleet.as_ref().map(|polled| polled.due)) => Wake::Fleet,
            () = due(self.letters.as_ref().map(|polled| polled.due)) => Wake::Letters,
            () = sleep_until(self.until) => Wake::End,
            () = self.api.closing.cancelled() => Wake::End,
        }
    }

    fn push_changes(&mut self) {
        self.events.mark_unchanged();
        self.push_conversations();
        self.push_calls();
    }

    /// Removes the conversations whose share has ended.
    fn end_shares(&mut self) {
        let hub = self.api.hub.clone();
        let is_ended = |topic: &mut ConversationTopic| {
            topic.share.as_ref().is_some_and(|share| hub.is_ended_share(share))
        };
        let ended: Vec<_> = self.topics.conversations.extract_if(.., is_ended).collect();
        for topic in ended {
            self.push("reset", &json!({"topic": topic.name, "reason": "ended"}));
        }
    }

    /// Adds the events of all conversations since the last frame, in their order.
    fn push_conversations(&mut self) {
        self.end_shares();
        // Events up to here are read from each conversation, so that no later one precedes them.
        let mut through = self.api.hub.now();
        let mut found = Vec::new();
        for topic in 0..self.topics.conversations.len() {
            let conversation = &self.topics.conversations[topic].conversation;
            match self.api.hub.after(&conversation.session, self.position, FRAME_BYTES) {
                Ok(Events { events, is_cut }) => {
                    // The rest follows in the next frame.
                    if let (true, Some((last, _))) = (is_cut, events.last()) {
                        through = through.min(*last);
                    }
                    found.extend(events.into_iter().map(|(at, event)| (at, topic, event)));
                }
                Err(missing) => self.push_reset(topic, missing),
            }
        }
        found.retain(|(at, ..)| *at <= through);
        found.sort_unstable_by_key(|(at, ..)| *at);
        let mut events: Vec<(usize, ConversationEvent)> = Vec::new();
        for (_, topic, event) in found {
            let joined = events
                .last_mut()
                .is_some_and(|(last, earlier)| *last == topic && join(earlier, &event));
            if !joined {
                events.push((topic, (*event).clone()));
            }
        }
        for (topic, event) in events {
            self.push_event(topic, event);
        }
        self.position = through;
        if through < self.api.hub.now() {
            self.events.mark_changed();
        }
    }

    fn push_event(&mut self, topic: usize, mut event: ConversationEvent) {
        if self.topics.conversations[topic].share.is_some() {
            event.body = event.body.read_only();
        }
        let id = event.id.clone();
        let sse = Event::default().event("conversation").id(id).json_data(&event);
        self.push_or_log(sse);
    }

    /// Reports that events of a conversation are missing.
    fn push_reset(&mut self, topic: usize, missing: Missing) {
        let ConversationTopic { name, .. } = &self.topics.conversations[topic];
        let (lost, reset) = (
            match missing {
                Missing::Gap { count } => Some(json!({"topic": name, "count": count})),
                Missing::Epoch => None,
            },
            json!({"topic": name, "reason": missing.as_str()}),
        );
        if let Some(lost) = lost {
            self.push("lost", &lost);
        }
        self.push("reset", &reset);
    }

    fn push_calls(&mut self) {
        let (Some(calls), Some(filter)) = (&mut self.calls, &self.topics.calls) else { return };
        if !calls.viewing.is_open() {
            return;
        }
        calls.changes.mark_unchanged();
        let frame = calls.viewing.frame(filter, calls.after);
        let is_new = calls.after.is_none_or(|after| frame.through > after);
        calls.after = Some(frame.through);
        if frame.lost > 0 {
            self.push("lost", &json!({"topic": "calls", "count": frame.lost}));
        }
        if is_new {
            self.push("calls", &frame);
        }
    }

    async fn push_fleet(&mut self) {
        let read = self.api.fleet.current().await;
        let Some(polled) = &mut self.fleet else { return };
        polled.due = Instant::now() + FLEET_INTERVAL;
        match read {
            Ok(view) => {
                let is_new = polled.last.as_ref().is_none_or(|last| !is_same(last, &view));
                if is_new {
                    polled.last = Some(view.clone());
                    self.push("fleet", &*view);
                }
            }
            Err(problem) => debug!(?problem, "fleet not inspected"),
        }
    }

    async fn push_letters(&mut self) {
        let catalog = self.api.catalog().await;
        let read = match &self.api.letters {
            Some(letters) => letters.queues(&catalog).await,
            None => return,
        };
        let Some(polled) = &mut self.letters else { return };
        polled.due = Instant::now() + LETTERS_INTERVAL;
        match read {
            Ok(queues) => {
                if polled.last.as_ref() != Some(&queues) {
                    polled.last = Some(queues.clone());
                    self.push("letters", &*queues);
                }
            }
            Err(problem) => debug!(?problem, "dead letters not counted"),
        }
    }

    fn push(&mut self, name: &str, data: &impl Serialize) {
        self.push_or_log(Event::default().event(name).json_data(data));
    }

    fn push_or_log(&mut self, event: Result<Event, axum::Error>) {
        match event {
            Ok(event) => self.ready.push_back(event),
            Err(error) => debug!(%error, "event not encoded"),
        }
    }
}

/// Joins a piece of text to the one before it. The joined event has the later id.
fn join(earlier: &mut ConversationEvent, later: &ConversationEvent) -> bool {
    let (EventBody::TextDelta { text }, EventBody::TextDelta { text: more }) =
        (&mut earlier.body, &later.body)
    else {
        return false;
    };
    if earlier.message_id != later.message_id || text.len() + more.len() > MAX_JOINED_BYTES {
        return false;
    }
    text.push_str(more);
    earlier.id.clone_from(&later.id);
    true
}

/// Returns whether two states of the fleet differ in nothing but their time.
fn is_same(last: &FleetView, view: &FleetView) -> bool {
    let FleetView { at_ms: _, bus, queues, handlers, pools, agents, findings } = last;
    (bus, queues, handlers, pools, agents, findings)
        == (&view.bus, &view.queues, &view.handlers, &view.pools, &view.agents, &view.findings)
}

/// Waits for a change; forever without a receiver. Returns `false` if there will be none.
async fn changed(receiver: Option<&mut watch::Receiver<u64>>) -> bool {
    match receiver {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => pending().await,
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use rockbot_bus::{Bus, MemoryBus};
    use rockbot_contracts::{AgentName, InstanceId, SessionId};
    use rockbot_store::{Clock, MemoryStore};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        api::conversations::{Conversation, Owner},
        parts::GatewayParts,
    };

    async fn api() -> Arc<Api> {
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let store = Arc::new(MemoryStore::new(Clock::System));
        let instance = InstanceId::generate();
        let connected = GatewayParts::connect(bus.clone(), Vec::new(), store, instance).await;
        let parts = GatewayParts { watch: Some(bus), ..connected.unwrap() };
        Arc::new(Api::new(&parts, &CancellationToken::new()))
    }

    fn viewer_of(api: &Arc<Api>, session: &SessionId) -> Viewer {
        let conversation = Conversation {
            owner: Owner::new("ada"),
            agent: AgentName::new("assistant").unwrap(),
            session: session.clone(),
        };
        let name = format!("conversation:{session}");
        let topic = ConversationTopic { name, conversation, share: None };
        let topics = Topics { conversations: vec![topic], ..Topics::default() };
        let permit = api.streams.admit(&"ada".into()).unwrap();
        Viewer::new(api.clone(), topics, None, permit)
    }

    /// Returns the names and data of the next events.
    async fn next(viewer: &mut Viewer, number: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..number {
            events.push(format!("{:?}", viewer.next().await.unwrap()));
        }
        events
    }

    #[tokio::test(start_paused = true)]
    async fn slow_viewer_is_told_what_it_lost() {
        let api = api().await;
        let session = SessionId::new("c").unwrap();
        let mut slow = viewer_of(&api, &session);
        let mut quick = viewer_of(&api, &session);
        for viewer in [&mut slow, &mut quick] {
            next(viewer, 2).await;
        }
        let publish = |text: &str| {
            api.hub.publish(&session, None, EventBody::Renamed { title: text.to_owned() });
        };
        publish("first");
        assert!(next(&mut quick, 1).await[0].contains("first"));
        // Meanwhile, more events than are kept. The slow viewer's connection takes nothing.
        for _ in 0..5000 {
            publish("more");
        }
        publish("last");
        let missed = next(&mut slow, 2).await;
        assert!(missed[0].contains("lost") && missed[0].contains("906"), "{missed:?}");
        assert!(missed[1].contains("reset") && missed[1].contains("gap"), "{missed:?}");
        // Then it is as quick as the others.
        publish("after");
        assert!(next(&mut slow, 1).await[0].contains("after"));
    }

    #[tokio::test(start_paused = true)]
    async fn watch_of_calls_ends_a_minute_after_the_last_viewer() {
        let api = api().await;
        let board = api.calls.clone().unwrap();
        assert!(!board.is_watching());
        let (first, second) = (board.view(), board.view());
        drop(first);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(board.is_watching(), "one viewer is left");
        drop(second);
        tokio::time::sleep(Duration::from_secs(50)).await;
        let third = board.view();
        tokio::time::sleep(Duration::from_secs(50)).await;
        drop(third);
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(board.is_watching());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!board.is_watching());
        let _again = board.view();
        assert!(board.is_watching());
    }

    fn delta(id: &str, message: &str, text: &str) -> ConversationEvent {
        ConversationEvent {
            id: id.to_owned(),
            conversation: "c".to_owned(),
            message_id: Some(message.to_owned()),
            at_ms: 0,
            body: EventBody::TextDelta { text: text.to_owned() },
        }
    }

    #[test]
    fn text_of_one_message_is_joined_under_the_later_id() {
        let mut first = delta("e-1", "m", "a");
        assert!(join(&mut first, &delta("e-2", "m", "b")));
        assert_eq!(first, delta("e-2", "m", "ab"));
        assert!(!join(&mut first, &delta("e-3", "other", "c")));
        assert!(!join(&mut first, &delta("e-3", "m", &"x".repeat(MAX_JOINED_BYTES))));
        let steered = ConversationEvent { body: EventBody::Steered {}, ..delta("e-3", "m", "") };
        assert!(!join(&mut first, &steered));
    }
}
