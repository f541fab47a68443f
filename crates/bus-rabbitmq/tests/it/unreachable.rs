//! Brokers that can't be reached from the start.

use std::sync::atomic::{AtomicUsize, Ordering};

use rockbot_bus::{Bus, ConsumeError, Publication, PublishError};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_testkit::{
    FaultProxy,
    broker::free_port,
    fixture::{fresh_namespace, key, test_broker_url, text_message, wait_until, within_timeout},
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

/// Returns the number of threads of the client library.
#[cfg(target_os = "linux")]
fn library_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let names = threads.flat_map(|thread| std::fs::read_to_string(thread.path().join("comm")));
    names.filter(|name| name.starts_with("lapin-io")).count()
}

/// A connection attempt that was given up leaves a thread of the client library behind.
#[cfg(target_os = "linux")]
#[test]
fn thread_of_an_abandoned_attempt_ends_without_panic() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some_and(|name| name.starts_with("lapin-io")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        hook(panic);
    }));
    // A peer that accepts connections and never responds.
    let peer = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("amqp://guest:guest@{}/%2f", peer.local_addr().expect("an address"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bus = runtime.block_on(async { start(&url, &fresh_namespace()) });
    let (socket, _) = peer.accept().expect("an attempt to connect");
    drop((bus, runtime));
    assert_eq!(library_threads(), 1);
    drop((socket, peer));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(wait_until("the end of the thread", || library_threads() == 0));
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
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
    assert_eq!(library_threads(), 1);
    proxy.resume();
    bus.connected(BACK_WITHIN).await.expect("connected by a retry");
}
