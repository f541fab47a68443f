//! The network between a process and the broker fails.

use std::time::Duration;

use rockbot_bus::{Bus, Publication, PublishError, Request, Requester, Settlement, Subscription};
use rockbot_testkit::{
    FaultProxy,
    fixture::{
        ack_next, key, next_delivery, reply_address, test_broker_url, text_message, within_timeout,
        work_queue,
    },
    proxy::Direction,
};
use tokio::time::{Instant, timeout};

use crate::fleet::{BACK_WITHIN, Fleet, SHORT, reason_not_sent};

/// A fleet whose only way to the broker is a proxy.
async fn behind_a_proxy() -> (FaultProxy, Fleet) {
    let proxy = FaultProxy::start(&test_broker_url()).await;
    let fleet = Fleet::connect(proxy.url()).await;
    (proxy, fleet)
}

#[tokio::test]
async fn cut_again_and_again_it_comes_back_and_loses_nothing_confirmed() {
    let (proxy, fleet) = behind_a_proxy().await;
    let mut recorder = fleet.record("jobs").await;
    let mut confirmed = fleet.insist_on("jobs", "before", 10).await;
    for cut in 1..=3 {
        let connections = proxy.connections();
        proxy.cut_all();
        // Some of these meet the dead connection.
        confirmed.extend(fleet.insist_on("jobs", &format!("cut {cut}"), 10).await);
        within_timeout("another connection", proxy.wait_for_connections(connections + 1)).await;
        fleet.back("a cut").await;
    }
    confirmed.extend(fleet.insist_on("jobs", "after", 10).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn a_question_that_was_lost_in_a_run_of_cuts_is_asked_again() {
    let (proxy, fleet) = behind_a_proxy().await;
    // Not cut, and forgetful.
    let worker = fleet.join(&test_broker_url()).await;
    let questions = Subscription::new(work_queue("questions"), 1);
    let mut questions = worker.bus.consume(questions).await.expect("subscribed");
    let requester = Requester::new(fleet.bus.clone(), reply_address("asker", "one"));
    let request = Request {
        key: key("questions"),
        envelope: text_message("?").with_correlation_id("the-call"),
        timeout: Duration::from_secs(60),
        grace: Duration::ZERO,
        on_interim: None,
        retry: true,
        abandoned: None,
    };
    let forgets = async {
        assert_eq!(ack_next(&mut questions).await, "?");
        // The broker answers in order: once this one is confirmed, the question is.
        fleet.insist("questions", "after").await;
        assert_eq!(ack_next(&mut questions).await, "after");
        for _ in 0..3 {
            let connections = proxy.connections();
            proxy.cut_all();
            within_timeout("another connection", proxy.wait_for_connections(connections + 1)).await;
            fleet.back("a cut").await;
        }
        assert_eq!(requester.stats().retries(), 0);
        let again = next_delivery(&mut questions).await;
        let question = again.envelope().clone();
        again.settle(Settlement::Ack).await.expect("acked");
        let to = question.reply_to.clone().expect("a reply-to");
        let answer = Publication::mandatory(to, text_message("!").with_correlation_id("the-call"));
        worker.bus.publish(answer).await.expect("published");
        question
    };
    let (answer, question) = tokio::join!(requester.request(request), forgets);
    answer.expect("an answer");
    assert_eq!((question.attempt, requester.stats().retries()), (2, 1));
}

/// The client library forgets an operation that begins at the wrong moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_as_the_connection_ends_does_not_wait_for_its_time_out() {
    let (proxy, fleet) = behind_a_proxy().await;
    let mut recorder = fleet.record("jobs").await;
    for cut in 0..30 {
        let text = format!("cut {cut}");
        let confirmed = timeout(BACK_WITHIN, async {
            proxy.cut_all();
            while fleet.say("jobs", &text, Duration::from_secs(60)).await.is_err() {}
        });
        assert!(confirmed.await.is_ok(), "{text}: not confirmed in time");
        let received = recorder.receives(&text).await;
        assert!(received < BACK_WITHIN, "{text}: received after {received:?}");
    }
}

#[tokio::test]
async fn a_publish_without_a_connection_fails_in_time_and_says_why() {
    let (proxy, fleet) = behind_a_proxy().await;
    let mut recorder = fleet.record("jobs").await;
    proxy.refuse();
    proxy.cut_all();
    fleet.interrupted().await;
    let began = Instant::now();
    let reason = reason_not_sent(fleet.say("jobs", "lost", SHORT).await);
    assert!(began.elapsed() < SHORT * 2);
    assert!(reason.contains("refused"), "{reason}");
    proxy.accept();
    fleet.back("the broker is reached again").await;
    fleet.insist("jobs", "after").await;
    recorder.receives("after").await;
}

#[tokio::test]
async fn a_publish_waits_for_the_connection_within_its_time_out() {
    let (proxy, fleet) = behind_a_proxy().await;
    let mut recorder = fleet.record("jobs").await;
    proxy.refuse();
    proxy.cut_all();
    fleet.interrupted().await;
    let publish = fleet.say("jobs", "patient", Duration::from_secs(10));
    let accept = async {
        // The publish has begun to wait.
        tokio::task::yield_now().await;
        proxy.accept();
    };
    let (published, ()) = tokio::join!(publish, accept);
    published.expect("sent over the new connection");
    recorder.receives("patient").await;
}

#[tokio::test]
async fn half_a_frame_to_either_side_is_survived() {
    let (proxy, fleet) = behind_a_proxy().await;
    let mut recorder = fleet.record("jobs").await;
    let mut confirmed = fleet.insist_on("jobs", "before", 3).await;
    for side in [Direction::ToBroker, Direction::ToClient] {
        let connections = proxy.connections();
        proxy.truncate_next_chunk(side);
        match fleet.say("jobs", "halved", SHORT * 5).await {
            // A half confirm leaves it open; half a message can be sent again or left open.
            Ok(()) => confirmed.push("halved".to_owned()),
            Err(PublishError::Unconfirmed { .. } | PublishError::Disconnected { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        within_timeout("another connection", proxy.wait_for_connections(connections + 1)).await;
        fleet.back("half a frame").await;
    }
    confirmed.extend(fleet.insist_on("jobs", "after", 3).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn while_the_network_is_silent_a_publish_ends_by_its_time_out() {
    let (proxy, fleet) = behind_a_proxy().await;
    let mut recorder = fleet.record("jobs").await;
    let mut confirmed = fleet.insist_on("jobs", "before", 3).await;
    proxy.stall();
    let silent = fleet.say("jobs", "silent", SHORT).await;
    assert!(matches!(silent, Err(PublishError::Unconfirmed { .. })), "{silent:?}");
    proxy.resume();
    // It went out after all, which is what `Unconfirmed` leaves open.
    confirmed.push("silent".to_owned());
    confirmed.extend(fleet.insist_on("jobs", "after", 3).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn a_silent_connection_is_given_up_after_two_heartbeats() {
    let proxy = FaultProxy::start(&test_broker_url()).await;
    let fleet = Fleet::connect(&format!("{}?heartbeat=1", proxy.url())).await;
    let mut recorder = fleet.record("jobs").await;
    let mut confirmed = fleet.insist_on("jobs", "before", 3).await;
    proxy.stall();
    fleet.interrupted().await;
    proxy.cut_all();
    proxy.resume();
    fleet.back("the silence").await;
    confirmed.extend(fleet.insist_on("jobs", "after", 3).await);
    recorder.received(&confirmed).await;
}

#[tokio::test]
async fn a_slow_network_is_no_fault() {
    let (proxy, fleet) = behind_a_proxy().await;
    let mut recorder = fleet.record("jobs").await;
    proxy.delay(Duration::from_millis(50));
    fleet.say("jobs", "slow", SHORT * 5).await.expect("confirmed");
    recorder.receives("slow").await;
    assert_eq!(proxy.connections(), 1);
}

/// A worker looks at its deliveries and at other things in turn, and drops the wait each time.
#[tokio::test]
async fn a_consumer_comes_back_though_nobody_waits_for_long() {
    let (proxy, fleet) = behind_a_proxy().await;
    let subscription = Subscription::new(work_queue("jobs"), 1);
    let mut consumer = fleet.bus.consume(subscription).await.expect("subscribed");
    proxy.cut_all();
    fleet.insist("jobs", "after").await;
    let delivery = timeout(BACK_WITHIN, async {
        loop {
            if let Ok(delivery) = timeout(Duration::from_millis(1), consumer.next()).await {
                break delivery;
            }
        }
    });
    let delivery = delivery.await.expect("in time").expect("the consumer is alive");
    assert_eq!(rockbot_testkit::fixture::text_of(&delivery), "after");
}

#[tokio::test]
async fn a_message_taken_before_the_cut_comes_again_and_says_so() {
    let (proxy, fleet) = behind_a_proxy().await;
    let subscription = Subscription::new(work_queue("jobs"), 1);
    let mut consumer = fleet.bus.consume(subscription).await.expect("subscribed");
    fleet.insist("jobs", "held").await;
    let held = within_timeout("a delivery", consumer.next()).await.expect("alive");
    proxy.cut_all();
    let again = within_timeout("the delivery again", consumer.next()).await.expect("alive");
    assert!(again.is_redelivered());
    held.settle(rockbot_bus::Settlement::Ack).await.expect_err("its channel is gone");
    again.settle(rockbot_bus::Settlement::Ack).await.expect("settled");
    fleet.insist("jobs", "next").await;
    assert_eq!(ack_next(&mut consumer).await, "next");
}

#[tokio::test]
async fn closing_while_disconnected_ends_consumers_and_publishers_at_once() {
    let (proxy, fleet) = behind_a_proxy().await;
    let subscription = Subscription::new(work_queue("jobs"), 1);
    let mut consumer = fleet.bus.consume(subscription).await.expect("subscribed");
    proxy.refuse();
    proxy.cut_all();
    fleet.interrupted().await;
    let publication = rockbot_bus::Publication::mandatory(key("jobs"), text_message("never"));
    let (published, next, ()) = timeout(SHORT, async {
        tokio::join!(fleet.bus.publish(publication), consumer.next(), fleet.bus.close())
    })
    .await
    .expect("all end");
    assert!(matches!(published, Err(PublishError::Closed)), "{published:?}");
    assert!(next.is_none());
}
