//! Many calls of sites that do not reply.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rockbot_tools::{Tool, ToolProvider};
use rockbot_web::{RobotsMode, WebProvider, WebSection};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};

use crate::server::{call, ok, page_text};

const FOUND: &str = r#"{"web":{"results":[{"title":"Found","url":"https://found.example/"}]}}"#;
/// Time for what takes milliseconds.
const LONG: Duration = Duration::from_secs(20);

/// A server at all addresses of the loopback network, each of which counts as a host. It does not reply
/// at `/slow`.
struct Sites {
    port: u16,
    /// Hosts of requests for `/slow`.
    slow: mpsc::Receiver<String>,
    _tasks: JoinSet<()>,
}

impl Sites {
    async fn start() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, slow) = mpsc::channel(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, sender.clone()));
            }
        });
        Self { port, slow, _tasks: tasks }
    }

    fn tools(&self) -> WebProvider {
        let search = json!({"brave": {"api_key": "token", "base_url": self.url(1, "")}});
        let section = WebSection {
            ports: vec![self.port],
            allow_private: vec!["127.0.0.0/8".to_owned()],
            robots: RobotsMode::Ignore,
            search: serde_json::from_value(search).unwrap(),
            ..WebSection::default()
        };
        assert!(section.validate(|_| None).is_empty());
        WebProvider::from_section(&section, |_| None, None).unwrap()
    }

    fn url(&self, host: u8, path: &str) -> String {
        format!("http://127.0.0.{host}:{}{path}", self.port)
    }

    /// Waits for requests for `/slow`. Returns their number by host.
    async fn requested(&mut self, count: usize) -> BTreeMap<String, usize> {
        let mut by_host = BTreeMap::new();
        for _ in 0..count {
            let host = tokio::time::timeout(LONG, self.slow.recv()).await.unwrap().unwrap();
            *by_host.entry(host).or_default() += 1;
        }
        by_host
    }
}

async fn serve(mut stream: TcpStream, slow: mpsc::Sender<String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 16 * 1024 {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    if head.starts_with("GET /slow ") {
        let host = head.lines().find(|line| line.to_ascii_lowercase().starts_with("host:"));
        slow.send(host.unwrap().to_owned()).await.unwrap();
        // Until the client leaves.
        let _ = stream.read_u8().await;
        return;
    }
    let reply = if head.starts_with("GET /res/") {
        ok("application/json", FOUND)
    } else {
        ok("text/plain", "the page")
    };
    let _ = stream.write_all(&reply).await;
}

fn browse_all(sites: &Sites, browse: &Arc<dyn Tool>, hosts: u8, calls: u8) -> JoinSet<()> {
    let mut running = JoinSet::new();
    for number in 0..hosts * calls {
        let (browse, url) = (browse.clone(), sites.url(1 + number % hosts, "/slow"));
        running.spawn(async move {
            let _ = call(&browse, json!({"url": url})).await;
        });
    }
    running
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn slow_sites_neither_delay_search_nor_keep_permits() {
    let mut sites = Sites::start().await;
    let tools = sites.tools();
    let (browse, search) = (tools.get("web_browse").unwrap(), tools.get("web_search").unwrap());
    let fast = |host| {
        let arguments = json!({"url": sites.url(host, "/fast")});
        let browse = browse.clone();
        async move { page_text(&call(&browse, arguments).await.unwrap()) }
    };
    let (fast_of_other_host, fast_of_first_host) = (fast(200), fast(1));

    // All requests of one host.
    let mut running = browse_all(&sites, &browse, 1, 20);
    assert_eq!(sites.requested(2).await.len(), 1);
    assert_eq!(tokio::time::timeout(LONG, fast_of_other_host).await.unwrap(), "the page");
    running.shutdown().await;

    // All requests in all.
    let mut running = browse_all(&sites, &browse, 10, 3);
    let by_host = sites.requested(16).await;
    assert!(by_host.len() >= 8 && by_host.values().all(|count| *count <= 2), "{by_host:?}");
    assert!(sites.slow.try_recv().is_err());
    let found = tokio::time::timeout(LONG, call(&search, json!({"query": "found"}))).await;
    let found = found.unwrap().unwrap();
    assert!(found.to_text().contains("[Found](https://found.example/)"), "{found:?}");
    running.shutdown().await;
    assert_eq!(tokio::time::timeout(LONG, fast_of_first_host).await.unwrap(), "the page");
}
