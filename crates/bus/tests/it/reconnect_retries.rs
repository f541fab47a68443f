//! Retries of requests that are pending after several reconnects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rockbot_bus::{
    Bus, Consumer, MemoryBus, PublishError, Reconnects, Request, RequestError, Requester,
};
use rockbot_contracts::Envelope;
use rockbot_testkit::{
    InterceptedBus,
    fixture::{key, reply_address, text_message, wait_until},
};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::responder;

/// A requester on a bus whose reconnects the test controls.
struct Fixture {
    bus: MemoryBus,
    requests: Consumer,
    requester: Arc<Requester>,
    reconnects: watch::Sender<Reconnects>,
    /// Set while publishes succeed.
    publishes: Arc<AtomicBool>,
}

impl Fixture {
    async fn new() -> Self {
        let bus = MemoryBus::new();
        let reconnects = watch::Sender::new(Reconnects::default());
        let publishes = Arc::new(AtomicBool::new(true));
        let switch = publishes.clone();
        let publish = move |bus: Arc<dyn Bus>, publication: rockbot_bus::Publication| {
            let publishes = switch.load(Relaxed);
            async move {
                if publishes {
                    return bus.publish(publication).await;
                }
                let reason = "connection lost".to_owned();
                Err(PublishError::Unconfirmed { key: publication.key, reason })
            }
        };
        let unreliable =
            InterceptedBus::with_reconnects(Arc::new(bus.clone()), reconnects.subscribe(), publish);
        let requests = responder::consume_requests(&bus).await;
        let requester = Arc::new(Requester::new(unreliable, reply_address("caller", "one")));
        Self { bus, requests, requester, reconnects, publishes }
    }

    fn request(&self, id: &'static str, retry: bool) -> JoinHandle<Result<Envelope, RequestError>> {
        self.request_until(id, retry, None)
    }

    fn request_until(
        &self,
        id: &'static str,
        retry: bool,
        abandoned: Option<CancellationToken>,
    ) -> JoinHandle<Result<Envelope, RequestError>> {
        let request = Request {
            key: key("requests"),
            envelope: text_message("ping").with_correlation_id(id),
            timeout: Duration::from_secs(600),
            grace: Duration::ZERO,
            on_interim: None,
            retry,
            abandoned,
        };
        let requester = self.requester.clone();
        tokio::spawn(async move { requester.request(request).await })
    }

    fn reconnect(&self, times: u64) {
        self.reconnects.send_modify(|reconnects| reconnects.count += times);
    }

    async fn receive(&mut self) -> Envelope {
        responder::receive(&mut self.requests).await
    }

    async fn reply_to(&self, request: &Envelope) {
        responder::reply_to(&self.bus, request).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_request_is_retried_after_reconnects() {
    let mut fixture = Fixture::new().await;
    let pending = fixture.request("id", true);
    let first = fixture.receive().await;
    fixture.reconnect(3);
    let second = fixture.receive().await;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(second.correlation_id.as_deref(), Some("id"));
    assert_ne!(first.message_id, second.message_id);
    fixture.reply_to(&second).await;
    pending.await.expect("no panic").expect("a reply");
    assert_eq!((fixture.requester.stats().retries(), fixture.requester.pending()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn request_is_retried_after_loss_of_its_reply_queue() {
    let mut fixture = Fixture::new().await;
    let pending = fixture.request("id", true);
    fixture.receive().await;
    fixture.reconnects.send_modify(|reconnects| {
        reconnects.count += 1;
        reconnects.queue_losses += 1;
    });
    let retried = fixture.receive().await;
    assert_eq!(retried.attempt, 2);
    fixture.reply_to(&retried).await;
    pending.await.expect("no panic").expect("a reply");
}

#[tokio::test(start_paused = true)]
async fn retry_waits_for_the_last_reconnect_of_a_series() {
    let mut fixture = Fixture::new().await;
    let pending = fixture.request("id", true);
    fixture.receive().await;
    let since = Instant::now();
    for _ in 0..4 {
        fixture.reconnect(1);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let retried = fixture.receive().await;
    assert_eq!((retried.attempt, since.elapsed().as_secs()), (2, 3 * 3 + 5));
    assert_eq!(fixture.requester.stats().retries(), 1, "one retry for all reconnects");
    fixture.reply_to(&retried).await;
    pending.await.expect("no panic").expect("a reply");
}

#[tokio::test(start_paused = true)]
async fn endless_reconnects_delay_a_retry_15_s_at_most() {
    let mut fixture = Fixture::new().await;
    let pending = fixture.request("id", true);
    fixture.receive().await;
    let (since, reconnects) = (Instant::now(), fixture.reconnects.clone());
    let reconnecting = tokio::spawn(async move {
        loop {
            reconnects.send_modify(|reconnects| reconnects.count += 1);
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
    });
    let retried = fixture.receive().await;
    assert_eq!((retried.attempt, since.elapsed().as_secs()), (2, 15));
    reconnecting.abort();
    fixture.reply_to(&retried).await;
    pending.await.expect("no panic").expect("a reply");
}

#[tokio::test(start_paused = true)]
async fn answered_unrepeatable_and_new_requests_are_not_retried() {
    let mut fixture = Fixture::new().await;
    let (answered, once) = (fixture.request("answered", true), fixture.request("once", false));
    for _ in 0..2 {
        let request = fixture.receive().await;
        if request.correlation_id.as_deref() == Some("answered") {
            fixture.reply_to(&request).await;
        }
    }
    answered.await.expect("no panic").expect("a reply");
    fixture.reconnect(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let later = fixture.request("later", true);
    wait_until("the request is pending", || fixture.requester.pending() == 2).await;
    fixture.reconnect(2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let received = fixture.receive().await;
    assert_eq!((received.correlation_id.as_deref(), received.attempt), (Some("later"), 1));
    fixture.reply_to(&received).await;
    later.await.expect("no panic").expect("a reply");
    assert_eq!(fixture.requester.stats().retries(), 0);
    once.abort();
}

#[tokio::test(start_paused = true)]
async fn abandoned_request_is_not_retried() {
    let mut fixture = Fixture::new().await;
    let abandoned = CancellationToken::new();
    let pending = fixture.request_until("id", true, Some(abandoned.clone()));
    fixture.receive().await;
    abandoned.cancel();
    fixture.reconnect(3);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((fixture.requester.pending(), fixture.requester.stats().retries()), (1, 0));
    pending.abort();
}

#[tokio::test(start_paused = true)]
async fn failed_retry_is_repeated_after_the_next_reconnect() {
    let mut fixture = Fixture::new().await;
    let pending = fixture.request("id", true);
    fixture.receive().await;
    fixture.publishes.store(false, Relaxed);
    fixture.reconnect(3);
    wait_until("the retry", || fixture.requester.stats().retries() == 1).await;
    fixture.publishes.store(true, Relaxed);
    fixture.reconnect(1);
    let retried = fixture.receive().await;
    assert_eq!((retried.attempt, fixture.requester.stats().retries()), (3, 2));
    fixture.reply_to(&retried).await;
    pending.await.expect("no panic").expect("a reply");
}

#[tokio::test(start_paused = true)]
async fn request_has_eight_attempts_at_most() {
    let mut fixture = Fixture::new().await;
    let pending = fixture.request("id", true);
    assert_eq!(fixture.receive().await.attempt, 1);
    for attempt in 2..=8 {
        fixture.reconnect(3);
        assert_eq!(fixture.receive().await.attempt, attempt);
    }
    fixture.reconnect(3);
    let error = pending.await.expect("no panic").expect_err("no reply");
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error}");
    wait_until("all retries", || fixture.requester.stats().retries() == 7).await;
}
