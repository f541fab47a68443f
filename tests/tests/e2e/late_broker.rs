//! Handlers that start before their broker.

use std::time::Duration;

use rockbot_testkit::fixture::{test_broker_url, within_timeout};
use rustix::process::Signal;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{fleet::Fleet, http::ask, process::Running};

/// The test broker at another port, and what is before the port and behind it in its URL.
struct Detour {
    broker: String,
    port: u16,
    url: String,
}

impl Detour {
    /// Reserves a port without a listener.
    async fn closed() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let url = test_broker_url();
        let (credentials, rest) = url.rsplit_once('@').expect("amqp://user:password@host");
        let (broker, vhost) = rest.split_once('/').unwrap_or((rest, "%2f"));
        let url = format!("{credentials}@127.0.0.1:{port}/{vhost}");
        Self { broker: broker.to_owned(), port, url }
    }

    /// Lets everybody through from now on, until dropped.
    async fn open(&self) -> JoinSet<()> {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.expect("still free");
        let broker = self.broker.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = TcpStream::connect(&broker).await.expect("the test broker");
                passing.spawn(async move { copy_bidirectional(&mut near, &mut far).await });
            }
        });
        tasks
    }
}

fn handler(fleet: &Fleet, detour: &Detour) -> Running {
    let mut command = fleet.program("rockbot-tool-handler");
    command.env("ROCKBOT_BUS__URL", &detour.url);
    Running::start(command)
}

#[tokio::test]
async fn handler_waits_for_broker_then_serves() {
    let fleet = Fleet::new();
    let detour = Detour::closed().await;
    let mut handler = handler(&fleet, &detour);
    handler.says("broker connection failed; retrying").await;
    let _open = detour.open().await;
    handler.says("ready").await;
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
}

/// Probes until the status comes, and returns what was told with it.
async fn probed(admin: &str, expected: u16) -> String {
    let mut look = tokio::time::interval(Duration::from_millis(50));
    let told = async {
        loop {
            look.tick().await;
            match ask(admin, "/readyz").await {
                (status, told) if status == expected => return told,
                _ => {}
            }
        }
    };
    within_timeout("the readiness", told).await
}

#[tokio::test]
async fn readiness_follows_broker_connection() {
    let fleet = Fleet::new();
    let detour = Detour::closed().await;
    let mut command = fleet.program("rockbot-tool-handler");
    command.env("ROCKBOT_BUS__URL", &detour.url).env("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0");
    let mut handler = Running::start(command);
    let admin = handler.admin_address().await;
    let (status, told) = ask(&admin, "/readyz").await;
    assert_eq!(status, 503, "{told}");
    assert!(told.contains(r#""stage":"starting""#), "{told}");
    assert_eq!(ask(&admin, "/healthz").await.0, 200, "it lives");
    let open = detour.open().await;
    let told = probed(&admin, 200).await;
    assert!(told.contains(r#""needs":{"bus":"ok","store":"ok"}"#), "{told}");
    drop(open);
    let told = probed(&admin, 503).await;
    assert!(told.contains("not connected"), "{told}");
    assert_eq!(ask(&admin, "/healthz").await.0, 200, "it need not be started again");
    let _open = detour.open().await;
    probed(&admin, 200).await;
}

#[tokio::test]
async fn handler_waiting_for_broker_stops_immediately() {
    let fleet = Fleet::new();
    let detour = Detour::closed().await;
    let mut handler = handler(&fleet, &detour);
    handler.says("broker connection failed; retrying").await;
    handler.send(Signal::TERM);
    handler.ended_within(Duration::from_secs(5)).await.assert_code(0);
}
