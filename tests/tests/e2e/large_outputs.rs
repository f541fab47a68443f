//! A ten-megabyte result, stored in PostgreSQL by one handler and read through another.

use std::{
    collections::VecDeque,
    fs,
    sync::{Arc, Mutex},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use rockbot_agent::{Agent, AgentDefinition, AgentParts, TurnEvent};
use rockbot_bus::Requester;
use rockbot_contracts::{
    AgentName, InstanceId, SessionId, UserMessage, topology::ReplyAddress, user::TurnOutcome,
};
use rockbot_llm::{
    ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, FinishReason,
};
use rockbot_testkit::{
    FaultProxy,
    fixture::{wait_until, within_timeout},
    store_fixture,
};
use rockbot_tool_rpc::CatalogDirectory;
use rockbot_tools::{ToolRegistry, outputs::TOOL_OUTPUT};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
};

const SECTIONS: usize = 100;
const LINES: usize = 2000;
const FILE: &str = "report.md";

/// Returns ten megabytes of text with headings.
fn report() -> String {
    let mut text = String::new();
    for section in 1..=SECTIONS {
        text.push_str(&format!("# Section {section}\n"));
        for line in 2..=LINES {
            text.push_str(&format!(
                "line {line} of section {section}, with some words behind it\n"
            ));
        }
    }
    assert!(text.len() > 9_000_000, "{} bytes", text.len());
    text
}

/// Returns the number of the first line of a section, counted from 1.
fn first_line(section: usize) -> usize {
    (section - 1) * LINES + 1
}

/// A model that runs a command, waits for the test, reads three ranges if the result has a handle, and
/// answers.
struct ReadingModel {
    command: String,
    /// Sends the tool results that the model gets to the test.
    results: mpsc::Sender<String>,
    /// A permit lets the model continue after the first result.
    resume: Arc<Semaphore>,
    steps: Mutex<VecDeque<Step>>,
}

#[derive(Clone, Copy)]
enum Step {
    RunCommand,
    ReadRanges,
    Answer,
}

impl ReadingModel {
    fn events(&self, step: Step, results: &[&str]) -> Vec<ChatEvent> {
        match step {
            Step::RunCommand => call_events(&[("bash", json!({"command": self.command}))]),
            Step::ReadRanges => match handle(results[0]) {
                Some(handle) => {
                    let lines = |section| {
                        let from = first_line(section);
                        json!({"handle": handle, "mode": "lines", "from": from, "count": 3})
                    };
                    call_events(&[3, 50, 99].map(|section| (TOOL_OUTPUT, lines(section))))
                }
                None => text_events("There is no handle."),
            },
            Step::Answer => text_events(&format!("I read {} results.", results.len())),
        }
    }
}

impl ChatModel for ReadingModel {
    fn name(&self) -> &str {
        "reader"
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        async move {
            let results: Vec<_> = request.messages.iter().filter_map(result).collect();
            let step = self.steps.lock().unwrap().pop_front().expect("a step");
            if let Step::ReadRanges = step {
                self.results.send(results[0].to_owned()).await.expect("the test receives");
                self.resume.acquire().await.expect("open").forget();
            }
            if let Step::Answer = step {
                for one in &results[1..] {
                    self.results.send((*one).to_owned()).await.expect("the test receives");
                }
            }
            Ok(stream::iter(self.events(step, &results).into_iter().map(Ok)).boxed())
        }
        .boxed()
    }
}

fn result(message: &ChatMessage) -> Option<&str> {
    match message {
        ChatMessage::Tool { content, .. } => Some(content),
        _ => None,
    }
}

fn handle(result: &str) -> Option<String> {
    let header: Value = serde_json::from_str(result.lines().next()?).ok()?;
    Some(header["tool_output"]["handle"].as_str()?.to_owned())
}

fn text_events(text: &str) -> Vec<ChatEvent> {
    vec![ChatEvent::Text(text.to_owned()), ChatEvent::Finished(FinishReason::Stop)]
}

fn call_events(calls: &[(&str, Value)]) -> Vec<ChatEvent> {
    let call = |(index, (name, arguments)): (u32, &(&str, Value))| ChatEvent::ToolCallDelta {
        index: Some(index),
        id: Some(format!("call-{index}")),
        name: Some((*name).to_owned()),
        arguments: arguments.to_string(),
    };
    (0..).zip(calls).map(call).chain([ChatEvent::Finished(FinishReason::ToolCalls)]).collect()
}

/// Finished tools, each with the handler that ran it.
type Executions = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// An agent in the test process, and the tool results of its model.
struct Harness {
    agent: Agent,
    registry: Arc<ToolRegistry>,
    results: mpsc::Receiver<String>,
    resume: Arc<Semaphore>,
    executions: Executions,
    _directory: CatalogDirectory,
}

impl Harness {
    async fn start(fleet: &Fleet, command: &str) -> Self {
        let bus = fleet.bus(|_| {}).await;
        let name = AgentName::new("assistant").expect("a name");
        let address = ReplyAddress::new(name.clone(), InstanceId::generate());
        let requester = Arc::new(Requester::new(bus, address));
        let registry = Arc::new(ToolRegistry::new());
        let directory = CatalogDirectory::start(requester, registry.clone()).await;
        let (sender, results) = mpsc::channel(16);
        let resume = Arc::new(Semaphore::new(0));
        let model = Arc::new(ReadingModel {
            command: command.to_owned(),
            results: sender,
            resume: resume.clone(),
            steps: Mutex::new([Step::RunCommand, Step::ReadRanges, Step::Answer].into()),
        });
        let definition = AgentDefinition::new(name, "Read it.");
        let agent = Agent::new(AgentParts::new(definition, model, registry.clone()));
        let executions = Executions::default();
        let directory = directory.expect("started");
        Self { agent, registry, results, resume, executions, _directory: directory }
    }

    async fn wait_for_tool(&self, tool: &str) {
        wait_until(tool, || self.registry.get(tool).is_some()).await;
    }

    /// Starts a turn in a new task.
    fn start_turn(&self) -> tokio::task::JoinHandle<rockbot_agent::TurnAnswer> {
        let (agent, executions) = (self.agent.clone(), self.executions.clone());
        let session_id = SessionId::generate();
        let text = "What is in the report?".to_owned();
        let progress = Arc::new(move |event| {
            if let TurnEvent::ToolFinished { tool_name, ran_on, .. } = event {
                executions.lock().unwrap().push((tool_name, ran_on));
            }
        });
        tokio::spawn(async move { agent.send(UserMessage::new(session_id, text), progress).await })
    }

    async fn next_result(&mut self) -> String {
        within_timeout("a result", self.results.recv()).await.expect("the model runs")
    }
}

async fn handler(fleet: &Fleet, instance: &str, store: &str) -> Running {
    let root = fleet.path("").display().to_string();
    let settings = [
        ("ROCKBOT_STORE__URL", store),
        ("ROCKBOT_FILES__ROOT", &root),
        ("ROCKBOT_FILES__MAX_OUTPUT_BYTES", "16777216"),
    ];
    fleet.handler_with(instance, &settings).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_megabyte_result_is_read_through_another_handler() {
    let (fleet, text) = (Fleet::new(), report());
    fleet.write(FILE, &text);
    let store = store_fixture::test_postgres_url();
    let first = handler(&fleet, "handler-1", &store).await;
    let mut harness = Harness::start(&fleet, &format!("cat {FILE}")).await;
    harness.wait_for_tool("bash").await;
    let turn = harness.start_turn();

    let result = harness.next_result().await;
    assert!(result.len() < 6000, "{} bytes", result.len());
    assert_contains(
        &result,
        &["size_limit_exceeded", "## Document Outline", "- **Section 1** → line 1 ("],
    );
    first.send(Signal::TERM);
    first.wait().await.assert_code(0);
    let _second = handler(&fleet, "handler-2", &store).await;
    harness.wait_for_tool(TOOL_OUTPUT).await;
    harness.resume.add_permits(1);

    let lines: Vec<_> = text.lines().collect();
    for section in [3, 50, 99] {
        let from = first_line(section);
        let expected = lines[from - 1..from + 2].join("\n");
        let result = harness.next_result().await;
        assert_contains(&result, &[&format!("[lines {from} to "), &expected]);
    }
    let answer = turn.await.expect("no panic");
    assert_eq!(
        (answer.outcome, answer.text.as_str()),
        (TurnOutcome::Completed, "I read 4 results.")
    );
    let executions = harness.executions.lock().unwrap().clone();
    let count = |instance: &str, tool: &str| {
        let handler = Some(format!("tool-handler/{instance}"));
        executions.iter().filter(|(name, ran_on)| name == tool && *ran_on == handler).count()
    };
    let counts = (count("handler-1", "bash"), count("handler-2", TOOL_OUTPUT));
    assert_eq!(counts, (1, 3), "{executions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_result_is_truncated_without_its_store() {
    let fleet = Fleet::new();
    fleet.write(FILE, &report());
    let store = FaultProxy::start(&store_fixture::test_postgres_url()).await;
    let mut running = handler(&fleet, "handler-1", store.url()).await;
    let command = format!("echo $$ > started; until [ -e gate ]; do sleep 0.05; done; cat {FILE}");
    let mut harness = Harness::start(&fleet, &command).await;
    harness.wait_for_tool("bash").await;
    let turn = harness.start_turn();
    fleet.wait_for_line("started").await;
    store.refuse();
    store.cut_all();
    fs::write(fleet.path("gate"), "").expect("written");

    let result = harness.next_result().await;
    assert_contains(&result, &["# Section 1\nline 2 of section 1", "[result truncated — "]);
    assert!(result.ends_with("chars omitted]"), "{}", &result[result.len() - 100..]);
    harness.resume.add_permits(1);
    let answer = turn.await.expect("no panic");
    assert_eq!(answer.outcome, TurnOutcome::Completed);
    assert_eq!(answer.text, "There is no handle.");
    assert!(running.is_alive());
    store.accept();
}

/// Script of a model whose tool returns 2 MB.
const LISTS_LINES: &str = r#"
[[turn]]
[[turn.call]]
name = "bash"
arguments = { command = "cat report.md" }

[[turn]]
text = "{{result.bash}}"
"#;

#[tokio::test]
async fn large_result_in_one_process_has_a_handle() {
    let fleet = Fleet::new();
    fleet.write(FILE, &"a line of forty characters, more or less\n".repeat(55_000));
    let script = fleet.write("script.toml", LISTS_LINES);
    let mut chat = fleet.program_without_bus("rockbot");
    chat.args(["chat", "go"])
        .env("HOME", fleet.path(""))
        .env("ROCKBOT_FILES__MAX_OUTPUT_BYTES", "16777216")
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script);
    let chat = Running::start(chat).wait().await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &[r#""handle":"out-"#, r#""lines":55000"#, "tool_output(handle"]);
}

#[tokio::test]
async fn long_file_read_through_a_handler_ends_with_its_next_offset() {
    let fleet = Fleet::new();
    fleet.write(FILE, &"a line of forty characters, more or less\n".repeat(55_000));
    let _handler = fleet.handler("handler-1").await;
    let read = fleet.run(&["tools", "call", "read_file", &format!("path={FILE}")]).await;
    read.assert_code(0);
    let last = read.stdout.lines().next_back().expect("a line");
    assert!(last.starts_with("[lines 1 to ") && last.contains("continue with offset "), "{last}");
}
