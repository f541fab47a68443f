//! Requests and replies.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rockbot_bus::{
    Consumer, Publication, PublishError, Request, RequestError, Requester, Settlement,
};
use rockbot_contracts::{Envelope, Message, RoutingKey, ToolProgress};

use crate::fixture::{
    BusFixture, TEST_TIMEOUT, key, next_delivery, reply_address, text_message, text_of, wait_until,
    within_timeout, work_queue,
};

fn request(id: &str) -> Request {
    Request {
        key: key("requests"),
        envelope: text_message(id).with_correlation_id(id),
        timeout: TEST_TIMEOUT,
        grace: Duration::ZERO,
        on_interim: None,
        retry: false,
        abandoned: None,
    }
}

fn requester(fixture: &BusFixture, instance: &str) -> Arc<Requester> {
    Arc::new(Requester::new(fixture.local.clone(), reply_address("caller", instance)))
}

/// Creates a requester whose first request was answered: its reply queue exists, which a short timeout need not
/// include.
async fn subscribed_requester(fixture: &BusFixture, consumer: &mut Consumer) -> Arc<Requester> {
    let requester = requester(fixture, "one");
    let pending = send(&requester, request("r0"));
    let (to, id) = receive_request(consumer).await;
    reply(fixture, &to, &id, "yes").await;
    reply_text(pending).await;
    requester
}

/// Acks the next request and returns its reply-to and correlation id.
async fn receive_request(consumer: &mut Consumer) -> (RoutingKey, String) {
    let delivery = next_delivery(consumer).await;
    let reply_to = delivery.envelope().reply_to.clone().expect("a request has a reply-to");
    let id = text_of(&delivery);
    assert_eq!(delivery.envelope().correlation_id.as_deref(), Some(id.as_str()));
    assert!(delivery.envelope().remaining().is_some(), "a request has a time budget");
    delivery.settle(Settlement::Ack).await.expect("acked");
    (reply_to, id)
}

async fn reply(fixture: &BusFixture, to: &RoutingKey, id: &str, text: &str) {
    let envelope = text_message(text).with_correlation_id(id);
    let publication = Publication::mandatory(to.clone(), envelope);
    fixture.remote.publish(publication).await.expect("the reply is routed");
}

fn text(envelope: &Envelope) -> String {
    serde_json::from_slice(&envelope.body).expect("a text")
}

/// The result of a request that was sent on its own task.
type Pending = tokio::task::JoinHandle<Result<Envelope, RequestError>>;

/// Waits for the reply and returns its text.
async fn reply_text(pending: Pending) -> String {
    text(&within_timeout("the reply", pending).await.expect("no panic").expect("a reply"))
}

fn send(requester: &Arc<Requester>, request: Request) -> Pending {
    let requester = requester.clone();
    tokio::spawn(async move { requester.request(request).await })
}

/// A request reaches its consumer, and the reply returns.
pub async fn request_receives_its_reply(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let pending = send(&requester(&fixture, "one"), request("r1"));
    let (to, id) = receive_request(&mut consumer).await;
    reply(&fixture, &to, &id, "yes").await;
    assert_eq!(reply_text(pending).await, "yes");
}

/// The id is free even if the first caller has not polled its reply yet, or never does.
pub async fn replied_request_frees_its_id(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = requester(&fixture, "one");
    for polls_reply in [true, false] {
        let mut first = Box::pin(requester.request(request("r1")));
        let (to, id) = tokio::select! {
            received = receive_request(&mut consumer) => received,
            outcome = &mut first => panic!("no reply was sent, but {outcome:?}"),
        };
        reply(&fixture, &to, &id, "one").await;
        wait_until("the first request is no longer pending", || requester.pending() == 0).await;
        let second = send(&requester, request("r1"));
        let (to, id) = receive_request(&mut consumer).await;
        if polls_reply {
            let first = within_timeout("the first reply", first).await.expect("a reply");
            assert_eq!(text(&first), "one");
        } else {
            drop(first);
        }
        assert_eq!(requester.pending(), 1);
        reply(&fixture, &to, &id, "two").await;
        let received = within_timeout("the second reply", second).await.expect("no panic");
        assert_eq!(text(&received.expect("a reply")), "two");
    }
}

/// Replies are matched by correlation id, not by order.
pub async fn replies_are_matched_by_correlation_id(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 100).await;
    let requester = requester(&fixture, "one");
    let ids: Vec<_> = (0..20).map(|number| format!("r{number}")).collect();
    let pending: Vec<_> = ids.iter().map(|id| send(&requester, request(id))).collect();
    let mut requests = Vec::new();
    for _ in &ids {
        requests.push(receive_request(&mut consumer).await);
    }
    for (to, id) in requests.iter().rev() {
        reply(&fixture, to, id, &format!("reply to {id}")).await;
    }
    for (id, pending) in ids.iter().zip(pending) {
        let received =
            within_timeout("the reply", pending).await.expect("no panic").expect("a reply");
        assert_eq!(text(&received), format!("reply to {id}"));
    }
    assert_eq!(requester.pending(), 0);
}

/// A missing consumer is reported at once, not by a timeout.
pub async fn unroutable_request_fails_at_once(fixture: BusFixture) {
    let requester = requester(&fixture, "one");
    let started = Instant::now();
    let error = requester.request(request("r1")).await.expect_err("no consumer");
    assert!(matches!(error, RequestError::Publish(PublishError::Unroutable { .. })), "{error}");
    assert!(started.elapsed() < TEST_TIMEOUT / 2, "the request timed out");
    assert_eq!(requester.pending(), 0);
}

/// The wait for a reply is bounded.
pub async fn request_without_reply_times_out(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = subscribed_requester(&fixture, &mut consumer).await;
    let request = Request { timeout: Duration::from_millis(300), ..request("r1") };
    let error = requester.request(request).await.expect_err("no reply");
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error}");
    assert_eq!(requester.pending(), 0);
}

/// A reply after the timeout only increments a counter.
pub async fn late_reply_is_dropped_and_counted(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = subscribed_requester(&fixture, &mut consumer).await;
    let first = Request { timeout: Duration::from_millis(500), ..request("r1") };
    let pending = send(&requester, first);
    let (to, id) = receive_request(&mut consumer).await;
    pending.await.expect("no panic").expect_err("no reply in time");
    reply(&fixture, &to, &id, "late").await;
    wait_until("the late reply is counted", || requester.stats().late() == 1).await;
    let pending = send(&requester, request("r2"));
    let (to, id) = receive_request(&mut consumer).await;
    reply(&fixture, &to, &id, "in time").await;
    assert_eq!(reply_text(pending).await, "in time");
}

/// Only the first reply is delivered.
pub async fn second_reply_is_dropped_and_counted(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = requester(&fixture, "one");
    let pending = send(&requester, request("r1"));
    let (to, id) = receive_request(&mut consumer).await;
    reply(&fixture, &to, &id, "first").await;
    reply(&fixture, &to, &id, "second").await;
    assert_eq!(reply_text(pending).await, "first");
    wait_until("the second reply is counted", || requester.stats().late() == 1).await;
}

/// A reply with an unknown correlation id, or without one, completes no request.
pub async fn unknown_reply_is_dropped_and_counted(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = requester(&fixture, "one");
    let pending = send(&requester, request("r1"));
    let (to, id) = receive_request(&mut consumer).await;
    reply(&fixture, &to, "unknown-id", "foreign").await;
    let publication = Publication::mandatory(to.clone(), text_message("no id"));
    fixture.remote.publish(publication).await.expect("confirmed");
    wait_until("both unknown replies are counted", || requester.stats().late() == 2).await;
    reply(&fixture, &to, &id, "own").await;
    assert_eq!(reply_text(pending).await, "own");
}

/// Progress messages are delivered in order and before the reply.
pub async fn progress_arrives_in_order_before_reply(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = requester(&fixture, "one");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let on_interim: Arc<dyn Fn(&Envelope) + Send + Sync> = Arc::new(move |envelope| {
        sink.lock().expect("not poisoned").push(text(envelope));
    });
    let pending = send(&requester, Request { on_interim: Some(on_interim), ..request("r1") });
    let (to, id) = receive_request(&mut consumer).await;
    let progress_to = requester.address().tool_progress();
    for number in 0..5 {
        let body = serde_json::to_vec(&number.to_string()).expect("JSON");
        let envelope = Envelope::raw(ToolProgress::TYPE, body).with_correlation_id(id.as_str());
        let publication = Publication::announcement(progress_to.clone(), envelope);
        fixture.remote.publish(publication).await.expect("sent");
    }
    wait_until("all progress arrived", || requester.stats().interim() == 5).await;
    reply(&fixture, &to, &id, "done").await;
    reply_text(pending).await;
    assert_eq!(*seen.lock().expect("not poisoned"), ["0", "1", "2", "3", "4"]);
}

/// Each replica of an agent has its own reply queue.
pub async fn replicas_receive_only_their_replies(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 10).await;
    let (one, two) = (requester(&fixture, "one"), requester(&fixture, "two"));
    // The same id on purpose: only the reply address differs.
    let first = send(&one, request("same"));
    let (to_one, id) = receive_request(&mut consumer).await;
    let second = send(&two, request("same"));
    let (to_two, _) = receive_request(&mut consumer).await;
    assert_ne!(to_one, to_two);
    reply(&fixture, &to_two, &id, "for two").await;
    reply(&fixture, &to_one, &id, "for one").await;
    assert_eq!(reply_text(first).await, "for one");
    assert_eq!(reply_text(second).await, "for two");
    assert_eq!(one.stats().late() + two.stats().late(), 0);
}

/// The reply queue is declared with the first request, and once.
pub async fn requester_subscribes_lazily_and_once(fixture: BusFixture) {
    let requester = requester(&fixture, "one");
    let names = [requester.address().queue().name];
    let consumers = async || {
        let report = fixture.local.inspect(&names).await.expect("a report");
        report.queues[0].depth().map(|depth| depth.consumers)
    };
    assert_eq!(consumers().await, None);
    let mut consumer = fixture.consume(work_queue("requests"), 100).await;
    let pending: Vec<_> =
        (0..10).map(|number| send(&requester, request(&format!("r{number}")))).collect();
    for _ in &pending {
        let (to, id) = receive_request(&mut consumer).await;
        reply(&fixture, &to, &id, "yes").await;
    }
    for pending in pending {
        reply_text(pending).await;
    }
    assert_eq!(consumers().await, Some(1));
}

/// Pending requests have distinct, non-empty correlation ids.
pub async fn correlation_id_in_use_is_rejected(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = requester(&fixture, "one");
    let pending = send(&requester, request("r1"));
    let (to, id) = receive_request(&mut consumer).await;
    let error = requester.request(request("r1")).await.expect_err("in use");
    assert!(matches!(error, RequestError::BadCorrelationId { .. }), "{error}");
    let error = requester.request(request("")).await.expect_err("no id");
    assert!(matches!(error, RequestError::BadCorrelationId { .. }), "{error}");
    reply(&fixture, &to, &id, "yes").await;
    assert_eq!(reply_text(pending).await, "yes", "the first request is unaffected");
}

/// The number of pending requests is bounded.
pub async fn pending_requests_are_bounded(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 10).await;
    let requester =
        Requester::new(fixture.local.clone(), reply_address("caller", "one")).with_max_pending(1);
    let requester = Arc::new(requester);
    let pending = send(&requester, request("r1"));
    let (to, id) = receive_request(&mut consumer).await;
    let error = requester.request(request("r2")).await.expect_err("one is pending");
    assert!(matches!(error, RequestError::TooManyPending { limit: 1 }), "{error}");
    reply(&fixture, &to, &id, "yes").await;
    reply_text(pending).await;
}

/// A dropped request future leaves no state behind.
pub async fn dropped_request_is_removed(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("requests"), 1).await;
    let requester = requester(&fixture, "one");
    let pending = send(&requester, request("r1"));
    let (to, id) = receive_request(&mut consumer).await;
    pending.abort();
    wait_until("the request is removed", || requester.pending() == 0).await;
    reply(&fixture, &to, &id, "too late").await;
    wait_until("the reply is counted as late", || requester.stats().late() == 1).await;
}
