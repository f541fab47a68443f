//! An HTTP server with fixed replies, and calls of `web_browse` to it.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use rockbot_contracts::{AgentName, SessionId};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolProvider, ToolResult};
use rockbot_web::{RobotsMode, WebOptions, WebProvider, WebSection};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A reply: everything that is sent for a request.
pub(crate) type Reply = Vec<u8>;

/// Returns a reply with status 200.
pub(crate) fn ok(content_type: &str, body: impl AsRef<[u8]>) -> Reply {
    reply(200, &[("Content-Type", content_type)], body)
}

pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let mut head =
        format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A server that ends with this value.
pub(crate) struct Server {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Serves these paths. Others are not found.
    pub(crate) async fn start(
        replies: impl IntoIterator<Item = (impl Into<String>, Reply)>,
    ) -> Self {
        let replies = replies.into_iter().map(|(path, reply)| (path.into(), reply));
        let replies: Arc<BTreeMap<String, Reply>> = Arc::new(replies.collect());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let seen = requests.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, replies.clone(), seen.clone()));
            }
        });
        Self { address, requests, _tasks: tasks }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// Returns a section that permits this server, and no robots.txt.
    pub(crate) fn section(&self) -> WebSection {
        let port = self.address.rsplit(':').next().unwrap().parse().unwrap();
        WebSection {
            ports: vec![port],
            allow_private: vec!["127.0.0.0/8".to_owned()],
            robots: RobotsMode::Ignore,
            ..WebSection::default()
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    replies: Arc<BTreeMap<String, Reply>>,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 16 * 1024 {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    requests.lock().push(head);
    let missing = reply(404, &[], "");
    let reply = replies.get(&path).unwrap_or(&missing);
    // The client may have refused the rest.
    let _ = stream.write_all(reply).await;
    let _ = stream.shutdown().await;
}

/// Calls `web_browse`.
pub(crate) async fn browse(section: &WebSection, url: &str) -> Result<ToolResult, ToolFailure> {
    browse_with(section, WebOptions::default(), url).await
}

pub(crate) async fn browse_with(
    section: &WebSection,
    options: WebOptions,
    url: &str,
) -> Result<ToolResult, ToolFailure> {
    call(&tool(section, options), json!({"url": url})).await
}

pub(crate) fn tool(section: &WebSection, options: WebOptions) -> Arc<dyn Tool> {
    assert!(section.validate(|_| None).is_empty());
    WebProvider::new(section, options).unwrap().get("web_browse").unwrap()
}

pub(crate) fn context() -> ToolContext {
    let (session, agent) = (SessionId::new("abc").unwrap(), AgentName::new("tester").unwrap());
    ToolContext::new("web_browse", session, agent)
}

pub(crate) async fn call(
    tool: &Arc<dyn Tool>,
    arguments: serde_json::Value,
) -> Result<ToolResult, ToolFailure> {
    tool.call(arguments, &context()).await
}

/// Returns the text between the marks of a successful result.
pub(crate) fn page_text(result: &ToolResult) -> String {
    assert!(!result.is_error, "{result:?}");
    let text = result.to_text();
    let (_, after) = text.split_once("\n<page ").unwrap();
    let (_, framed) = after.split_once(">\n").unwrap();
    framed.rsplit_once("\n</page ").unwrap().0.to_owned()
}
