//! Panics of adapters, sinks and listeners, and deliveries whose subscription is gone.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, pending, ready};
use rockbot_bus::{
    Bus, Consumer, Delivery, DeliverySource, Handler, MemoryBus, Publication, Request,
    RequestError, Requester, SettleError, Settlement, Settler, Worker,
};
use rockbot_contracts::{Envelope, Message, QueueName, ToolProgress};
use rockbot_testkit::fixture::{key, reply_address, text_message, wait_until, within_timeout};

use crate::responder;

/// A source that returns its deliveries, and panics where one is missing.
struct Scripted {
    deliveries: VecDeque<Option<Delivery>>,
    interrupts: Arc<AtomicU64>,
}

impl Scripted {
    fn consumer(deliveries: impl Into<VecDeque<Option<Delivery>>>) -> (Consumer, Arc<AtomicU64>) {
        let interrupts = Arc::<AtomicU64>::default();
        let source = Self { deliveries: deliveries.into(), interrupts: interrupts.clone() };
        (Consumer::new(source), interrupts)
    }
}

impl DeliverySource for Scripted {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        match self.deliveries.pop_front() {
            Some(Some(delivery)) => Box::pin(ready(Some(delivery))),
            Some(None) => Box::pin(async { panic!("a broken source, on purpose") }),
            None => Box::pin(pending()),
        }
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    fn interrupt(&mut self) {
        self.interrupts.fetch_add(1, Relaxed);
    }
}

/// A settler whose subscription is gone.
struct Orphaned;

impl Settler for Orphaned {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(ready(Err(SettleError { reason: "the channel is closed".to_owned() })))
    }

    fn retry(self: Box<Self>, _: Envelope) -> BoxFuture<'static, Result<(), SettleError>> {
        self.ack()
    }

    fn dead_letter(
        self: Box<Self>,
        _: Envelope,
        _: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>> {
        self.ack()
    }

    fn is_open(&self) -> bool {
        false
    }

    fn abandon(self: Box<Self>, _: Envelope) {}
}

/// A handler that counts its calls.
#[derive(Default)]
struct Counting(AtomicU64);

impl Handler for Counting {
    fn handle<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Settlement> {
        self.0.fetch_add(1, Relaxed);
        Box::pin(ready(Settlement::Ack))
    }
}

fn received(text: &str) -> Option<Delivery> {
    Some(Delivery::received(text_message(text), key("jobs"), 1))
}

fn start(consumer: Consumer, handler: &Arc<Counting>) -> Worker {
    Worker::from_consumer(consumer, &QueueName::new("jobs").expect("a name"), handler.clone())
}

fn request(id: &str) -> Request {
    Request {
        key: key("requests"),
        envelope: text_message("ping").with_correlation_id(id),
        timeout: Duration::from_secs(600),
        grace: Duration::ZERO,
        on_interim: None,
        retry: true,
        abandoned: None,
    }
}

#[tokio::test(start_paused = true)]
async fn worker_continues_after_a_panic_of_its_source() {
    let script = [received("before"), None, None, received("after")];
    let (consumer, interrupts) = Scripted::consumer(script);
    let handler = Arc::<Counting>::default();
    let worker = start(consumer, &handler);
    wait_until("both deliveries", || worker.stats().acked() == 2).await;
    assert_eq!((handler.0.load(Relaxed), interrupts.load(Relaxed)), (2, 2));
}

#[tokio::test]
async fn orphaned_delivery_is_not_processed() {
    let orphan = Delivery::new(text_message("orphan"), key("jobs"), 1, Orphaned);
    let (consumer, _) = Scripted::consumer([Some(orphan), received("other")]);
    let handler = Arc::<Counting>::default();
    let worker = start(consumer, &handler);
    let stats = worker.stats();
    wait_until("both deliveries", || stats.acked() + stats.unsettled() == 2).await;
    assert_eq!((stats.unsettled(), handler.0.load(Relaxed)), (1, 1));
}

#[tokio::test]
async fn reply_arrives_after_a_panic_of_the_progress_sink() {
    let bus = MemoryBus::new();
    let mut requests = responder::consume_requests(&bus).await;
    let requester = Requester::new(Arc::new(bus.clone()), reply_address("caller", "one"));
    let request = Request {
        on_interim: Some(Arc::new(|_| panic!("a broken sink, on purpose"))),
        ..request("id")
    };
    let replying = async {
        let request = responder::receive(&mut requests).await;
        let progress = Envelope::raw(ToolProgress::TYPE, b"{}".to_vec()).with_correlation_id("id");
        let progress = Publication::announcement(requester.address().tool_progress(), progress);
        bus.publish(progress).await.expect("published");
        responder::reply_to(&bus, &request).await;
    };
    let (reply, ()) =
        within_timeout("a reply", async { tokio::join!(requester.request(request), replying) })
            .await;
    reply.expect("a reply");
    assert_eq!(requester.stats().interim(), 1);
    assert!(requester.is_listening());
}

#[tokio::test]
async fn requests_fail_at_once_when_the_reply_consumer_ended() {
    let bus = MemoryBus::new();
    let mut requests = responder::consume_requests(&bus).await;
    let requester = Requester::new(Arc::new(bus.clone()), reply_address("caller", "one"));
    let ending = async {
        responder::receive(&mut requests).await;
        bus.close().await;
    };
    let (reply, ()) = within_timeout("an error", async {
        tokio::join!(requester.request(request("id")), ending)
    })
    .await;
    assert!(matches!(reply, Err(RequestError::Stopped)), "{reply:?}");
    let reply = within_timeout("an error", requester.request(request("later"))).await;
    assert!(matches!(reply, Err(RequestError::Stopped)), "{reply:?}");
}
