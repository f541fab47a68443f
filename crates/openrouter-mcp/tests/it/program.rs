//! The program as a process of its own, and clients of it.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{CallToolRequestParams, CallToolResult, JsonObject},
    service::RunningService,
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use rockbot_testkit::fixture::within_timeout;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::watch,
};

use crate::scripted::KEY;

/// The ways to reach the tools.
pub(crate) const TRANSPORTS: [&str; 2] = ["http", "stdio"];

/// The program, ready to be started with nothing but these settings and the key.
pub(crate) fn program(settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockbot-openrouter-mcp"));
    command
        .env_clear()
        .env("ROCKBOT_LOG__FORMAT", "text")
        .env("OPENROUTER_API_KEY", KEY)
        .env("ROCKBOT_SERVER__ADDRESS", "127.0.0.1:0")
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// What a process has logged so far.
#[derive(Clone)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    news: watch::Receiver<usize>,
}

impl Log {
    fn of(stderr: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (count, news) = watch::channel(0);
        let written = Arc::clone(&lines);
        tokio::spawn(async move {
            let mut reader = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = reader.next_line().await {
                written.lock().unwrap().push(line);
                count.send_modify(|count| *count += 1);
            }
        });
        Self { lines, news }
    }

    /// The first line that holds `text`, as soon as it is there.
    pub(crate) async fn line_with(&self, text: &str) -> String {
        let mut news = self.news.clone();
        let find = || self.lines.lock().unwrap().iter().find(|line| line.contains(text)).cloned();
        let found = news.wait_for(|_| find().is_some());
        within_timeout(text, found)
            .await
            .unwrap_or_else(|_| panic!("ended without {text}: {}", self.text()));
        find().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}

/// The program over HTTP.
pub(crate) struct HttpProgram {
    pub(crate) child: Child,
    pub(crate) log: Log,
    /// Without a path.
    pub(crate) url: String,
}

impl HttpProgram {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let mut child = program(settings).spawn().unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        let ready = log.line_with("ready at ").await;
        let (_, url) = ready.split_once("ready at ").unwrap();
        let url = url.trim_end_matches("/mcp").to_owned();
        Self { child, log, url }
    }

    pub(crate) fn mcp(&self) -> String {
        format!("{}/mcp", self.url)
    }
}

/// A client of a program of its own.
pub(crate) struct Client {
    pub(crate) session: RunningService<RoleClient, ()>,
    pub(crate) log: Log,
    pub(crate) pid: u32,
    pub(crate) http: Option<HttpProgram>,
}

impl Client {
    pub(crate) async fn start(transport: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_as(transport, settings, ClientLifecycleMode::Initialize).await
    }

    /// A client of another era of the protocol.
    pub(crate) async fn start_as(
        transport: &str,
        settings: &[(&str, &str)],
        era: ClientLifecycleMode,
    ) -> Self {
        let mut settings = settings.to_vec();
        settings.push(("ROCKBOT_SERVER__TRANSPORT", transport));
        if transport == "stdio" {
            let (process, stderr) = TokioChildProcess::builder(program(&settings))
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let log = Log::of(stderr.unwrap());
            let pid = process.id().unwrap();
            let session =
                within_timeout("a session", ().serve_with_lifecycle(process, era)).await.unwrap();
            return Self { session, log, pid, http: None };
        }
        let program = HttpProgram::start(&settings).await;
        rockbot_service::tls::install_tls_provider();
        let transport = StreamableHttpClientTransport::from_uri(program.mcp());
        let session =
            within_timeout("a session", ().serve_with_lifecycle(transport, era)).await.unwrap();
        let (log, pid) = (program.log.clone(), program.child.id().unwrap());
        Self { session, log, pid, http: Some(program) }
    }

    /// A client of a program that asks `openrouter`.
    pub(crate) async fn of(transport: &str, openrouter: &str) -> Self {
        Self::start(transport, &[("ROCKBOT_OPENROUTER__BASE_URL", openrouter)]).await
    }

    /// The text of a tool's answer, and whether it is an error.
    pub(crate) async fn call(&self, tool: &'static str, arguments: Value) -> (bool, String) {
        let called = self.session.call_tool(request(tool, arguments));
        told(&within_timeout("an answer", called).await.unwrap())
    }
}

pub(crate) fn request(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

pub(crate) fn told(result: &CallToolResult) -> (bool, String) {
    let [content] = result.content.as_slice() else { panic!("{result:?}") };
    (result.is_error == Some(true), content.as_text().unwrap().text.clone())
}

/// Asks a process to stop.
pub(crate) async fn terminate(pid: u32) {
    let status = Command::new("kill").args(["-s", "TERM", &pid.to_string()]).status().await;
    assert!(status.unwrap().success());
}
