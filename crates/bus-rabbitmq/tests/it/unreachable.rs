//! Brokers that can't be reached from the start.

use rockbot_bus::{Bus, ConsumeError, Publication, PublishError};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_testkit::{
    FaultProxy,
    broker::free_port,
    fixture::{fresh_namespace, key, test_broker_url, text_message, within_timeout},
};
use tokio::time::{Instant, timeout};

use crate::test_process::{BACK_WITHIN, SHORT, start};

/// Returns the errors of connecting and of publishing for a broker at `url`.
async fn reasons(url: &str) -> [String; 2] {
    let bus = start(url, &fresh_namespace());
    let connected = match bus.connected(SHORT * 3).await {
        Err(ConsumeError::Disconnected { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let start = Instant::now();
    let publication = Publication::mandatory(key("jobs"), text_message("never")).within(SHORT);
    let published = match bus.publish(publication).await {
        Err(PublishError::Disconnected { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(start.elapsed() < SHORT * 2);
    assert!(!bus.is_ready());
    timeout(SHORT, bus.close()).await.expect("closed in time");
    [connected, published]
}

#[tokio::test]
async fn unresolvable_host_name_is_reported() {
    for reason in reasons("amqp://guest:guest@no-such-host.invalid:5672").await {
        assert!(reason.contains("does not resolve"), "{reason}");
    }
}

#[tokio::test]
async fn refused_connection_is_reported() {
    let port = free_port().expect("a port");
    for reason in reasons(&format!("amqp://guest:guest@127.0.0.1:{port}")).await {
        assert!(reason.contains("refused"), "{reason}");
    }
}

/// The client library waits for such a peer in a thread that can't be cancelled.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn silent_peer_blocks_one_thread_until_it_responds() {
    let proxy = FaultProxy::start(&test_broker_url()).await;
    proxy.stall();
    let mut config = RabbitConfig::new(proxy.url(), "fault test").with_namespace(fresh_namespace());
    config.connect_timeout = SHORT;
    let bus = RabbitBus::start(&config).expect("a usable URL");
    within_timeout("several attempts", proxy.wait_for_connections(4)).await;
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let names = threads.flat_map(|thread| std::fs::read_to_string(thread.path().join("comm")));
    assert_eq!(names.filter(|name| name.starts_with("lapin-io")).count(), 1);
    proxy.resume();
    bus.connected(BACK_WITHIN).await.expect("connected by a retry");
}
