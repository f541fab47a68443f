//! The admin port of a tool handler under half-sent requests.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use crate::{fleet::Fleet, http};

/// More clients than the port has connections.
const CLIENTS: usize = 300;
/// Time in which a probe has its response on a busy machine: three times the limit of the health check that the images
/// and the chart use, because one late probe restarts no process.
const PROBED_WITHIN: Duration = Duration::from_secs(9);
const PROBES: usize = 5;

/// Starts clients that send half a request each, and again as soon as the port closes their connection. Returns when
/// each has sent one.
async fn start_clients(admin: &str) -> JoinSet<()> {
    let (connected, mut connections) = watch::channel(0);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (admin, connected) = (admin.to_owned(), connected.clone());
        clients.spawn(async move {
            loop {
                let mut stream = TcpStream::connect(&admin).await.expect("connected");
                // The port may have closed the connection already.
                let _ = stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: ").await;
                connected.send_modify(|count| *count += 1);
                let _ = stream.read(&mut [0]).await;
            }
        });
    }
    connections.wait_for(|count| *count >= CLIENTS).await.expect("the clients run");
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_requests_do_not_block_probes() {
    let fleet = Fleet::new();
    let mut handler =
        fleet.handler_with("handler-1", &[("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0")]).await;
    let admin = handler.admin_address().await;
    assert_eq!(http::request(&admin, "/readyz").await.0, 200);
    let clients = start_clients(&admin).await;
    for path in ["/readyz", "/healthz", "/metrics"] {
        for _ in 0..PROBES {
            let probed = timeout(PROBED_WITHIN, http::request(&admin, path)).await;
            let (status, _) = probed.expect("a response in time");
            assert_eq!(status, 200, "{path}");
        }
    }
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
    drop(clients);
}
