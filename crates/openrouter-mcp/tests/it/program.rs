//! The program as a child process, and its clients.

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

/// Transports of the tools.
pub(crate) const TRANSPORTS: [&str; 2] = ["http", "stdio"];

/// Returns a command that starts the program with only these settings and the key.
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

/// The log of a process so far.
#[derive(Clone)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    line_count: watch::Receiver<usize>,
}

impl Log {
    fn new(stderr: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (count, line_count) = watch::channel(0);
        let written = Arc::clone(&lines);
        tokio::spawn(async move {
            let mut reader = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = reader.next_line().await {
                written.lock().unwrap().push(line);
                count.send_modify(|count| *count += 1);
            }
        });
        Self { lines, line_count }
    }

    /// Waits for a line that contains `text`, and returns the first.
    pub(crate) async fn line_with(&self, text: &str) -> String {
        let mut line_count = self.line_count.clone();
        let find = || self.lines.lock().unwrap().iter().find(|line| line.contains(text)).cloned();
        let found = line_count.wait_for(|_| find().is_some());
        within_timeout(text, found)
            .await
            .unwrap_or_else(|_| panic!("exited without {text}: {}", self.text()));
        find().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}

/// A running program that serves HTTP.
pub(crate) struct HttpProgram {
    pub(crate) child: Child,
    pub(crate) log: Log,
    /// The base URL, without a path.
    pub(crate) url: String,
}

impl HttpProgram {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let mut child = program(settings).spawn().unwrap();
        let log = Log::new(child.stderr.take().unwrap());
        let ready = log.line_with("ready at ").await;
        let (_, url) = ready.split_once("ready at ").unwrap();
        let url = url.trim_end_matches("/mcp").to_owned();
        Self { child, log, url }
    }

    pub(crate) fn mcp(&self) -> String {
        format!("{}/mcp", self.url)
    }
}

/// A client with its own program.
pub(crate) struct Client {
    pub(crate) session: RunningService<RoleClient, ()>,
    pub(crate) log: Log,
    pub(crate) pid: u32,
    pub(crate) http: Option<HttpProgram>,
}

impl Client {
    pub(crate) async fn start(transport: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_with_lifecycle(transport, settings, ClientLifecycleMode::Initialize).await
    }

    /// Starts a client with this kind of handshake.
    pub(crate) async fn start_with_lifecycle(
        transport: &str,
        settings: &[(&str, &str)],
        lifecycle: ClientLifecycleMode,
    ) -> Self {
        let mut settings = settings.to_vec();
        settings.push(("ROCKBOT_SERVER__TRANSPORT", transport));
        if transport == "stdio" {
            let (process, stderr) = TokioChildProcess::builder(program(&settings))
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let log = Log::new(stderr.unwrap());
            let pid = process.id().unwrap();
            let session =
                within_timeout("the session", ().serve_with_lifecycle(process, lifecycle))
                    .await
                    .unwrap();
            return Self { session, log, pid, http: None };
        }
        let program = HttpProgram::start(&settings).await;
        rockbot_service::tls::install_tls_provider();
        let transport = StreamableHttpClientTransport::from_uri(program.mcp());
        let session = within_timeout("the session", ().serve_with_lifecycle(transport, lifecycle))
            .await
            .unwrap();
        let (log, pid) = (program.log.clone(), program.child.id().unwrap());
        Self { session, log, pid, http: Some(program) }
    }

    /// Starts a client of a program that queries `openrouter`.
    pub(crate) async fn start_with(transport: &str, openrouter: &str) -> Self {
        Self::start(transport, &[("ROCKBOT_OPENROUTER__BASE_URL", openrouter)]).await
    }

    /// Calls a tool. Returns whether the result is an error, and its text.
    pub(crate) async fn call(&self, tool: &'static str, arguments: Value) -> (bool, String) {
        let result = self.session.call_tool(request(tool, arguments));
        outcome_of(&within_timeout("the response", result).await.unwrap())
    }
}

pub(crate) fn request(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

/// Returns whether a result is an error, and its text.
pub(crate) fn outcome_of(result: &CallToolResult) -> (bool, String) {
    let [content] = result.content.as_slice() else { panic!("{result:?}") };
    (result.is_error == Some(true), content.as_text().unwrap().text.clone())
}

/// Sends a process SIGTERM.
pub(crate) async fn terminate(pid: u32) {
    let status = Command::new("kill").args(["-s", "TERM", &pid.to_string()]).status().await;
    assert!(status.unwrap().success());
}
