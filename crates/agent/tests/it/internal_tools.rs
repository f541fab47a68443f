//! Internal tools: the final report, the status of the task, and several calls in one.

use std::sync::Arc;

use rockbot_agent::{
    Approvals, TurnEvent,
    internal_tools::{InternalTools, ReportFormat},
};
use rockbot_contracts::{ApprovalDecision, MessageId, user::TurnOutcome};
use rockbot_llm::{ScriptedTurn, ToolChoice};
use rockbot_tools::ApprovalSection;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    harness::{
        AgentFixture, Behavior, EventLog, ProbeTool, RecordingModel, message, send, settle,
        spawn_send,
    },
    stored_harness::{CrashingLog, JournaledTool, Storage, resume, send_as},
};

const REPORT: &str = "agent__final_report";
const STATUS: &str = "agent__task_status";
const BATCH: &str = "agent__batch";

fn fixture(internal: InternalTools) -> AgentFixture {
    let mut fixture = AgentFixture::new();
    fixture.definition.internal = internal;
    fixture
}

fn reporting() -> InternalTools {
    InternalTools { final_report: true, ..InternalTools::default() }
}

fn batching() -> AgentFixture {
    fixture(InternalTools { batch: true, ..InternalTools::default() })
}

fn report(content: &str) -> Value {
    json!({"status": "success", "content": content})
}

fn status(status: &str, is_ready: bool) -> Value {
    json!({"status": status, "done": "a", "pending": "b", "now": "c",
        "ready_for_final_report": is_ready})
}

/// Returns the results of the last batch that the model read.
fn batch_results(model: &RecordingModel) -> Vec<Value> {
    let text = model.tool_results().pop().unwrap();
    let results: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    results["results"].as_array().unwrap().clone()
}

fn batch(calls: &[(Value, &str, Value)]) -> Value {
    let call = |(id, tool, parameters): &(Value, &str, Value)| json!({"id": id, "tool": tool, "parameters": parameters});
    json!({"calls": calls.iter().map(call).collect::<Vec<_>>()})
}

#[tokio::test]
async fn report_ends_the_turn_after_the_other_calls() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([ScriptedTurn::default()
        .call(REPORT, report("All done."))
        .call("echo", json!({"n": 1}))
        .call(REPORT, report("Again."))]);
    let answer = send(&fixture(reporting()).with(&echo).agent(&model), "go").await;
    assert_eq!((answer.outcome, answer.text.as_str()), (TurnOutcome::Completed, "All done."));
    assert_eq!((echo.calls(), model.request_count()), (1, 1));
}

#[tokio::test]
async fn invalid_report_is_adopted_after_three_attempts() {
    let wrong = || json!({"status": "success", "content_json": {"total": "many"}});
    let turn = || ScriptedTurn::default().call(REPORT, wrong());
    let model = RecordingModel::script([turn(), turn(), turn(), ScriptedTurn::text("No.")]);
    let schema = json!({"type": "object", "required": ["total"],
        "properties": {"total": {"type": "integer"}}});
    let internal = InternalTools {
        report_format: ReportFormat::Json,
        report_schema: Some(schema),
        ..reporting()
    };
    let answer = send(&fixture(internal).agent(&model), "go").await;
    assert_eq!(answer.outcome, TurnOutcome::IterationLimit);
    assert_eq!(answer.text, r#"{"total":"many"}"#);
    assert_eq!(model.request_count(), 3);
    let results = model.tool_results();
    assert!(
        results.iter().all(|text| text.contains("content_json") && text.contains("total")),
        "{results:?}"
    );
}

#[tokio::test]
async fn last_response_may_be_a_report() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::default().call(REPORT, report("As far as I came.")),
    ]);
    let mut fixture = fixture(reporting()).with(&echo);
    fixture.definition.max_iterations = 1;
    let answer = send(&fixture.agent(&model), "go").await;
    assert_eq!(answer.outcome, TurnOutcome::IterationLimit);
    assert_eq!(answer.text, "As far as I came.");
    let last = model.last_request();
    let offered: Vec<_> = last.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((last.tool_choice, offered), (ToolChoice::Auto, vec![REPORT]));
}

#[tokio::test]
async fn report_is_only_a_tool_of_agents_that_enable_it() {
    let model = RecordingModel::script([
        ScriptedTurn::default().call(REPORT, report("All done.")),
        ScriptedTurn::text("Done."),
    ]);
    let answer = send(&AgentFixture::new().agent(&model), "go").await;
    assert_eq!(answer.text, "Done.");
    assert!(model.last_request().tools.iter().all(|tool| tool.name != REPORT));
}

#[tokio::test]
async fn status_alone_twice_forces_the_answer() {
    for (turns, requests) in [
        (vec![status("starting", false), status("in-progress", false)], 3),
        (vec![status("completed", true)], 2),
    ] {
        let mut script: Vec<_> =
            turns.iter().map(|turn| ScriptedTurn::default().call(STATUS, turn.clone())).collect();
        script.push(ScriptedTurn::text("Done."));
        let model = RecordingModel::script(script);
        let internal = InternalTools { task_status: true, ..InternalTools::default() };
        let (agent, events) = (fixture(internal).agent(&model), EventLog::default());
        let answer = agent.send(message("s", "go"), events.sink()).await;
        assert_eq!((answer.outcome, answer.text.as_str()), (TurnOutcome::Completed, "Done."));
        assert_eq!(model.request_count(), requests);
        assert_eq!(model.last_request().tool_choice, ToolChoice::None);
        let is_status = |event: &&TurnEvent| matches!(event, TurnEvent::TaskStatus { .. });
        assert_eq!(events.events().iter().filter(is_status).count(), turns.len());
    }
}

#[tokio::test]
async fn batch_gives_the_results_of_single_calls() {
    let tools = [
        ProbeTool::new("echo", Behavior::Echo),
        ProbeTool::new("long", Behavior::LongText(200_000)),
        ProbeTool::new("fails", Behavior::Fail),
    ];
    let calls: Vec<(Value, &str, Value)> = (0..20)
        .map(|n| {
            let tool = ["echo", "long", "fails", "unknown"][n * 7 % 4];
            // A wrong argument, sometimes.
            let arguments = if n % 5 == 4 { json!({"n": "x"}) } else { json!({"n": n}) };
            (json!(n), tool, arguments)
        })
        .collect();
    let single = calls.iter().fold(ScriptedTurn::default(), |turn, (_, tool, arguments)| {
        turn.call(*tool, arguments.clone())
    });
    let one = RecordingModel::script([single, ScriptedTurn::text("Done.")]);
    let many = RecordingModel::script([
        ScriptedTurn::default().call(BATCH, batch(&calls)),
        ScriptedTurn::text("Done."),
    ]);
    let mut usage = Vec::new();
    for model in [&one, &many] {
        let fixture = tools.iter().fold(batching(), AgentFixture::with);
        usage.push(send(&fixture.agent(model), "go").await.usage.unwrap().turn.tool_calls);
    }
    assert_eq!(usage, [20, 21], "the batch is a call too");
    let (direct, batched) = (one.tool_results(), batch_results(&many));
    assert_eq!((direct.len(), batched.len()), (20, 20));
    for ((direct, batched), (id, tool, _)) in direct.iter().zip(&batched).zip(&calls) {
        assert_eq!((&batched["id"], &batched["tool"]), (id, &json!(tool)));
        let text =
            if batched["ok"] == true { &batched["output"] } else { &batched["error"]["message"] };
        assert_eq!(text.as_str().unwrap(), direct, "{batched}");
        assert_eq!(batched["ok"] == true, !direct.starts_with("(tool failed"));
        let code = &batched["error"]["code"];
        assert_eq!(code == "UNKNOWN_TOOL", *tool == "unknown");
    }
}

#[tokio::test]
async fn batch_refuses_itself_and_asks_for_approval_of_each_call() {
    let rules = json!({"rules": [{"tool": "danger", "policy": "ask"}]});
    let section: ApprovalSection = serde_json::from_value(rules).unwrap();
    let approvals = Approvals::new(section).unwrap();
    let danger = ProbeTool::new("danger", Behavior::Echo);
    let empty = json!({"calls": []});
    let model = RecordingModel::script([
        ScriptedTurn::default().call(BATCH, empty),
        ScriptedTurn::default().call(
            BATCH,
            batch(&[
                (json!("a"), BATCH, json!({"calls": []})),
                (json!("b"), "spawn_subagent", json!({})),
                (json!("c"), "danger", json!({"n": 1})),
                (json!("d"), "danger", json!({"n": 2})),
            ]),
        ),
        ScriptedTurn::text("Done."),
    ]);
    let fixture = AgentFixture { approvals: Some(approvals.clone()), ..batching() }.with(&danger);
    let (turn, events) = spawn_send(&fixture.agent(&model), message("s", "go"));
    while events.approval_requests().len() < 2 {
        settle().await;
    }
    let requests = events.approval_requests();
    let is_first = |text: &str| text.contains('1');
    for request in requests {
        let decision = if is_first(&request.arguments) {
            ApprovalDecision::Allow
        } else {
            ApprovalDecision::Deny
        };
        approvals.answer(&request.answer("s", decision));
    }
    turn.await.unwrap();
    assert_eq!(danger.calls(), 1);
    let results = batch_results(&model);
    let codes: Vec<_> = results.iter().map(|one| one["error"]["code"].as_str()).collect();
    let refused = Some("INTERNAL_NOT_ALLOWED");
    assert_eq!(codes, [refused, refused, None, Some("EXECUTION_ERROR")]);
    let first = &model.requests.lock().unwrap()[1];
    let empty = serde_json::to_string(&format!("{:?}", first.messages)).unwrap();
    assert!(empty.contains("empty_batch"), "{empty}");
}

#[tokio::test]
async fn continued_batch_makes_the_same_calls_again() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let stalled = ProbeTool::new("work", Behavior::Gated(gate));
    let working = ProbeTool::new("work", Behavior::Echo);
    let calls = batch(&[(json!(1), "work", json!({"n": 1})), (json!(2), "work", json!({"n": 2}))]);
    let script = || {
        let call = ScriptedTurn::default().call(BATCH, calls.clone());
        RecordingModel::script([call, ScriptedTurn::text("Done.")])
    };
    let log = CrashingLog::new(&storage, 2);
    let conversations = Some(storage.conversations_on(log));
    let agent = AgentFixture { conversations, ..batching() }.with(&stalled).agent(&script());
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { drop(send_as(&agent, &MessageId::generate(), "go").await) }
    });
    stalled.wait_for_call().await;
    stalled.wait_for_call().await;
    running.abort();
    drop(agent);
    let model = script();
    let agent = storage.agent(batching().with(&working), &model);
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!(answer.text, "Done.");
    let (mut first, mut again) = (stalled.ids(), working.ids());
    first.sort();
    again.sort();
    assert_eq!((first.len(), &first), (2, &again), "the calls are made again under their ids");
    assert!(batch_results(&model).iter().all(|result| result["ok"] == true));
}

#[tokio::test]
async fn continued_batch_gets_the_results_of_calls_that_ran() {
    let (storage, tool) = (Storage::new(), JournaledTool::remote("work"));
    let calls = batch(&[(json!(1), "work", json!({}))]);
    let script = || {
        let call = ScriptedTurn::default().call(BATCH, calls.clone());
        RecordingModel::script([call, ScriptedTurn::text("Done.")])
    };
    let with_tool = || {
        let fixture = batching();
        tool.register(&fixture.registry);
        fixture
    };
    let log = CrashingLog::new(&storage, 2);
    let conversations = Some(storage.conversations_on(log.clone()));
    let agent = AgentFixture { conversations, ..with_tool() }.agent(&script());
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { drop(send_as(&agent, &MessageId::generate(), "go").await) }
    });
    log.wait_for_crash().await;
    running.abort();
    let model = script();
    let agent = storage.agent(with_tool(), &model);
    resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!((tool.runs(), tool.attempts.lock().unwrap().clone()), (1, vec![1, 2]));
    assert_eq!(batch_results(&model)[0]["output"], "work is written");
}

/// Returns 1 to 20 calls that depend on `seed`.
fn random_calls(seed: u64) -> Vec<(&'static str, Value)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    };
    let count = below(20) + 1;
    let call = |_| match below(6) {
        0 => ("echo", json!({"n": below(1000)})),
        1 => ("echo", json!({"n": "no number"})),
        2 => ("fails", json!({})),
        3 => ("unknown", json!({"n": 1})),
        4 => ("long", json!({})),
        _ => ("picture", json!({})),
    };
    (0..count).map(call).collect()
}

#[tokio::test]
async fn batch_has_the_results_of_its_calls_made_one_by_one() {
    let tools = || {
        [
            ProbeTool::new("echo", Behavior::Echo),
            ProbeTool::new("fails", Behavior::Fail),
            ProbeTool::new("long", Behavior::LongText(500)),
            ProbeTool::new("picture", Behavior::Image("aGk=")),
        ]
    };
    for seed in 0..60 {
        let calls = random_calls(seed);
        let single = calls.iter().fold(ScriptedTurn::default(), |turn, (tool, arguments)| {
            turn.call(*tool, arguments.clone())
        });
        let one_by_one = RecordingModel::script([single, ScriptedTurn::text("Done.")]);
        let own = tools();
        let fixture = own.iter().fold(batching(), AgentFixture::with);
        let usage = send(&fixture.agent(&one_by_one), "go").await.usage.unwrap();

        let items: Vec<_> = (0..)
            .zip(&calls)
            .map(|(id, (tool, arguments))| (json!(id), *tool, arguments.clone()))
            .collect();
        let batched = RecordingModel::script([
            ScriptedTurn::default().call(BATCH, batch(&items)),
            ScriptedTurn::text("Done."),
        ]);
        let others = tools();
        let fixture = others.iter().fold(batching(), AgentFixture::with);
        let batch_usage = send(&fixture.agent(&batched), "go").await.usage.unwrap();

        let results = batch_results(&batched);
        let text = |result: &Value| {
            let output = result["output"].as_str().or_else(|| result["error"]["message"].as_str());
            output.unwrap().to_owned()
        };
        let read: Vec<_> = results.iter().map(text).collect();
        assert_eq!(read, one_by_one.tool_results(), "seed {seed}: {calls:?}");
        for (tool, other) in own.iter().zip(&others) {
            assert_eq!(tool.calls(), other.calls(), "seed {seed}: {}", tool.name());
        }
        // The batch itself is a call too.
        assert_eq!(usage.turn.tool_calls + 1, batch_usage.turn.tool_calls, "seed {seed}");
    }
}
