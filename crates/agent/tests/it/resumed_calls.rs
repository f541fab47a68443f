//! Calls of an interrupted step in a process that has just started.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use rockbot_agent::{Approvals, McpExposure, TurnAnswer};
use rockbot_contracts::{ApprovalDecision, MessageId, ToolHints, ToolRegistration, ToolSource};
use rockbot_llm::ScriptedTurn;
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    harness::{AgentFixture, EventLog, RecordingModel, settle},
    mcp,
    stored_harness::{CrashingLog, JournaledTool, Storage, resume, send_as, send_to, session},
};

fn one_call(tool: &str) -> Arc<RecordingModel> {
    RecordingModel::script([
        ScriptedTurn::default().call(tool, json!({})),
        ScriptedTurn::text("Done."),
    ])
}

/// Runs a message in a process that is killed after the entry of this number.
async fn crash_after(
    storage: &Storage,
    entries: u64,
    fixture: AgentFixture,
    model: &Arc<RecordingModel>,
) {
    let log = CrashingLog::new(storage, entries);
    let conversations = Some(storage.conversations_on(log.clone()));
    let agent = AgentFixture { conversations, ..fixture }.agent(model);
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { drop(send_as(&agent, &MessageId::generate(), "go").await) }
    });
    log.wait_for_crash().await;
    running.abort();
}

async fn resumed(storage: &Storage, fixture: AgentFixture, model: &Arc<RecordingModel>) -> String {
    let agent = storage.agent(fixture, model);
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    answer.text
}

/// Returns the execution state of the last recorded result.
async fn executed(storage: &Storage) -> String {
    let log = crate::stored_harness::log_name();
    let entries = storage.stores.log.read(&log, 1, 1000).await.unwrap();
    let values = entries.iter().map(|entry| serde_json::from_slice(&entry.value).unwrap());
    let mut results = values.filter(|value: &Value| value["kind"] == "result");
    results.next_back().unwrap()["executed"].as_str().unwrap().to_owned()
}

fn with(tool: &Arc<JournaledTool>) -> AgentFixture {
    let fixture = AgentFixture::new();
    tool.register(&fixture.registry);
    fixture
}

#[tokio::test(start_paused = true)]
async fn tool_that_is_announced_late_is_waited_for() {
    for name in ["work".to_owned(), "x".repeat(100)] {
        let (storage, tool) = (Storage::new(), JournaledTool::remote(&name));
        let shown = rockbot_tools::names::sanitize(&name, 64);
        crash_after(&storage, 2, with(&tool), &one_call(&shown)).await;
        let fixture = AgentFixture::new();
        let registry = fixture.registry.clone();
        let announced = tokio::spawn({
            let tool = tool.clone();
            async move {
                sleep(Duration::from_secs(3)).await;
                tool.register(&registry);
            }
        });
        let model = one_call(&shown);
        assert_eq!(resumed(&storage, fixture, &model).await, "Done.");
        announced.await.unwrap();
        assert_eq!(*tool.attempts.lock().unwrap(), [1, 2]);
        assert_eq!((tool.runs(), executed(&storage).await.as_str()), (1, "yes"));
        assert_eq!(model.tool_results(), [format!("{name} is written")]);
    }
}

#[tokio::test(start_paused = true)]
async fn call_of_an_unavailable_tool_may_have_run() {
    let (storage, tool, started) = (Storage::new(), JournaledTool::remote("work"), Instant::now());
    crash_after(&storage, 2, with(&tool), &one_call("work")).await;
    let model = one_call("work");
    assert_eq!(resumed(&storage, AgentFixture::new(), &model).await, "Done.");
    assert_eq!(executed(&storage).await, "unknown");
    assert!(model.tool_results()[0].contains("outcome unknown"), "{:?}", model.tool_results());
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

/// A tool with a journal that is overloaded when a call is repeated.
struct Overloaded(ToolRegistration);

impl Tool for Overloaded {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        let result = match context.attempt {
            1 => Ok(ToolResult::text("done")),
            _ => Err(ToolFailure::Overloaded { message: "10 calls wait".to_owned() }),
        };
        async move { result }.boxed()
    }

    fn deduplicates_calls(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_call_that_is_not_accepted_may_have_run() {
    let storage = Storage::new();
    let fixture = || {
        let fixture = AgentFixture::new();
        let registration = ToolRegistration {
            name: "work".to_owned(),
            label: None,
            description: "works".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Internal,
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        fixture.registry.register(Arc::new(Overloaded(registration))).unwrap();
        fixture
    };
    crash_after(&storage, 2, fixture(), &one_call("work")).await;
    let model = one_call("work");
    assert_eq!(resumed(&storage, fixture(), &model).await, "Done.");
    assert_eq!(executed(&storage).await, "unknown");
    let result = model.tool_results().remove(0);
    assert!(result.contains("10 calls wait") && result.contains("may have run"), "{result}");
}

#[tokio::test(start_paused = true)]
async fn call_that_waited_for_approval_has_not_run() {
    for (decision, expected, runs) in
        [(ApprovalDecision::Deny, "no", 0), (ApprovalDecision::Allow, "yes", 1)]
    {
        let (storage, tool) = (Storage::new(), JournaledTool::local("work", ToolHints::default()));
        let approvals = || {
            let rules = json!({"rules": [{"tool": "work", "policy": "ask"}]});
            Approvals::new(serde_json::from_value(rules).unwrap()).unwrap()
        };
        let fixture = |approvals| AgentFixture { approvals: Some(approvals), ..with(&tool) };
        let agent = storage.agent(fixture(approvals()), &one_call("work"));
        let running = tokio::spawn(async move {
            let sink = EventLog::default().sink();
            drop(send_to(&agent, &MessageId::generate(), "go", sink).await);
        });
        settle().await;
        running.abort();
        assert_eq!(storage.kinds().await, ["message", "model", "question"]);

        let (approvals, events, answer) =
            (approvals(), EventLog::default(), Arc::new(Mutex::new(None::<TurnAnswer>)));
        let agent = storage.agent(fixture(approvals.clone()), &one_call("work"));
        let resuming = tokio::spawn({
            let (events, answer) = (events.clone(), answer.clone());
            async move {
                let resumed = resume(&agent, &events).await;
                *answer.lock().unwrap() = resumed.map(|(_, answer)| answer);
            }
        });
        settle().await;
        let asked = events.approval_requests().remove(0);
        assert!(approvals.answer(&asked.answer("s", decision)));
        resuming.await.unwrap();
        assert_eq!(answer.lock().unwrap().take().unwrap().text, "Done.");
        assert_eq!((executed(&storage).await.as_str(), tool.runs()), (expected, runs));
    }
}

#[tokio::test(start_paused = true)]
async fn tool_of_an_mcp_server_is_found_and_offered_again() {
    let read_only = |server: &str| {
        let mut tool = mcp::definition(server, "log");
        tool.hints = ToolHints::READ_ONLY;
        vec![tool]
    };
    let script = || {
        RecordingModel::script([
            ScriptedTurn::default().call("mcp_find_tools", json!({"query": "log"})),
            ScriptedTurn::default().call("Git__log", json!({"n": 7})),
            ScriptedTurn::text("Done."),
        ])
    };
    let storage = Storage::new();
    let servers = mcp::Servers::new(&[]);
    servers.set("Git", read_only("Git"));
    let exposure = McpExposure::Lazy;
    crash_after(&storage, 4, mcp::fixture(&servers, exposure), &script()).await;
    assert_eq!(storage.kinds().await, ["message", "model", "result", "model"]);

    // The next process learns of the server only after a while.
    let servers = mcp::Servers::new(&[]);
    let announced = tokio::spawn({
        let servers = servers.clone();
        async move {
            sleep(Duration::from_secs(3)).await;
            servers.set("Git", read_only("Git"));
        }
    });
    let model = script();
    assert_eq!(resumed(&storage, mcp::fixture(&servers, exposure), &model).await, "Done.");
    announced.await.unwrap();
    assert_eq!(servers.calls(), [r#"Git/log {"n":7}"#]);
    assert_eq!(model.tool_results()[1], r#"Git/log {"n":7}"#);

    // So does a process that gets the next message.
    let model = script();
    let agent = storage.agent(mcp::fixture(&servers, exposure), &model);
    send_as(&agent, &MessageId::generate(), "go on").await;
    let offered = model.last_request().tools;
    assert!(offered.iter().any(|tool| tool.name == "Git__log"), "{offered:?}");
    assert_eq!(agent.conversations().unfinished().await.unwrap(), [session()]);
}

#[tokio::test(start_paused = true)]
async fn call_of_an_mcp_tool_by_name_is_made_again_under_its_id() {
    let script =
        || RecordingModel::script([mcp::invoke("git", "push"), ScriptedTurn::text("Done.")]);
    let (storage, exposure) = (Storage::new(), McpExposure::Lazy);
    let servers = mcp::Servers::new(&[("Git", &["push"]), ("time", &["now"])]);
    crash_after(&storage, 2, mcp::fixture(&servers, exposure), &script()).await;
    assert_eq!(servers.calls(), [r#"Git/push {"n":1}"#]);

    // The next process learns of the server only after a while.
    servers.withdraw("Git");
    let announced = tokio::spawn({
        let servers = servers.clone();
        async move {
            sleep(Duration::from_secs(3)).await;
            servers.set("Git", vec![mcp::definition("Git", "push")]);
        }
    });
    let model = script();
    assert_eq!(resumed(&storage, mcp::fixture(&servers, exposure), &model).await, "Done.");
    announced.await.unwrap();
    assert_eq!(model.tool_results(), [r#"Git/push {"n":1}"#]);
    assert_eq!((servers.calls().len(), executed(&storage).await.as_str()), (1, "yes"));
}

#[tokio::test(start_paused = true)]
async fn mcp_tools_of_the_conversation_are_offered_in_another_process() {
    let (found, both): (&[&str], &[&str]) =
        (&["time__now"], &["time__now", "git__diff", "git__log"]);
    for (exposure, expected) in [(McpExposure::Lazy, found), (McpExposure::Pinned, both)] {
        let storage = Storage::new();
        let servers = mcp::Servers::new(&[("git", &["diff", "log"]), ("time", &["now"])]);
        let model = RecordingModel::script([
            mcp::find("now"),
            mcp::invoke("git", "log"),
            ScriptedTurn::text("Done."),
        ]);
        let first = storage.agent(mcp::fixture(&servers, exposure), &model);
        send_as(&first, &MessageId::generate(), "go").await;
        let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
        let second = storage.agent(mcp::fixture(&servers, exposure), &model);
        send_as(&second, &MessageId::generate(), "go on").await;
        assert_eq!(mcp::mcp_names(&mcp::offered(&model)[0]), expected, "{exposure:?}");
    }
}
