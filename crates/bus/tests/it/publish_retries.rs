//! Retries of unconfirmed requests, and requests that wait for a permit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use rockbot_bus::{
    Bus, Consumer, MemoryBus, Publication, PublishError, Request, RequestError, Requester,
    Subscription,
};
use rockbot_contracts::Envelope;
use rockbot_testkit::{
    InterceptedBus,
    fixture::{key, next_delivery, reply_address, text_message, wait_until, work_queue},
};
use tokio_util::sync::CancellationToken;

use crate::responder;

/// Wraps `bus`: the first `unconfirmed` publishes are not confirmed, and their messages are lost if
/// `drops` is set. Later publishes are sent and return `error` if it is set.
fn unreliable_bus(
    bus: MemoryBus,
    unconfirmed: u32,
    drops: bool,
    error: Option<PublishError>,
) -> Arc<dyn Bus> {
    let left = Arc::new(AtomicU32::new(unconfirmed));
    InterceptedBus::wrap(Arc::new(bus), move |bus, publication| {
        let (left, error) = (left.clone(), error.clone());
        async move {
            let key = publication.key.clone();
            if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
                let published = bus.publish(publication).await;
                return error.map_or(published, Err);
            }
            if !drops {
                bus.publish(publication).await?;
            }
            Err(PublishError::Unconfirmed { key, reason: "connection lost".to_owned() })
        }
    })
}

struct Fixture {
    requests: Consumer,
    bus: MemoryBus,
    requester: Arc<Requester>,
}

async fn fixture(unconfirmed: u32, drops: bool, error: Option<PublishError>) -> Fixture {
    let bus = MemoryBus::new();
    let requests = responder::consume_requests(&bus).await;
    let unreliable = unreliable_bus(bus.clone(), unconfirmed, drops, error);
    let requester = Arc::new(Requester::new(unreliable, reply_address("caller", "one")));
    Fixture { requests, bus, requester }
}

fn request(retry: bool) -> Request {
    Request {
        key: key("requests"),
        envelope: text_message("ping").with_correlation_id("id"),
        timeout: Duration::from_secs(20),
        grace: Duration::ZERO,
        on_interim: None,
        retry,
        abandoned: None,
    }
}

impl Fixture {
    fn request(&self, retry: bool) -> tokio::task::JoinHandle<Result<Envelope, RequestError>> {
        let requester = self.requester.clone();
        tokio::spawn(async move { requester.request(request(retry)).await })
    }

    async fn receive(&mut self) -> Envelope {
        responder::receive(&mut self.requests).await
    }

    async fn reply_to(&self, request: &Envelope) {
        responder::reply_to(&self.bus, request).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_request_is_retried() {
    let mut fixture = fixture(2, true, None).await;
    let pending = fixture.request(true);
    let received = fixture.receive().await;
    assert_eq!((received.attempt, received.correlation_id.as_deref()), (3, Some("id")));
    fixture.reply_to(&received).await;
    pending.await.expect("no panic").expect("a reply");
    assert_eq!(fixture.requester.stats().retries(), 2);
}

#[tokio::test(start_paused = true)]
async fn reply_to_the_first_attempt_is_accepted() {
    let mut fixture = fixture(1, false, None).await;
    let pending = fixture.request(true);
    let first = fixture.receive().await;
    fixture.reply_to(&first).await;
    pending.await.expect("no panic").expect("a reply");
    assert_eq!(first.attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_message_id() {
    let mut fixture = fixture(1, false, None).await;
    let pending = fixture.request(true);
    let (first, second) = (fixture.receive().await, fixture.receive().await);
    assert_ne!(first.message_id, second.message_id);
    assert_eq!((first.attempt, second.attempt), (1, 2));
    fixture.reply_to(&second).await;
    pending.await.expect("no panic").expect("a reply");
}

#[tokio::test(start_paused = true)]
async fn unrepeatable_request_is_sent_once() {
    let fixture = fixture(1, true, None).await;
    let error = fixture.request(false).await.expect("no panic").expect_err("unconfirmed");
    assert!(matches!(error, RequestError::Publish(PublishError::Unconfirmed { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_its_reply_after_the_last_attempt() {
    let fixture = fixture(u32::MAX, true, None).await;
    let error = fixture.request(true).await.expect("no panic").expect_err("no reply");
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error}");
    assert_eq!(fixture.requester.stats().retries(), 7);
    assert_eq!(fixture.requester.pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn failed_retry_keeps_first_attempt_pending() {
    let refused = PublishError::Refused { key: key("requests") };
    let mut fixture = fixture(1, false, Some(refused)).await;
    let pending = fixture.request(true);
    let first = fixture.receive().await;
    wait_until("the second", || fixture.requester.stats().retries() == 1).await;
    fixture.reply_to(&first).await;
    pending.await.expect("no panic").expect("the reply to the first");
}

#[tokio::test(start_paused = true)]
async fn request_abandoned_before_its_permit_is_never_sent() {
    let mut fixture = fixture(0, false, None).await;
    let requester = Arc::new(
        Requester::new(Arc::new(fixture.bus.clone()), reply_address("caller", "two"))
            .with_max_in_flight(1),
    );
    let with_id = |id: &str, abandoned: &CancellationToken| Request {
        envelope: text_message(id).with_correlation_id(id),
        abandoned: Some(abandoned.clone()),
        ..request(false)
    };
    let abandoned = CancellationToken::new();
    let (first, sender) = (with_id("first", &CancellationToken::new()), requester.clone());
    let first = tokio::spawn(async move { sender.request(first).await });
    fixture.receive().await;
    let (second, sender) = (with_id("second", &abandoned), requester.clone());
    let second = tokio::spawn(async move { sender.request(second).await });
    wait_until("both", || requester.pending() == 2).await;
    abandoned.cancel();
    let error = second.await.expect("no panic").expect_err("abandoned");
    assert!(matches!(error, RequestError::NeverSent { .. }), "{error}");
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn request_over_the_in_flight_limit_is_never_sent() {
    let bus = MemoryBus::new();
    let mut requests =
        bus.consume(Subscription::new(work_queue("requests"), 10)).await.expect("a consumer");
    let requester =
        Requester::new(Arc::new(bus.clone()), reply_address("caller", "one")).with_max_in_flight(1);
    let requester = Arc::new(requester);
    let with_id =
        |id: &str| Request { envelope: text_message(id).with_correlation_id(id), ..request(false) };
    let (first, sender) = (with_id("first"), requester.clone());
    let first = tokio::spawn(async move { sender.request(first).await });
    let received = next_delivery(&mut requests).await;
    let late =
        requester.request(Request { timeout: Duration::from_secs(1), ..with_id("late") }).await;
    assert!(matches!(late, Err(RequestError::NeverSent { limit: 1, .. })), "{late:?}");
    let (second, sender) = (with_id("second"), requester.clone());
    let second = tokio::spawn(async move { sender.request(second).await });
    let to = received.envelope().reply_to.clone().expect("a reply-to");
    for id in ["first", "second"] {
        let reply =
            Publication::mandatory(to.clone(), text_message("pong").with_correlation_id(id));
        bus.publish(reply).await.expect("published");
        if id == "first" {
            next_delivery(&mut requests).await;
        }
    }
    first.await.expect("no panic").expect("a reply");
    second.await.expect("no panic").expect("a reply");
}
