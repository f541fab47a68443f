//! A question that is still open some time after several lost connections is asked again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rockbot_bus::{Bus, Consumer, MemoryBus, PublishError, Request, RequestError, Requester};
use rockbot_contracts::Envelope;
use rockbot_testkit::{
    InterceptedBus,
    fixture::{key, reply_address, text_message, wait_until},
};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::asker;

/// An asker whose bus is interrupted as often as told.
struct Stage {
    bus: MemoryBus,
    questions: Consumer,
    requester: Arc<Requester>,
    losses: watch::Sender<u64>,
    /// Whether the bus takes messages now.
    takes: Arc<AtomicBool>,
}

impl Stage {
    async fn new() -> Self {
        let bus = MemoryBus::new();
        let losses = watch::Sender::new(0);
        let takes = Arc::new(AtomicBool::new(true));
        let taking = takes.clone();
        let publish = move |bus: Arc<dyn Bus>, publication: rockbot_bus::Publication| {
            let takes = taking.load(Relaxed);
            async move {
                if takes {
                    return bus.publish(publication).await;
                }
                let reason = "the connection was cut".to_owned();
                Err(PublishError::Unconfirmed { key: publication.key, reason })
            }
        };
        let lossy =
            InterceptedBus::with_reconnects(Arc::new(bus.clone()), losses.subscribe(), publish);
        let questions = asker::questions(&bus).await;
        let requester = Arc::new(Requester::new(lossy, reply_address("asker", "one")));
        Self { bus, questions, requester, losses, takes }
    }

    fn ask(&self, id: &'static str, retry: bool) -> JoinHandle<Result<Envelope, RequestError>> {
        self.ask_until(id, retry, None)
    }

    fn ask_until(
        &self,
        id: &'static str,
        retry: bool,
        abandoned: Option<CancellationToken>,
    ) -> JoinHandle<Result<Envelope, RequestError>> {
        let request = Request {
            key: key("questions"),
            envelope: text_message("why").with_correlation_id(id),
            timeout: Duration::from_secs(600),
            grace: Duration::ZERO,
            on_interim: None,
            retry,
            abandoned,
        };
        let requester = self.requester.clone();
        tokio::spawn(async move { requester.request(request).await })
    }

    fn is_interrupted(&self, more: u64) {
        self.losses.send_modify(|times| *times += more);
    }

    async fn heard(&mut self) -> Envelope {
        asker::heard(&mut self.questions).await
    }

    async fn answer(&self, question: &Envelope) {
        asker::answer(&self.bus, question).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_behind_the_bus_is_asked_again_and_counted() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    let first = stage.heard().await;
    stage.is_interrupted(3);
    let second = stage.heard().await;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(second.correlation_id.as_deref(), Some("id"));
    assert_ne!(first.message_id, second.message_id);
    stage.answer(&second).await;
    asking.await.expect("no panic").expect("an answer");
    assert_eq!((stage.requester.stats().retries(), stage.requester.pending()), (1, 0));
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
    assert_eq!((again.attempt, since.elapsed().as_secs()), (2, 3 * 3 + 5));
    assert_eq!(stage.requester.stats().retries(), 1, "once for all of them");
    stage.answer(&again).await;
    asking.await.expect("no panic").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_run_of_losses_without_an_end_is_not() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    stage.heard().await;
    let (since, losses) = (Instant::now(), stage.losses.clone());
    let losing = tokio::spawn(async move {
        loop {
            losses.send_modify(|times| *times += 1);
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
    });
    let again = stage.heard().await;
    assert_eq!((again.attempt, since.elapsed().as_secs()), (2, 15));
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
    wait_until("it is open", || stage.requester.pending() == 2).await;
    stage.is_interrupted(2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let heard = stage.heard().await;
    assert_eq!((heard.correlation_id.as_deref(), heard.attempt), (Some("later"), 1));
    stage.answer(&heard).await;
    later.await.expect("no panic").expect("an answer");
    assert_eq!(stage.requester.stats().retries(), 0);
    once.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_not_asked_again() {
    let mut stage = Stage::new().await;
    let abandoned = CancellationToken::new();
    let asking = stage.ask_until("id", true, Some(abandoned.clone()));
    stage.heard().await;
    abandoned.cancel();
    stage.is_interrupted(3);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((stage.requester.pending(), stage.requester.stats().retries()), (1, 0));
    asking.abort();
}

#[tokio::test(start_paused = true)]
async fn one_that_failed_to_go_out_again_has_another_turn_after_the_next_loss() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    stage.heard().await;
    stage.takes.store(false, Relaxed);
    stage.is_interrupted(3);
    wait_until("it was tried", || stage.requester.stats().retries() == 1).await;
    stage.takes.store(true, Relaxed);
    stage.is_interrupted(1);
    let again = stage.heard().await;
    assert_eq!((again.attempt, stage.requester.stats().retries()), (3, 2));
    stage.answer(&again).await;
    asking.await.expect("no panic").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn however_many_losses_it_is_asked_eight_times() {
    let mut stage = Stage::new().await;
    let asking = stage.ask("id", true);
    assert_eq!(stage.heard().await.attempt, 1);
    for asked in 2..=8 {
        stage.is_interrupted(3);
        assert_eq!(stage.heard().await.attempt, asked);
    }
    stage.is_interrupted(3);
    let error = asking.await.expect("no panic").expect_err("nobody answers");
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error}");
    wait_until("all are counted", || stage.requester.stats().retries() == 7).await;
}
