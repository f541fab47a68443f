//! The WebSocket transport.

use futures_util::{SinkExt, StreamExt, future};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::Transport;
use rmcp::{ErrorData, RoleServer, ServiceExt};
use rockbot_mcp_bridge::transport::{FailureClass, failure_class, websocket};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use super::hostile::{HostileServer, text};
use super::{Session, assert_fails_only_its_call, call, call_within, open, server};

/// Serves connections with `serve` and returns the URL.
async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    format!("ws://{address}/mcp")
}

#[allow(clippy::result_large_err, reason = "the library defines the callback's type")]
pub(super) async fn upgrade<S>(stream: S) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let accept = |request: &Request, mut response: Response| {
        let protocol = request.headers()["sec-websocket-protocol"].clone();
        response.headers_mut().insert("sec-websocket-protocol", protocol);
        Ok::<_, ErrorResponse>(response)
    };
    accept_hdr_async(stream, accept).await.unwrap()
}

async fn hostile() -> (HostileServer, String) {
    let hostile = HostileServer::new();
    let shared = hostile.clone();
    let url = listen(move |stream| serve_hostile(shared.clone(), stream)).await;
    (hostile, url)
}

async fn serve_hostile(hostile: HostileServer, stream: TcpStream) {
    let mut socket = upgrade(stream).await;
    let (replies, mut ready) = mpsc::channel(8);
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            Some(reply) = ready.recv() => {
                // The client may be gone.
                let _ = socket.send(reply).await;
                continue;
            }
        };
        let Some(Ok(Message::Text(message))) = message else {
            if matches!(message, Some(Ok(_))) { continue } else { return }
        };
        let message: Value = serde_json::from_str(&message).unwrap();
        let id = message["id"].clone();
        match message["params"]["name"].as_str().unwrap_or_default() {
            "binary" => {
                let reply = Message::Binary(text(&id, "binary").into());
                socket.send(reply).await.unwrap();
            }
            "ping" => {
                socket.send(Message::Ping("hello".into())).await.unwrap();
                let pong = loop {
                    match socket.next().await.unwrap().unwrap() {
                        // The client may send pings, too.
                        Message::Ping(_) => {}
                        other => break other,
                    }
                };
                assert_eq!(pong, Message::Pong("hello".into()));
                socket.send(Message::text(text(&id, "pong"))).await.unwrap();
            }
            "fatal" => {
                let reply = text(&id, &"x".repeat(65 * 1024 * 1024));
                // The client does not read it to the end.
                let _ = socket.send(Message::text(reply)).await;
            }
            "cut" => {
                let frame = [0x81, 0x7e, 0x01, 0x00, b'{'];
                socket.get_mut().write_all(&frame).await.unwrap();
                return;
            }
            _ => {
                let (hostile, replies) = (hostile.clone(), replies.clone());
                tokio::spawn(async move {
                    if let Some(reply) = hostile.reply(&message).await {
                        let _ = replies.send(Message::text(reply)).await;
                    }
                });
            }
        }
    }
}

async fn session(url: &str) -> Session {
    open(within_timeout("connected", websocket::connect(&server(url))).await.unwrap())
        .await
        .unwrap()
}

/// Connects and returns the class of the failure.
async fn connect_failure(url: &str) -> FailureClass {
    let session = within_timeout(url, websocket::connect(&server(url))).await;
    session.err().expect("no session").class()
}

/// A server built with rmcp.
#[derive(Clone)]
pub(super) struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().unwrap().clone();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("echo", "returns its name", schema)]))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = ContentBlock::text(params.name.to_string());
        Ok(CallToolResult::success(vec![name]).into())
    }
}

pub(super) async fn echo<S>(stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, stream) = upgrade(stream).await.split();
    let sink = sink.with(|message| {
        future::ok::<_, tungstenite::Error>(Message::text(serde_json::to_string(&message).unwrap()))
    });
    let stream = stream.filter_map(|message| {
        let text = message.ok().and_then(|message| message.into_text().ok());
        future::ready(text.and_then(|text| serde_json::from_str(&text).ok()))
    });
    let served = Echo.serve((Box::pin(sink), Box::pin(stream))).await;
    served.unwrap().waiting().await.unwrap();
}

#[tokio::test]
async fn tools_are_listed_and_called() {
    let url = listen(echo).await;
    let session = session(&url).await;
    let tools = within_timeout("the list", session.list_all_tools()).await.unwrap();
    assert_eq!(tools[0].name, "echo");
    assert_eq!(within_timeout("the call", call(session.peer(), "echo")).await.unwrap(), "echo");
    within_timeout("the end", session.cancel()).await.unwrap();
}

#[tokio::test]
async fn bad_message_fails_only_its_call() {
    let (hostile, url) = hostile().await;
    let session = session(&url).await;
    for (tool, expected) in [
        ("garbage", "not valid JSON-RPC"),
        ("half", "not valid JSON-RPC"),
        ("huge", "exceeds 16777216 bytes"),
        ("binary", "not valid JSON-RPC"),
    ] {
        assert_fails_only_its_call(&session, &hostile, tool, expected).await;
    }
    let short = std::time::Duration::from_millis(100);
    call_within(session.peer(), "wrong-id", short).await.expect_err("no reply");
    assert_eq!(
        within_timeout("the next call", call(session.peer(), "good")).await.unwrap(),
        "good"
    );
}

#[tokio::test]
async fn ping_is_answered_with_pong() {
    let (_, url) = hostile().await;
    let session = session(&url).await;
    assert_eq!(within_timeout("the pong", call(session.peer(), "ping")).await.unwrap(), "pong");
}

#[tokio::test]
async fn oversized_or_cut_message_ends_the_session() {
    for tool in ["fatal", "cut"] {
        let (_, url) = hostile().await;
        let session = session(&url).await;
        within_timeout(tool, call(session.peer(), tool)).await.expect_err(tool);
        within_timeout("the session end", session.waiting()).await.unwrap();
    }
}

#[tokio::test]
async fn silent_server_ends_the_session() {
    let url = listen(|stream| async {
        let _socket = upgrade(stream).await;
        future::pending::<()>().await;
    });
    let mut transport = websocket::connect(&server(&url.await)).await.unwrap();
    let connected = Instant::now();
    // From here on, a timeout elapses as soon as the runtime is idle.
    tokio::time::pause();
    assert!(transport.receive().await.is_none());
    assert_eq!(connected.elapsed().as_secs(), 90);
}

#[tokio::test]
async fn closing_sends_close_frame_and_disconnects() {
    let (received, mut close_frames) = mpsc::channel(1);
    let url = listen(move |stream| {
        let received = received.clone();
        async move {
            let mut socket = upgrade(stream).await;
            while let Some(Ok(message)) = socket.next().await {
                if message.is_close() {
                    received.send(()).await.unwrap();
                }
            }
        }
    });
    let mut transport = websocket::connect(&server(&url.await)).await.unwrap();
    within_timeout("closed", transport.close()).await.unwrap();
    within_timeout("the close frame", close_frames.recv()).await.unwrap();
    assert!(transport.receive().await.is_none());
}

#[tokio::test]
async fn failed_upgrade_keeps_its_class() {
    async fn respond(mut stream: TcpStream, response: &'static str) {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        let _ = stream.write_all(response.as_bytes()).await;
    }
    for (text, expected) in [
        ("HTTP/1.1 401 No\r\nwww-authenticate: Bearer\r\n\r\n", FailureClass::Unauthorized),
        ("HTTP/1.1 403 No\r\n\r\n", FailureClass::Unauthorized),
        ("HTTP/1.1 404 No\r\n\r\n", FailureClass::Gone),
        ("HTTP/1.1 302 No\r\nlocation: ws://169.254.169.254/\r\n\r\n", FailureClass::Redirect),
        ("HTTP/1.1 200 OK\r\n\r\nhello", FailureClass::Malformed),
        ("HTTP/1.1 500 No\r\n\r\n", FailureClass::Failed { status: 500 }),
        ("SSH-2.0-OpenSSH_9.2\r\n", FailureClass::Malformed),
        ("", FailureClass::Other),
    ] {
        let url = listen(move |stream| respond(stream, text)).await;
        assert_eq!(connect_failure(&url).await, expected, "{text}");
    }
    let without_subprotocol = listen(|stream| async {
        let _ = tokio_tungstenite::accept_async(stream).await;
    });
    assert_eq!(connect_failure(&without_subprotocol.await).await, FailureClass::Malformed);
}

#[tokio::test]
async fn unreadable_handshake_is_malformed() {
    let url = listen(|stream| async {
        let mut socket = upgrade(stream).await;
        while let Some(Ok(Message::Text(_))) = socket.next().await {
            let garbage = Message::text(r#"{"jsonrpc":"2.0","id":0,"result":nonsense"#);
            socket.send(garbage).await.unwrap();
        }
    });
    let transport = websocket::connect(&server(&url.await)).await.unwrap();
    let error = open(transport).await.expect_err("garbage");
    assert_eq!(failure_class(&error), FailureClass::Malformed, "{error:?}");
}

#[tokio::test]
async fn configured_headers_are_sent_except_handshake_headers() {
    let (received, mut requests) = mpsc::channel(1);
    let url = listen(move |stream| {
        let received = received.clone();
        async move {
            let mut request = [0; 4096];
            let mut stream = stream;
            let size = stream.read(&mut request).await.unwrap();
            received.send(String::from_utf8_lossy(&request[..size]).into_owned()).await.unwrap();
        }
    })
    .await;
    let mut server = server(&url);
    server.headers.insert("X-Key".into(), "hush".to_owned().into());
    within_timeout("the refusal", websocket::connect(&server)).await.err().expect("no upgrade");
    let request = within_timeout("the request", requests.recv()).await.unwrap();
    assert!(request.contains("x-key: hush\r\n"), "{request}");
    server.headers.insert("Sec-WebSocket-Key".into(), "mine".to_owned().into());
    let error =
        within_timeout("the refusal", websocket::connect(&server)).await.err().expect("refused");
    assert_eq!(error.class(), FailureClass::Refused);
}
