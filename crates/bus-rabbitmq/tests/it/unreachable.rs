//! The broker was never reached.

use rockbot_bus::{Bus, ConsumeError, Publication, PublishError};
use rockbot_testkit::{
    bed::{fresh_namespace, key, message},
    broker::free_port,
};
use tokio::time::{Instant, timeout};

use crate::fleet::{SHORT, start};

/// What both ends of the port say about a broker at `url`.
async fn reasons(url: &str) -> [String; 2] {
    let bus = start(url, &fresh_namespace());
    let connected = match bus.connected(SHORT * 3).await {
        Err(ConsumeError::Disconnected { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let began = Instant::now();
    let publication = Publication::mandatory(key("jobs"), message("never")).within(SHORT);
    let published = match bus.publish(publication).await {
        Err(PublishError::Disconnected { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(began.elapsed() < SHORT * 2);
    assert!(!bus.is_ready());
    timeout(SHORT, bus.close()).await.expect("it can be closed");
    [connected, published]
}

#[tokio::test]
async fn a_host_name_that_does_not_resolve_is_named_as_the_reason() {
    for reason in reasons("amqp://guest:guest@no-such-host.invalid:5672").await {
        assert!(reason.contains("does not resolve"), "{reason}");
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_named_as_the_reason() {
    let port = free_port().expect("a port");
    for reason in reasons(&format!("amqp://guest:guest@127.0.0.1:{port}")).await {
        assert!(reason.contains("refused"), "{reason}");
    }
}
