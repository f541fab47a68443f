//! What a publisher is told.

use std::time::Duration;

use rockbot_bus::{Assurance, Delivery, Publication, PublishError, Settlement};
use rockbot_contracts::{
    ContentTrust, Envelope, MessageId, QueueSpec, RoutingKey, TraceContext, envelope::TimeBudget,
    json::Limits,
};
use tokio::task::JoinSet;

use crate::bed::{Bed, address, exclusive, key, message, next, soon, take, take_many, work};

/// `publish` returns only when the bus has the message.
pub async fn a_confirmed_message_reaches_its_consumer(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 10).await;
    bed.say(&key("jobs"), "hello").await.expect("taken");
    assert_eq!(take(&mut consumer).await, "hello");
}

/// A request that nobody is bound for fails at once.
pub async fn an_unroutable_message_is_an_error(bed: Bed) {
    let error = bed.say(&key("nobody.here"), "hello").await.expect_err("nobody consumes it");
    assert!(matches!(error, PublishError::Unroutable { .. }), "{error}");
}

/// Announcements are for whoever listens.
pub async fn an_unroutable_announcement_is_no_error(bed: Bed) {
    let mut publication = Publication::announcement(key("nobody.here"), message("hello"));
    soon("publish", bed.here.publish(publication.clone())).await.expect("sent");
    publication.assurance = Assurance::Confirmed;
    soon("publish", bed.here.publish(publication)).await.expect("confirmed");
}

/// With many publishing at once to served and unserved keys, nobody is told another's fate.
pub async fn each_publisher_learns_the_fate_of_its_own_message(bed: Bed) {
    own_fates(bed, work("served"), key("served"), key("unserved")).await;
}

/// The same of answers, which an adapter may send on one way whoever they are for.
pub async fn each_answer_has_its_own_fate(bed: Bed) {
    let (here, gone) = (address("asker", "here"), address("asker", "gone"));
    own_fates(bed, here.queue(), here.reply_to(), gone.reply_to()).await;
}

async fn own_fates(bed: Bed, queue: QueueSpec, served: RoutingKey, unserved: RoutingKey) {
    let mut consumer = bed.consume(queue, 1000).await;
    let mut publishers = JoinSet::new();
    for number in 0..400 {
        let is_served = number % 2 == 0;
        let to = if is_served { served.clone() } else { unserved.clone() };
        let bed = bed.clone();
        publishers.spawn(async move { (is_served, bed.say(&to, "hello").await) });
    }
    while let Some(told) = publishers.join_next().await {
        let (is_served, result) = told.expect("no panic");
        match result {
            Ok(()) => assert!(is_served, "an unserved message was called delivered"),
            Err(PublishError::Unroutable { .. }) => {
                assert!(!is_served, "a delivered message was called unroutable");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(take_many(&mut consumer, 200).await.len(), 200);
}

/// A work queue says no instead of losing what it has.
pub async fn a_full_work_queue_refuses(bed: Bed) {
    let queue = work("small").with_max_length(5);
    let mut consumer = bed.consume(queue, 1).await;
    let mut taken = 0;
    // The bound may be passed by a few while the broker counts, and one is prefetched.
    let error = loop {
        match bed.say(&key("small"), &taken.to_string()).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 200, "the queue has no bound");
    };
    assert!(matches!(error, PublishError::Refused { .. }), "{error}");
    let texts = take_many(&mut consumer, taken).await;
    let expected: Vec<_> = (0..taken).map(|number| number.to_string()).collect();
    assert_eq!(texts, expected, "what was taken is delivered");
}

/// One process's announcements must not fill the broker when that process is slow.
pub async fn a_full_announcement_queue_drops_the_oldest(bed: Bed) {
    let queue = exclusive("slow", "news").with_max_length(3);
    let mut consumer = bed.consume(queue, 1).await;
    bed.say(&key("news"), "held").await.expect("taken");
    let held = next(&mut consumer).await;
    bed.say_all(&key("news"), (0..10).map(|number| number.to_string())).await;
    held.settle(Settlement::Ack).await.expect("acked");
    assert_eq!(take_many(&mut consumer, 3).await, ["7", "8", "9"]);
}

/// The limit holds at the sender, with both numbers in the error.
pub async fn an_oversized_body_is_refused_before_it_leaves(bed: Bed) {
    let _consumer = bed.consume(work("jobs"), 1).await;
    let limit = Limits::default().bytes;
    let error = bed.say(&key("jobs"), &"x".repeat(limit)).await.expect_err("too large");
    match error {
        PublishError::TooLarge { bytes, limit: told } => assert!(bytes > told && told == limit),
        error => panic!("{error}"),
    }
    let most = "x".repeat(limit - 2);
    bed.say(&key("jobs"), &most).await.expect("exactly the limit fits");
}

/// Nothing of an envelope is lost or changed on the way.
pub async fn every_part_of_an_envelope_survives(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 10).await;
    let mut sent = Envelope::raw("Everything", b"{\"a\":[1,null,\"\\u00fc\"]}".to_vec())
        .correlated("call-1")
        .reply_to(key("tool.result.agent.one"))
        .from_source("tester")
        .trusted_as(ContentTrust::ToolOutput);
    sent.message_id = MessageId::new("message-1").expect("an id");
    sent.destination = Some("somebody".into());
    sent.budget = Some(TimeBudget {
        timeout: Duration::from_millis(1500),
        deadline_unix_ms: 1_900_000_000_000,
    });
    sent.tool_provider = Some("mcp".into());
    sent.mcp_server = Some("Exact Name".into());
    sent.trace = TraceContext {
        parent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        state: Some("vendor=1".into()),
    };
    let publication = Publication::mandatory(key("jobs"), sent.clone());
    bed.here.publish(publication).await.expect("taken");
    let delivery = next(&mut consumer).await;
    assert_eq!(delivery.envelope(), &signed_like(&delivery, sent));
    assert_eq!(delivery.routing_key(), &key("jobs"));
    assert_eq!((delivery.attempt(), delivery.is_redelivered()), (1, false));

    let plain = Envelope::raw("Plain", Vec::new()).transient();
    let publication = Publication::mandatory(key("jobs"), plain.clone());
    bed.here.publish(publication).await.expect("taken");
    let delivery = next(&mut consumer).await;
    assert_eq!(delivery.envelope(), &signed_like(&delivery, plain));
}

/// What was sent, with the user that a broker adds.
fn signed_like(delivery: &Delivery, sent: Envelope) -> Envelope {
    Envelope { user_id: delivery.envelope().user_id.clone(), ..sent }
}

/// Publishing on a closed bus fails, and does not wait.
pub async fn a_closed_bus_refuses_to_publish(bed: Bed) {
    let _consumer = bed.consume(QueueSpec::work(&key("jobs")), 1).await;
    soon("close", bed.here.close()).await;
    let error = bed.say(&key("jobs"), "hello").await.expect_err("closed");
    assert!(matches!(error, PublishError::Closed), "{error}");
    assert!(!bed.here.is_ready());
}
