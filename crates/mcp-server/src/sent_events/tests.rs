use futures_util::FutureExt;
use serde_json::json;

use super::*;

const LONGEST_CALL: Duration = Duration::from_secs(3600);

fn session(name: &str) -> SessionId {
    name.into()
}

/// Returns a client with the session `s`.
fn client(sent: &Arc<SentEvents>) -> ClientEvents {
    let client = sent.of_client();
    client.open_session(session("s"));
    client
}

fn one_client() -> ClientEvents {
    client(&SentEvents::new(LONGEST_CALL))
}

fn keep(client: &ClientEvents, name: &str, event: &ServerSseMessage) -> String {
    let id = client.sent.0.lock().add(client.owner, name, event);
    if let Some((number, _)) = parse(&id) {
        client.set_session(number, &session("s"));
    }
    id
}

/// Adds an event to a stream of the session `s`.
fn add(client: &ClientEvents, name: &str) -> String {
    keep(client, name, &ServerSseMessage::retry(Duration::from_secs(1)))
}

fn response(bytes: usize) -> ServerSseMessage {
    let error = json!({"code": -32000, "message": "x".repeat(bytes)});
    let response = json!({"jsonrpc": "2.0", "id": 1, "error": error});
    ServerSseMessage::from_message(serde_json::from_value(response).unwrap())
}

fn after(client: &ClientEvents, id: &str) -> Option<EventStream> {
    client.after(&session("s"), id)
}

/// Returns the ids that a reader gets without waiting.
fn ids(mut events: EventStream) -> Vec<String> {
    let next = || events.next().now_or_never().flatten()?.event_id;
    std::iter::from_fn(next).collect()
}

fn is_over(events: &mut EventStream) -> bool {
    matches!(events.next().now_or_never(), Some(None))
}

#[tokio::test]
async fn events_after_one_are_returned_once_and_in_order() {
    let client = one_client();
    let added: Vec<_> = (0..4).map(|_| add(&client, "one")).collect();
    add(&client, "two");
    assert_eq!(ids(after(&client, &added[1]).unwrap()), added[2..]);
    assert!(ids(after(&client, &added[3]).unwrap()).is_empty());
    for unknown in ["", "0", "2-", "x-1", "2-18446744073709551615"] {
        assert!(after(&client, unknown).is_none(), "{unknown}");
    }
}

#[test]
fn events_of_other_sessions_are_unknown() {
    let sent = SentEvents::new(LONGEST_CALL);
    let (owner, other) = (client(&sent), client(&sent));
    let id = add(&owner, "one");
    assert!(after(&owner, &id).is_some());
    assert!(after(&other, &id).is_none());
    owner.open_session(session("t"));
    assert!(owner.after(&session("t"), &id).is_none());
}

#[tokio::test]
async fn event_before_a_gap_is_unknown() {
    let client = one_client();
    let first = add(&client, "one");
    let mut slow = after(&client, &first).unwrap();
    let added: Vec<_> = (0..MAX_EVENTS + 2).map(|_| add(&client, "one")).collect();
    assert!(after(&client, &first).is_none());
    assert!(after(&client, &added[0]).is_none());
    assert_eq!(ids(after(&client, &added[1]).unwrap()), added[2..]);
    assert!(is_over(&mut slow));
}

#[test]
fn ended_streams_are_dropped_before_running_ones() {
    let sent = SentEvents::new(LONGEST_CALL);
    let first = client(&sent);
    let (common, running) = (add(&first, "s:common"), add(&first, "running"));
    let mut ended = Vec::new();
    for client in std::iter::once(first.clone()).chain((0..8).map(|_| client(&sent))) {
        let ids = (0..MAX_OF_CLIENT.streams).map(|n| keep(&client, &n.to_string(), &response(1)));
        ended.push((client.clone(), ids.collect::<Vec<_>>()));
    }
    assert_eq!(sent.0.lock().size.streams, MAX_OF_ALL.streams);
    assert!(after(&first, &common).is_some());
    assert!(after(&first, &running).is_some());
    assert!(after(&first, &ended[0].1[0]).is_none());
    let (last, ids) = &ended[8];
    assert!(after(last, &ids[0]).is_some());
}

#[test]
fn client_beyond_its_share_loses_its_own_streams() {
    let sent = SentEvents::new(LONGEST_CALL);
    let (modest, greedy) = (client(&sent), client(&sent));
    let kept = keep(&modest, "one", &response(1));
    let ids: Vec<_> = (0..20).map(|n| keep(&greedy, &n.to_string(), &response(1 << 20))).collect();
    assert!(after(&greedy, &ids[16]).is_none());
    assert!(after(&greedy, &ids[17]).is_some());
    for number in 0..2 * MAX_OF_ALL.streams {
        add(&greedy, &format!("running {number}"));
    }
    assert!(after(&modest, &kept).is_some());
    assert_eq!(sent.0.lock().size.streams, MAX_OF_CLIENT.streams + 1);
    greedy.clear();
    modest.clear();
    let streams = sent.0.lock();
    assert_eq!(streams.size, Size::default());
    assert!(streams.streams.is_empty() && streams.numbers.is_empty());
    assert!(streams.order.is_empty() && streams.owners.is_empty());
}

#[tokio::test]
async fn closed_session_ends_its_readers() {
    let client = one_client();
    let mut notifications = client.notifications(&session("s"));
    let mut request = after(&client, &add(&client, "one")).unwrap();
    assert!(!is_over(&mut notifications) && !is_over(&mut request));
    client.close_session(&session("s"));
    assert!(is_over(&mut notifications) && is_over(&mut request));
    assert!(is_over(&mut client.notifications(&session("s"))));
    // Late events keep nothing that a session can read.
    assert_eq!(add(&client, "s:common"), "");
    add(&client, "one");
    assert_eq!(client.sent.0.lock().size, Size::default());
    client.clear();
    assert_eq!(add(&client, "one"), "");
    assert_eq!(client.sent.0.lock().size, Size::default());
}

#[tokio::test(start_paused = true)]
async fn request_without_response_ends_after_its_time() {
    let client = one_client();
    let begun = Instant::now();
    let mut request = after(&client, &add(&client, "one")).unwrap();
    assert!(request.next().await.is_none());
    assert!(begun.elapsed() >= LONGEST_CALL + KEPT_AFTER_END);
    tokio::time::advance(Duration::from_secs(1)).await;
    add(&client, "two");
    assert_eq!(client.sent.0.lock().size.streams, 1);
}

#[test]
fn latest_notification_continues_without_earlier_ones() {
    let client = one_client();
    let latest = || client.latest_notification(&session("s")).unwrap();
    let beginning = latest();
    let added: Vec<_> = (0..3).map(|_| add(&client, "s:common")).collect();
    assert_eq!(ids(after(&client, &beginning).unwrap()), added);
    assert_eq!(latest(), added[2]);
    assert_eq!(ids(client.notifications(&session("s"))), added);
}

#[test]
fn request_stream_belongs_to_the_session_that_receives_it() {
    let client = one_client();
    client.open_session(session("t"));
    let event = ServerSseMessage::retry(Duration::from_secs(1));
    let id = client.sent.0.lock().add(client.owner, "one", &event);
    assert!(client.after(&session("t"), &id).is_none());
    let sent = stream::iter([ServerSseMessage::priming(id.clone(), Duration::ZERO)]);
    let received = client.in_session(&session("t"), sent).count().now_or_never();
    assert_eq!(received, Some(1));
    assert!(client.after(&session("t"), &id).is_some());
    assert!(after(&client, &id).is_none());
}
