//! Calls that a server runs as tasks: results, input, cancellation, and another bridge that continues.

use std::{
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use axum::Router;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
        CreateTaskResult, ElicitRequest, GetTaskParams, GetTaskResult, InputRequest,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as McpTool,
        UpdateTaskParams,
    },
    service::RequestContext,
    task_manager::{TaskExit, TaskManager, TaskOptions},
    transport::{
        StreamableHttpService, streamable_http_server::session::local::LocalSessionManager,
    },
};
use rockbot_bus::Requester;
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{
    AgentName, Executed, InstanceId, ToolErrorCode, ToolHints, ToolRegistration, ToolSource,
    topology::tool_invoke_mcp,
};
use rockbot_mcp_bridge::BridgeOptions;
use rockbot_store::{Clock, MemoryStore, Store};
use rockbot_testkit::fixture::{
    TEST_TIMEOUT, fresh_namespace, reply_address, test_broker_url, wait_until, within_timeout,
};
use rockbot_tool_rpc::{RemoteTool, mcp::McpGateway};
use rockbot_tools::{Tool, ToolContext, ToolUpdate};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    sync::{Notify, mpsc},
    time::Instant,
};

use crate::fixture::{bridge_to_loopback, bridge_to_loopback_with, context};

/// A server that runs every call as a task, on rmcp's task manager.
#[derive(Clone, Default)]
struct TaskServer {
    tasks: TaskManager,
    /// Number of tasks that were started.
    started: Arc<AtomicUsize>,
    /// Lets tasks of `work` end.
    release: Arc<Notify>,
    /// Notified when a task of `work` or `nag` is cancelled.
    cancelled: Arc<Notify>,
    /// Number of requests for the state of a task that fail.
    errors: Arc<AtomicUsize>,
    /// The server knows no task any more.
    forgets: Arc<AtomicBool>,
}

/// Returns a request for input.
fn question() -> InputRequest {
    let request: ElicitRequest = serde_json::from_value(json!({
        "method": "elicitation/create", "params": {
            "mode": "form", "message": "Sure?", "requestedSchema": {
                "type": "object", "properties": {"sure": {"type": "boolean"}}}}
    }))
    .unwrap();
    InputRequest::Elicitation(request)
}

impl ServerHandler for TaskServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap_or_default();
        let tool = |name: &'static str| McpTool::new(name, name, Arc::new(schema.clone()));
        Ok(ListToolsResult::with_all_items(["work", "ask", "nag", "fail"].map(tool).to_vec()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.started.fetch_add(1, Ordering::SeqCst);
        let options = TaskOptions::new().with_poll_interval_ms(100).with_status_message("at work");
        let (release, cancelled) = (self.release.clone(), self.cancelled.clone());
        let task = self.tasks.spawn(options, move |task| {
            Box::pin(async move {
                let text = match &*call.name {
                    "fail" => {
                        return Err(TaskExit::Error(ErrorData::internal_error("it broke", None)));
                    }
                    "ask" => task.request_input("q", question()).await?.to_string(),
                    "nag" => {
                        for at in 0.. {
                            let asked = task.request_input(format!("q{at}"), question()).await;
                            asked.inspect_err(|_| cancelled.notify_one())?;
                        }
                        String::new()
                    }
                    _ => tokio::select! {
                        () = release.notified() => "done".to_owned(),
                        () = task.cancelled() => {
                            cancelled.notify_one();
                            return Err(TaskExit::Cancelled);
                        }
                    },
                };
                Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
            })
        });
        Ok(CreateTaskResult::new(task).into())
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        if self.forgets.load(Ordering::SeqCst) {
            return Err(ErrorData::invalid_params("unknown task", None));
        }
        let take = |errors: usize| errors.checked_sub(1);
        if self.errors.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            return Err(ErrorData::internal_error("overloaded", None));
        }
        self.tasks.get_task(&params.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&params.task_id, params.input_responses)
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&params.task_id)
    }
}

/// Starts the server and returns its URL.
async fn serve(server: &TaskServer) -> String {
    let server = server.clone();
    let service: StreamableHttpService<TaskServer, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), Default::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().nest_service("/mcp", service);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://127.0.0.1:{port}/mcp")
}

async fn text(gateway: &dyn McpGateway, tool: &str, call: &ToolContext) -> String {
    let result = within_timeout("the result", gateway.call("tasks", tool, json!({}), call)).await;
    result.unwrap_or_else(|failure| panic!("{tool}: {failure}")).to_text().into_owned()
}

#[tokio::test]
async fn task_is_polled_until_it_ends() {
    let server = TaskServer::default();
    let bridge = bridge_to_loopback(json!({"tasks": {"url": serve(&server).await}})).await;
    server.release.notify_one();
    assert_eq!(text(bridge.as_ref(), "work", &context("work")).await, "done");
    let asked = text(bridge.as_ref(), "ask", &context("ask")).await;
    assert_eq!(asked, r#"{"action":"decline"}"#, "no user can respond");
    let failure = bridge.call("tasks", "fail", json!({}), &context("fail")).await.unwrap_err();
    assert_eq!(
        (failure.code(), failure.executed()),
        (ToolErrorCode::ExecutionFailed, Executed::Yes)
    );
    assert!(failure.to_string().contains("it broke"), "{failure}");
    bridge.stop().await;
}

#[tokio::test]
async fn cancelled_call_cancels_its_task() {
    let server = TaskServer::default();
    let bridge = bridge_to_loopback(json!({"tasks": {"url": serve(&server).await}})).await;
    let call = context("work");
    let cancellation = call.cancellation.clone();
    let running = {
        let bridge = bridge.clone();
        tokio::spawn(async move { bridge.call("tasks", "work", json!({}), &call).await })
    };
    wait_until("the task", || server.started.load(Ordering::SeqCst) == 1).await;
    cancellation.cancel();
    let failure = running.await.unwrap().unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Cancelled);
    within_timeout("the cancellation of the task", server.cancelled.notified()).await;
    bridge.stop().await;
}

#[tokio::test]
async fn passing_errors_of_the_server_do_not_end_a_call() {
    let server = TaskServer::default();
    let bridge = bridge_to_loopback(json!({"tasks": {"url": serve(&server).await}})).await;
    server.errors.store(3, Ordering::SeqCst);
    server.release.notify_one();
    assert_eq!(text(bridge.as_ref(), "work", &context("work")).await, "done");
    server.errors.store(usize::MAX, Ordering::SeqCst);
    let failure = bridge.call("tasks", "work", json!({}), &context("work")).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{failure}");
    within_timeout("the cancellation of the task", server.cancelled.notified()).await;
    bridge.stop().await;
}

#[tokio::test]
async fn task_that_asks_without_end_is_cancelled() {
    let server = TaskServer::default();
    let bridge = bridge_to_loopback(json!({"tasks": {"url": serve(&server).await}})).await;
    let failure = bridge.call("tasks", "nag", json!({}), &context("nag")).await.unwrap_err();
    assert!(failure.to_string().contains("more input"), "{failure}");
    within_timeout("the cancellation of the task", server.cancelled.notified()).await;
    bridge.stop().await;
}

#[tokio::test]
async fn task_is_continued_by_its_caller_while_the_server_knows_it() {
    let server = TaskServer::default();
    let servers = json!({"tasks": {"url": serve(&server).await}});
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    let bridge = async |name: &str| {
        let instance = InstanceId::new(name).unwrap();
        let shared = Some((store.clone(), "test".to_owned(), instance));
        let options = BridgeOptions { shared, ..BridgeOptions::default() };
        bridge_to_loopback_with(options, servers.clone()).await
    };
    let (owner, other) = (bridge("one").await, bridge("two").await);
    let (call, mut lines) = with_progress(context("work"));
    let running = tokio::spawn({
        let (owner, call) = (owner.clone(), call.clone());
        async move { owner.call("tasks", "work", json!({}), &call).await }
    });
    within_timeout("the state of the task", lines.recv()).await.unwrap();
    running.abort();
    running.await.unwrap_err();

    let fail = async |call: ToolContext| {
        let call = ToolContext { may_have_run: true, ..call };
        let failure = other.call("tasks", "work", json!({}), &call).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{failure}");
        failure.to_string()
    };
    let foreign = ToolContext { agent: AgentName::new("other").unwrap(), ..call.clone() };
    assert!(fail(foreign).await.contains("another call"));
    server.forgets.store(true, Ordering::SeqCst);
    assert!(fail(call.clone()).await.contains("unknown task"));
    assert!(fail(call).await.contains("was lost"), "the handle was removed");
    assert_eq!(server.started.load(Ordering::SeqCst), 1, "the call was sent once");
    owner.stop().await;
    other.stop().await;
}

/// Returns the call with the lines of its progress.
fn with_progress(mut call: ToolContext) -> (ToolContext, mpsc::Receiver<String>) {
    let (progress, lines) = mpsc::channel(16);
    call.updates = Some(Arc::new(move |update| {
        if let ToolUpdate::Progress(line) = update {
            let _ = progress.try_send(line);
        }
    }));
    (call, lines)
}

/// Starts the program, and waits until it serves calls of the server's tools.
async fn start_bridge(folder: &Path, namespace: &str, instance: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rockbot-mcp-bridge"))
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("ROCKBOT_LOG__FORMAT", "text")
        .env("ROCKBOT_BUS__URL", test_broker_url())
        .env("ROCKBOT_BUS__NAMESPACE", namespace)
        .env("ROCKBOT_STORE__URL", format!("sqlite:{}", folder.join("calls.db").display()))
        .env("ROCKBOT_SERVICE__INSTANCE", instance)
        .env("ROCKBOT_MCP__CONFIG", "mcp.json")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready = async {
        let (mut log, mut is_serving, mut is_connected) = (String::new(), false, false);
        while let Some(line) = lines.next_line().await.unwrap() {
            log += &format!("{line}\n");
            is_serving |= line.contains("ready");
            is_connected |= line.contains("server connected");
            if is_serving && is_connected {
                // The program must not stop at a full pipe.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return;
            }
        }
        panic!("the bridge ended:\n{log}");
    };
    within_timeout("a ready bridge", ready).await;
    child
}

#[tokio::test]
async fn another_bridge_returns_the_result_of_a_killed_one() {
    let (server, folder) = (TaskServer::default(), TempDir::new().unwrap());
    let servers: Value = json!({"mcpServers": {"tasks": {"url": serve(&server).await}}});
    std::fs::write(folder.path().join("mcp.json"), servers.to_string()).unwrap();
    let namespace = fresh_namespace();
    let mut config = RabbitConfig::new(test_broker_url(), "a test of tasks");
    config.namespace.clone_from(&namespace);
    let bus = RabbitBus::start(&config).unwrap();
    bus.connected(TEST_TIMEOUT).await.unwrap();
    let requester = Arc::new(Requester::new(Arc::new(bus), reply_address("tester", "one")));
    let mut owner = start_bridge(folder.path(), &namespace, "bridge-1").await;

    let (mut call, mut lines) = with_progress(context("work"));
    call.deadline = Instant::now() + TEST_TIMEOUT;
    let tool = RemoteTool::new(registration(), requester, tool_invoke_mcp());
    let tool = tool.with_mcp_server("tasks", "work");
    let running = tokio::spawn(async move { tool.call(json!({}), &call).await });
    // The state of the task is read only once its handle is in the store.
    let at_work = within_timeout("the state of the task", lines.recv()).await;
    assert_eq!(at_work.as_deref(), Some("at work"));
    let _other = start_bridge(folder.path(), &namespace, "bridge-2").await;
    owner.kill().await.unwrap();
    server.release.notify_one();
    let result = running.await.unwrap().unwrap();
    assert_eq!(result.to_text(), "done");
    assert_eq!(result.ran_on.as_deref(), Some("mcp-bridge/bridge-2"));
    assert_eq!(server.started.load(Ordering::SeqCst), 1, "the call was sent once");
}

fn registration() -> ToolRegistration {
    ToolRegistration {
        name: "work".to_owned(),
        label: None,
        description: String::new(),
        tool_description: None,
        parameters: Value::Null,
        source: ToolSource::Mcp("tasks".to_owned()),
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}
