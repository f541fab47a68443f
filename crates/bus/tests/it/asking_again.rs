//! A question whose arrival nobody confirmed is asked again, under the same id.

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

use crate::asker;

/// A bus that loses the confirms of the first messages, and the messages if told so. `then` is what
/// it says of those that follow.
fn doubtful(
    bus: MemoryBus,
    unconfirmed: u32,
    loses: bool,
    then: Option<PublishError>,
) -> Arc<dyn Bus> {
    let left = Arc::new(AtomicU32::new(unconfirmed));
    InterceptedBus::wrap(Arc::new(bus), move |bus, publication| {
        let (left, then) = (left.clone(), then.clone());
        async move {
            let key = publication.key.clone();
            if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
                let published = bus.publish(publication).await;
                return then.map_or(published, Err);
            }
            if !loses {
                bus.publish(publication).await?;
            }
            Err(PublishError::Unconfirmed { key, reason: "the connection was cut".to_owned() })
        }
    })
}

struct Stage {
    questions: Consumer,
    bus: MemoryBus,
    requester: Arc<Requester>,
}

async fn stage(unconfirmed: u32, loses: bool, then: Option<PublishError>) -> Stage {
    let bus = MemoryBus::new();
    let questions = asker::questions(&bus).await;
    let doubtful = doubtful(bus.clone(), unconfirmed, loses, then);
    let requester = Arc::new(Requester::new(doubtful, reply_address("asker", "one")));
    Stage { questions, bus, requester }
}

fn question(retry: bool) -> Request {
    Request {
        key: key("questions"),
        envelope: text_message("why").with_correlation_id("id"),
        timeout: Duration::from_secs(20),
        grace: Duration::ZERO,
        on_interim: None,
        retry,
        abandoned: None,
    }
}

impl Stage {
    fn ask(&self, retry: bool) -> tokio::task::JoinHandle<Result<Envelope, RequestError>> {
        let requester = self.requester.clone();
        tokio::spawn(async move { requester.request(question(retry)).await })
    }

    async fn heard(&mut self) -> Envelope {
        asker::heard(&mut self.questions).await
    }

    async fn answer(&self, question: &Envelope) {
        asker::answer(&self.bus, question).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_lost_is_asked_again_and_counted() {
    let mut stage = stage(2, true, None).await;
    let asking = stage.ask(true);
    let heard = stage.heard().await;
    assert_eq!((heard.attempt, heard.correlation_id.as_deref()), (3, Some("id")));
    stage.answer(&heard).await;
    asking.await.expect("no panic").expect("an answer");
    assert_eq!(stage.requester.stats().retries(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_the_first_of_two_is_taken() {
    let mut stage = stage(1, false, None).await;
    let asking = stage.ask(true);
    let first = stage.heard().await;
    stage.answer(&first).await;
    asking.await.expect("no panic").expect("an answer");
    assert_eq!(first.attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn each_time_it_is_a_message_of_its_own() {
    let mut stage = stage(1, false, None).await;
    let asking = stage.ask(true);
    let (first, second) = (stage.heard().await, stage.heard().await);
    assert_ne!(first.message_id, second.message_id);
    assert_eq!((first.attempt, second.attempt), (1, 2));
    stage.answer(&second).await;
    asking.await.expect("no panic").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_once_where_the_second_would_not_be_recognised() {
    let stage = stage(1, true, None).await;
    let error = stage.ask(false).await.expect("no panic").expect_err("nobody knows");
    assert!(matches!(error, RequestError::Publish(PublishError::Unconfirmed { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn asking_again_has_an_end_and_an_answer_is_still_waited_for() {
    let stage = stage(u32::MAX, true, None).await;
    let error = stage.ask(true).await.expect("no panic").expect_err("nobody answers");
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error}");
    assert_eq!(stage.requester.stats().retries(), 7);
    assert_eq!(stage.requester.pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn that_a_second_one_surely_failed_says_nothing_about_the_first() {
    let refused = PublishError::Refused { key: key("questions") };
    let mut stage = stage(1, false, Some(refused)).await;
    let asking = stage.ask(true);
    let first = stage.heard().await;
    wait_until("the second", || stage.requester.stats().retries() == 1).await;
    stage.answer(&first).await;
    asking.await.expect("no panic").expect("the answer to the first");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_given_up_while_it_waits_is_never_sent() {
    let mut stage = stage(0, false, None).await;
    let requester = Arc::new(
        Requester::new(Arc::new(stage.bus.clone()), reply_address("asker", "two"))
            .with_max_in_flight(1),
    );
    let of = |id: &str, abandoned: &CancellationToken| Request {
        envelope: text_message(id).with_correlation_id(id),
        abandoned: Some(abandoned.clone()),
        ..question(false)
    };
    let abandoned = CancellationToken::new();
    let (first, here) = (of("first", &CancellationToken::new()), requester.clone());
    let first = tokio::spawn(async move { here.request(first).await });
    stage.heard().await;
    let (second, here) = (of("second", &abandoned), requester.clone());
    let second = tokio::spawn(async move { here.request(second).await });
    wait_until("both", || requester.pending() == 2).await;
    abandoned.cancel();
    let error = second.await.expect("no panic").expect_err("given up");
    assert!(matches!(error, RequestError::NeverSent { .. }), "{error}");
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn questions_beyond_the_window_wait_here_and_were_never_sent() {
    let bus = MemoryBus::new();
    let mut questions =
        bus.consume(Subscription::new(work_queue("questions"), 10)).await.expect("consuming");
    let requester =
        Requester::new(Arc::new(bus.clone()), reply_address("asker", "one")).with_max_in_flight(1);
    let requester = Arc::new(requester);
    let of = |id: &str| Request {
        envelope: text_message(id).with_correlation_id(id),
        ..question(false)
    };
    let (first, here) = (of("first"), requester.clone());
    let first = tokio::spawn(async move { here.request(first).await });
    let heard = next_delivery(&mut questions).await;
    let late = requester.request(Request { timeout: Duration::from_secs(1), ..of("late") }).await;
    assert!(matches!(late, Err(RequestError::NeverSent { limit: 1, .. })), "{late:?}");
    let (second, here) = (of("second"), requester.clone());
    let second = tokio::spawn(async move { here.request(second).await });
    let to = heard.envelope().reply_to.clone().expect("a reply-to");
    for id in ["first", "second"] {
        let answer =
            Publication::mandatory(to.clone(), text_message("done").with_correlation_id(id));
        bus.publish(answer).await.expect("heard");
        if id == "first" {
            next_delivery(&mut questions).await;
        }
    }
    first.await.expect("no panic").expect("an answer");
    second.await.expect("no panic").expect("an answer");
}
