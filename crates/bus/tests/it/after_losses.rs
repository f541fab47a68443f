//! A question that is still open some time after several lost connections is asked again.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, BusReport, ConsumeError, Consumer, Delivery, DeliverySource, MemoryBus, Publication,
    PublishError, Request, RequestError, Requester, Settlement, Subscription,
};
use rockbot_contracts::{Envelope, QueueName};
use rockbot_testkit::bed::{address, key, message, next, until, work};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// A bus in memory that says of its consumers that they were interrupted, as often as told.
struct Lossy {
    bus: MemoryBus,
    losses: watch::Sender<u64>,
    /// Whether it takes messages now.
    takes: AtomicBool,
}

struct LossySource(Consumer, watch::Receiver<u64>);

impl DeliverySource for LossySource {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.0.next())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.cancel())
    }

    fn resumptions(&self) -> Option<watch::Receiver<u64>> {
        Some(self.1.clone())
    }
}

impl Bus for Lossy {
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        if self.takes.load(Relaxed) {
            return self.bus.publish(publication);
        }
        let reason = "the connection was cut".to_owned();
        Box::pin(ready(Err(PublishError::Unconfirmed { key: publication.key, reason })))
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        Box::pin(async move {
            let consumer = self.bus.consume(subscription).await?;
            Ok(Consumer::new(LossySource(consumer, self.losses.subscribe())))
        })
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        self.bus.inspect(queues)
    }

    fn is_ready(&self) -> bool {
        self.bus.is_ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.bus.close()
    }
}

struct Stage {
    bus: Arc<Lossy>,
    questions: Consumer,
    requester: Arc<Requester>,
}

impl Stage {
    async fn new() -> Self {
        let takes = AtomicBool::new(true);
        let bus = Lossy { bus: MemoryBus::new(), losses: watch::Sender::new(0), takes };
        let bus = Arc::new(bus);
        let questions = Subscription::new(work("questions"), 10);
        let questions = bus.consume(questions).await.expect("consuming");
        let requester = Arc::new(Requester::new(bus.clone(), address("asker", "one")));
        Self { bus, questions, requester }
    }

    fn ask(&self, id: &'static str, ask_again: bool) -> JoinHandle<Result<Envelope, RequestError>> {
        self.ask_until(id, ask_again, None)
    }

    fn ask_until(
        &self,
        id: &'static str,
        ask_again: bool,
        give_up: Option<CancellationToken>,
    ) -> JoinHandle<Result<Envelope, RequestError>> {
        let request = Request {
            key: key("questions"),
            envelope: message("why").correlated(id),
            timeout: Duration::from_secs(600),
            grace: Duration::ZERO,
            on_interim: None,
            ask_again,
            give_up,
        };
        let requester = self.requester.clone();
        tokio::spawn(async move { requester.ask(request).await })
    }

    fn is_interrupted(&self, more: u64) {
        self.bus.losses.send_modify(|times| *times += more);
    }

    /// The next question, which is then gone.
    async fn heard(&mut self) -> Envelope {
        let delivery = next(&mut self.questions).await;
        let envelope = delivery.envelope().clone();
        delivery.settle(Settlement::Ack).await.expect("acked");
        envelope
    }

    async fn answer(&self, question: &Envelope) {
        let id = question.correlation_id.as_deref().expect("an id");
        let to = question.reply_to.clone().expect("a reply-to");
        let answer = Publication::mandatory(to, message("because").correlated(id));
        self.bus.publish(answer).await.expect("heard");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_behind_the_bus_is_asked_again_and_counted() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    let first = stage.heard().await;
    stage.is_interrupted(3);
    let second = stage.heard().await;
    assert_eq!((first.asked, second.asked), (1, 2));
    assert_eq!(second.correlation_id.as_deref(), Some("id"));
    assert_ne!(first.message_id, second.message_id);
    stage.answer(&second).await;
    asking.await.expect("no panic").expect("an answer");
    assert_eq!((stage.requester.stats().asked_again(), stage.requester.pending()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_of_losses_is_waited_out() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    stage.heard().await;
    let since = Instant::now();
    for _ in 0..4 {
        stage.is_interrupted(1);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let again = stage.heard().await;
    assert_eq!((again.asked, since.elapsed().as_secs()), (2, 3 * 3 + 5));
    assert_eq!(stage.requester.stats().asked_again(), 1, "once for all of them");
    stage.answer(&again).await;
    asking.await.expect("no panic").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_run_of_losses_without_an_end_is_not() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    stage.heard().await;
    let (since, bus) = (Instant::now(), stage.bus.clone());
    let losing = tokio::spawn(async move {
        loop {
            bus.losses.send_modify(|times| *times += 1);
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
    });
    let again = stage.heard().await;
    assert_eq!((again.asked, since.elapsed().as_secs()), (2, 15));
    losing.abort();
    stage.answer(&again).await;
    asking.await.expect("no panic").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn only_what_was_open_through_several_and_may_be_asked_twice_is_asked_again() {
    let mut stage = Stage::new().await;
    let (answered, once) = (stage.ask("answered", true), stage.ask("once", false));
    for _ in 0..2 {
        let question = stage.heard().await;
        if question.correlation_id.as_deref() == Some("answered") {
            stage.answer(&question).await;
        }
    }
    answered.await.expect("no panic").expect("an answer");
    stage.is_interrupted(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let later = stage.ask("later", true);
    until("it is open", || stage.requester.pending() == 2).await;
    stage.is_interrupted(2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let heard = stage.heard().await;
    assert_eq!((heard.correlation_id.as_deref(), heard.asked), (Some("later"), 1));
    stage.answer(&heard).await;
    later.await.expect("no panic").expect("an answer");
    assert_eq!(stage.requester.stats().asked_again(), 0);
    once.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_not_asked_again() {
    let mut stage = Stage::new().await;
    let give_up = CancellationToken::new();
    let asking = stage.ask_until("id", true, Some(give_up.clone()));
    stage.heard().await;
    give_up.cancel();
    stage.is_interrupted(3);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((stage.requester.pending(), stage.requester.stats().asked_again()), (1, 0));
    asking.abort();
}

#[tokio::test(start_paused = true)]
async fn one_that_failed_to_go_out_again_has_another_turn_after_the_next_loss() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    stage.heard().await;
    stage.bus.takes.store(false, Relaxed);
    stage.is_interrupted(3);
    until("it was tried", || stage.requester.stats().asked_again() == 1).await;
    stage.bus.takes.store(true, Relaxed);
    stage.is_interrupted(1);
    let again = stage.heard().await;
    assert_eq!((again.asked, stage.requester.stats().asked_again()), (3, 2));
    stage.answer(&again).await;
    asking.await.expect("no panic").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn however_many_losses_it_is_asked_eight_times() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    assert_eq!(stage.heard().await.asked, 1);
    for asked in 2..=8 {
        stage.is_interrupted(3);
        assert_eq!(stage.heard().await.asked, asked);
    }
    stage.is_interrupted(3);
    let error = asking.await.expect("no panic").expect_err("nobody answers");
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error}");
    until("all are counted", || stage.requester.stats().asked_again() == 7).await;
}
