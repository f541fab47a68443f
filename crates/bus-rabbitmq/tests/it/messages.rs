//! Messages that AMQP can't encode.

use rockbot_bus::{Bus, Publication, PublishError};
use rockbot_testkit::fixture::{key, test_broker_url, text_message};

use crate::test_process::TestProcess;

#[tokio::test]
async fn oversized_id_or_headers_are_rejected_by_name() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let mut recorder = process.start_recorder("jobs").await;
    let mut long_id = text_message("too long");
    long_id.correlation_id = Some("x".repeat(300).into());
    let mut long_header = text_message("too long");
    long_header.source = Some("x".repeat(70_000).into());
    for (envelope, part) in
        [(long_id, "correlation_id has 300 bytes"), (long_header, "all headers has 70")]
    {
        let published = process.bus.publish(Publication::mandatory(key("jobs"), envelope)).await;
        match published {
            Err(PublishError::Unsendable { reason }) => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    process.publish_until_confirmed("jobs", "after").await;
    recorder.receives("after").await;
}
