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
    fleet::{Fleet, assert_says},
    process::Running,
};

const SECTIONS: usize = 100;
const LINES: usize = 2000;
const FILE: &str = "report.md";

/// Ten megabytes, with headings.
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

/// The line where a section begins, from 1.
fn begins(section: usize) -> usize {
    (section - 1) * LINES + 1
}

/// Looks at the file, waits for the test, reads three ranges if it was given a handle, and answers.
struct Reader {
    command: String,
    /// What it read of its tools, as it came.
    read: mpsc::Sender<String>,
    /// A permit lets it go on after the first result.
    go_on: Arc<Semaphore>,
    steps: Mutex<VecDeque<Step>>,
}

#[derive(Clone, Copy)]
enum Step {
    Look,
    Read,
    Answer,
}

impl Reader {
    fn events(&self, step: Step, results: &[&str]) -> Vec<ChatEvent> {
        match step {
            Step::Look => called(&[("bash", json!({"command": self.command}))]),
            Step::Read => match handle(results[0]) {
                Some(handle) => {
                    let lines = |section| {
                        let from = begins(section);
                        json!({"handle": handle, "mode": "lines", "from": from, "count": 3})
                    };
                    called(&[3, 50, 99].map(|section| (TOOL_OUTPUT, lines(section))))
                }
                None => said("There is no handle."),
            },
            Step::Answer => said(&format!("I read {} results.", results.len())),
        }
    }
}

impl ChatModel for Reader {
    fn name(&self) -> &str {
        "reader"
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        async move {
            let results: Vec<_> = request.messages.iter().filter_map(result).collect();
            let step = self.steps.lock().unwrap().pop_front().expect("it has ended");
            if let Step::Read = step {
                self.read.send(results[0].to_owned()).await.expect("the test listens");
                self.go_on.acquire().await.expect("open").forget();
            }
            if let Step::Answer = step {
                for one in &results[1..] {
                    self.read.send((*one).to_owned()).await.expect("the test listens");
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
    let facts: Value = serde_json::from_str(result.lines().next()?).ok()?;
    Some(facts["tool_output"]["handle"].as_str()?.to_owned())
}

fn said(text: &str) -> Vec<ChatEvent> {
    vec![ChatEvent::Text(text.to_owned()), ChatEvent::Finished(FinishReason::Stop)]
}

fn called(calls: &[(&str, Value)]) -> Vec<ChatEvent> {
    let call = |(index, (name, arguments)): (u32, &(&str, Value))| ChatEvent::ToolCallDelta {
        index: Some(index),
        id: Some(format!("call-{index}")),
        name: Some((*name).to_owned()),
        arguments: arguments.to_string(),
    };
    (0..).zip(calls).map(call).chain([ChatEvent::Finished(FinishReason::ToolCalls)]).collect()
}

/// Which tools ran, and where.
type Places = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// An agent in the test, and what its model reads.
struct Desk {
    agent: Agent,
    registry: Arc<ToolRegistry>,
    read: mpsc::Receiver<String>,
    go_on: Arc<Semaphore>,
    places: Places,
    _directory: CatalogDirectory,
}

impl Desk {
    async fn open(fleet: &Fleet, command: &str) -> Self {
        let bus = fleet.bus(|_| {}).await;
        let name = AgentName::new("assistant").expect("a name");
        let address = ReplyAddress::new(name.clone(), InstanceId::generate());
        let requester = Arc::new(Requester::new(bus, address));
        let registry = Arc::new(ToolRegistry::new());
        let directory = CatalogDirectory::start(requester, registry.clone()).await;
        let (sender, read) = mpsc::channel(16);
        let go_on = Arc::new(Semaphore::new(0));
        let model = Arc::new(Reader {
            command: command.to_owned(),
            read: sender,
            go_on: go_on.clone(),
            steps: Mutex::new([Step::Look, Step::Read, Step::Answer].into()),
        });
        let definition = AgentDefinition::new(name, "Read it.");
        let agent = Agent::new(AgentParts::new(definition, model, registry.clone()));
        let places = Places::default();
        let directory = directory.expect("the bus is there");
        Self { agent, registry, read, go_on, places, _directory: directory }
    }

    async fn knows(&self, tool: &str) {
        wait_until(tool, || self.registry.get(tool).is_some()).await;
    }

    /// Lets the model go on with a question of a person, in a task of its own.
    fn ask(&self) -> tokio::task::JoinHandle<rockbot_agent::TurnAnswer> {
        let (agent, places) = (self.agent.clone(), self.places.clone());
        let session_id = SessionId::generate();
        let text = "What is in the report?".to_owned();
        let progress = Arc::new(move |event| {
            if let TurnEvent::ToolFinished { tool_name, ran_on, .. } = event {
                places.lock().unwrap().push((tool_name, ran_on));
            }
        });
        tokio::spawn(async move {
            agent.send(UserMessage { session_id, text, cancel: false }, progress).await
        })
    }

    async fn reads(&mut self) -> String {
        within_timeout("a result", self.read.recv()).await.expect("the model reads")
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
async fn ten_megabyte_result_is_stored_and_read_elsewhere() {
    let (fleet, text) = (Fleet::new(), report());
    fleet.write(FILE, &text);
    let store = store_fixture::test_postgres_url();
    let first = handler(&fleet, "handler-1", &store).await;
    let mut desk = Desk::open(&fleet, &format!("cat {FILE}")).await;
    desk.knows("bash").await;
    let answer = desk.ask();

    let told = desk.reads().await;
    assert!(told.len() < 6000, "{} bytes", told.len());
    assert_says(
        &told,
        &["size_limit_exceeded", "## Document Outline", "- **Section 1** → line 1 ("],
    );
    first.send(Signal::TERM);
    first.ended().await.assert_code(0);
    let _second = handler(&fleet, "handler-2", &store).await;
    desk.knows(TOOL_OUTPUT).await;
    desk.go_on.add_permits(1);

    let lines: Vec<_> = text.lines().collect();
    for section in [3, 50, 99] {
        let from = begins(section);
        let expected = lines[from - 1..from + 2].join("\n");
        assert_says(&desk.reads().await, &[&format!("[lines {from} to "), &expected]);
    }
    let answer = answer.await.expect("no panic");
    assert_eq!(
        (answer.outcome, answer.text.as_str()),
        (TurnOutcome::Completed, "I read 4 results.")
    );
    let places = desk.places.lock().unwrap().clone();
    let ran = |instance: &str, tool: &str| {
        let place = Some(format!("tool-handler/{instance}"));
        places.iter().filter(|(name, ran_on)| name == tool && *ran_on == place).count()
    };
    assert_eq!((ran("handler-1", "bash"), ran("handler-2", TOOL_OUTPUT)), (1, 3), "{places:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_store_truncates_large_result() {
    let fleet = Fleet::new();
    fleet.write(FILE, &report());
    let store = FaultProxy::start(&store_fixture::test_postgres_url()).await;
    let mut running = handler(&fleet, "handler-1", store.url()).await;
    let command = format!("echo $$ > began; until [ -e gate ]; do sleep 0.05; done; cat {FILE}");
    let mut desk = Desk::open(&fleet, &command).await;
    desk.knows("bash").await;
    let answer = desk.ask();
    fleet.line_in("began").await;
    store.refuse();
    store.cut_all();
    fs::write(fleet.path("gate"), "").expect("written");

    let told = desk.reads().await;
    assert_says(&told, &["# Section 1\nline 2 of section 1", "[result truncated — "]);
    assert!(told.ends_with("chars omitted]"), "{}", &told[told.len() - 100..]);
    desk.go_on.add_permits(1);
    let answer = answer.await.expect("no panic");
    assert_eq!(answer.outcome, TurnOutcome::Completed);
    assert_eq!(answer.text, "There is no handle.");
    assert!(running.is_alive());
    store.accept();
}
