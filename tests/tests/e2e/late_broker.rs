//! Handlers that start before their broker.

use std::time::Duration;

use rockbot_testkit::{
    documented_output::{assert_output, sample},
    fixture::test_broker_url,
};
use rustix::process::Signal;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    fleet::Fleet,
    http::{request, wait_for_readiness},
    process::Running,
};

/// A proxy of the test broker, initially without a listener.
struct DelayedProxy {
    broker: String,
    port: u16,
    url: String,
}

impl DelayedProxy {
    /// Reserves a port without listening.
    async fn reserve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let url = test_broker_url();
        let (credentials, rest) = url.rsplit_once('@').expect("amqp://user:password@host");
        let (broker, vhost) = rest.split_once('/').unwrap_or((rest, "%2f"));
        let url = format!("{credentials}@127.0.0.1:{port}/{vhost}");
        Self { broker: broker.to_owned(), port, url }
    }

    /// Forwards connections until the returned tasks are dropped.
    async fn open(&self) -> JoinSet<()> {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.expect("still free");
        let broker = self.broker.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = TcpStream::connect(&broker).await.expect("the test broker");
                connections
                    .spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        });
        tasks
    }
}

fn handler(fleet: &Fleet, proxy: &DelayedProxy) -> Running {
    let mut command = fleet.program("rockbot-tool-handler");
    command.env("ROCKBOT_BUS__URL", &proxy.url);
    Running::start(command)
}

#[tokio::test]
async fn handler_waits_for_broker_then_serves() {
    let fleet = Fleet::new();
    let proxy = DelayedProxy::reserve().await;
    let mut handler = handler(&fleet, &proxy);
    handler.expect_log("broker connection failed; retrying").await;
    let _open = proxy.open().await;
    handler.expect_log("ready").await;
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
}

#[tokio::test]
async fn readiness_follows_broker_connection() {
    let fleet = Fleet::new();
    let proxy = DelayedProxy::reserve().await;
    let mut command = fleet.program("rockbot-tool-handler");
    command.env("ROCKBOT_BUS__URL", &proxy.url).env("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0");
    let mut handler = Running::start(command);
    let admin = handler.admin_address().await;
    let (status, body) = request(&admin, "/readyz").await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains(r#""stage":"starting""#), "{body}");
    assert_eq!(request(&admin, "/healthz").await.0, 200, "not alive");
    let open = proxy.open().await;
    let body = wait_for_readiness(&admin, 200).await;
    assert!(body.contains(r#""needs":{"bus":"ok","store":"ok"}"#), "{body}");
    drop(open);
    let body = wait_for_readiness(&admin, 503).await;
    assert_output(&sample("docs/configuration.md", r#"{"ready""#), &body);
    assert_eq!(request(&admin, "/healthz").await.0, 200, "not alive without the broker");
    let _open = proxy.open().await;
    wait_for_readiness(&admin, 200).await;
}

#[tokio::test]
async fn handler_waiting_for_broker_stops_immediately() {
    let fleet = Fleet::new();
    let proxy = DelayedProxy::reserve().await;
    let mut handler = handler(&fleet, &proxy);
    handler.expect_log("broker connection failed; retrying").await;
    handler.send(Signal::TERM);
    handler.wait_within(Duration::from_secs(5)).await.assert_code(0);
}
