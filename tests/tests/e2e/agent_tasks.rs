//! Agents in processes of their own that hand tasks to each other.

use std::{fs, sync::Arc};

use rockbot_agent::{AgentClient, FollowUps};
use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{
    AgentName, AgentTaskResult, AgentTaskState, ConversationRequest, ConversationResponse,
    Envelope, InstanceId, ReplyBody, SessionId, TaskId, TaskMessage, TaskState, UserMessage,
    topology::agent_response,
};
use rockbot_testkit::fixture::within_timeout;
use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;

use crate::{
    fleet::{Fleet, ProcessGroup, assert_contains},
    identity::SecuredFleet,
    process::Running,
};

/// Hands a task to `worker`, and reads its result.
const CALLER: &str = "
[[turn]]
when = 'go'
[[turn.call]]
name = 'invoke_agent'
arguments = { agent_name = 'worker', skill = 'find', message = 'Find it.' }
[[turn]]
text = 'I wait for the worker.'
[[turn]]
when = 'answered task'
text = 'The worker found it.'
";

const WORKER: &str = "
[[turn]]
when = 'Find it.'
text = 'It is under the table.'
";

/// Runs a command that waits for the file `go`.
const GATED_WORKER: &str = "
[[turn]]
when = 'Find it.'
[[turn.call]]
name = 'bash'
arguments = { command = '''echo gated >> lines; echo $$ > pid; until [ -e go ]; do sleep 0.05; done''' }
[[turn]]
text = 'It is under the table.'
";

/// Returns the command of an agent with a definition and a script of its own.
fn agent(fleet: &Fleet, mut command: Command, name: &str, script: &str) -> Command {
    let folder = format!("agents-{name}");
    fs::create_dir_all(fleet.path(&folder)).expect("a folder");
    let skills = "skills = [{ id = 'find', description = 'Finds things' }]";
    let definition = format!(
        "+++\nname = '{name}'\ndescription = 'Finds things'\n[a2a]\nexpose = true\n{skills}\n+++\nYou find things.\n"
    );
    fleet.write(&format!("{folder}/{name}.md"), &definition);
    let known = json!([{"agentName": "worker", "skills": [{"id": "find", "name": "Find"}]}]);
    let known = fleet.write("well-known-agents.json", &known.to_string());
    let script = fleet.write(&format!("{name}.toml"), script);
    let store = format!("sqlite:{}", fleet.path(&format!("{name}.db")).display());
    command
        .env("ROCKBOT_AGENT__NAME", name)
        .env("ROCKBOT_AGENT__DIRECTORY", fleet.path(&folder))
        .env("ROCKBOT_AGENT__WELL_KNOWN_AGENTS", known)
        .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", store)
        .env("ROCKBOT_AGENT__CONVERSATIONS__LEASE", "3s")
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script);
    command
}

async fn start(command: Command) -> Running {
    let mut running = Running::start(command);
    running.expect_log("ready").await;
    running
}

async fn kill(mut process: Running) {
    process.send(Signal::KILL);
    process.wait_for_exit().await;
}

/// A user of the agent `caller`.
struct User {
    client: AgentClient,
    follow_ups: FollowUps,
    session: SessionId,
}

impl User {
    async fn connect(bus: Arc<dyn Bus>) -> Self {
        let client = AgentClient::connect(bus, &InstanceId::generate()).await.expect("a queue");
        let follow_ups = client.follow_ups().expect("the first reader");
        Self { client, follow_ups, session: SessionId::generate() }
    }

    async fn say(&self, text: &str) -> String {
        let message = UserMessage::new(self.session.clone(), text);
        let replies = self.client.send(&name("caller"), &message).await.expect("sent");
        let reply = within_timeout("an answer", replies.last()).await.expect("an answer");
        let ReplyBody::Answer { text, .. } = reply.body else { panic!("{reply:?}") };
        text
    }

    async fn follow_up(&mut self) -> String {
        within_timeout("a follow-up", async {
            loop {
                let reply = self.follow_ups.next().await.expect("a reply");
                if let ReplyBody::FollowUp { text, .. } = reply.body {
                    return text;
                }
            }
        })
        .await
    }

    /// Returns the only task of the agent, once it has a state.
    async fn task_in(&self, state: TaskState) -> TaskId {
        within_timeout("a task", async {
            loop {
                let request = ConversationRequest::Tasks {};
                let response = self.client.request(&name("caller"), &request).await;
                if let Ok(ConversationResponse::Tasks { tasks }) = response
                    && let [task] = tasks.as_slice()
                    && task.state == state
                {
                    assert_eq!(task.agent, Some(name("worker")));
                    return task.task_id.clone();
                }
            }
        })
        .await
    }
}

fn name(agent: &str) -> AgentName {
    AgentName::new(agent).expect("a name")
}

#[tokio::test]
async fn task_survives_the_death_of_both_agents() {
    let fleet = Fleet::new();
    let handler = fleet.handler("handler-1").await;
    let worker = || agent(&fleet, fleet.program("rockbot-agent"), "worker", GATED_WORKER);
    let caller = || agent(&fleet, fleet.program("rockbot-agent"), "caller", CALLER);
    let mut first_worker = Running::start(worker());
    first_worker.expect_log("handler announced its tools").await;
    first_worker.expect_log("ready").await;
    let first_caller = start(caller()).await;
    let mut user = User::connect(fleet.bus(|_| {}).await).await;
    assert_eq!(user.say("go").await, "I wait for the worker.");
    let _command = ProcessGroup::from_file(&fleet, "pid").await;
    kill(first_worker).await;
    kill(first_caller).await;
    fleet.write("go", "");
    let worker = start(worker()).await;
    let caller = start(caller()).await;
    assert_eq!(user.follow_up().await, "The worker found it.");
    let lines = fs::read_to_string(fleet.path("lines")).expect("the command ran");
    assert_eq!(lines, "gated\n", "it ran once");
    user.task_in(TaskState::Completed).await;
    for process in [worker, caller, handler] {
        process.send(Signal::TERM);
        process.wait().await.assert_code(0);
    }
}

#[tokio::test]
async fn response_of_a_third_agent_is_dropped() {
    let secured = SecuredFleet::with_users(&["caller", "worker", "third"], &[]).await;
    let secured_agent = |name: &str, script: &str| {
        let program = secured.program_at("rockbot-agent", secured.url(&format!("agent.{name}")));
        agent(&secured.fleet, program, name, script)
    };
    let worker = || secured_agent("worker", WORKER);
    let first = start(worker()).await;
    let caller = start(secured_agent("caller", CALLER)).await;
    // Its queue stays, and keeps the task.
    kill(first).await;
    let mut user = User::connect(secured.bus("cli").await).await;
    assert_eq!(user.say("go").await, "I wait for the worker.");
    let task = user.task_in(TaskState::Running).await;
    let forged = AgentTaskResult {
        task_id: task.clone(),
        state: AgentTaskState::Completed,
        artifacts: Vec::new(),
        message: Some(TaskMessage::new(TaskMessage::AGENT, "forged", None)),
        usage: None,
    };
    let third = secured.bus("agent.third").await;
    let envelope = Envelope::from_payload(&forged).with_source("worker");
    let forged = Publication::mandatory(agent_response(&name("caller")), envelope);
    third.publish(forged).await.expect("an agent may publish responses");
    let worker = start(worker()).await;
    assert_eq!(user.follow_up().await, "The worker found it.");
    let request = ConversationRequest::Task { task_id: task };
    let shown = user.client.request(&name("caller"), &request).await.expect("a response");
    let ConversationResponse::Task { result, .. } = shown else { panic!("another response") };
    assert_eq!(result, "It is under the table.");
    for process in [worker, caller] {
        process.send(Signal::TERM);
        process.wait().await.assert_code(0);
    }
}

#[tokio::test]
async fn command_line_lists_shows_and_asks_agents() {
    let fleet = Fleet::new();
    let worker = agent(&fleet, fleet.program("rockbot-agent"), "worker", WORKER);
    let worker = start(worker).await;
    let listed = fleet.run(&["--json", "agents"]).await;
    listed.assert_code(0);
    let listed = listed.json();
    let found = listed.as_array().expect("a list").iter().find(|one| one["name"] == "worker");
    let found = found.unwrap_or_else(|| panic!("{listed:#}"));
    assert_eq!((&found["state"], &found["skills"]), (&json!("running"), &json!(["find"])));
    let shown = fleet.run(&["agents", "show", "worker"]).await;
    shown.assert_code(0);
    assert_contains(&shown.stdout, &["find", "Finds things"]);
    let absent = fleet.run(&["agents", "show", "stranger"]).await;
    absent.assert_code(1);
    assert_contains(&absent.stderr, &["agent stranger does not run"]);
    let asked = fleet.run(&["agents", "ask", "worker", "--skill", "find", "Find it."]).await;
    asked.assert_code(0);
    assert_eq!(asked.stdout.trim(), "It is under the table.");
    let refused = fleet.run(&["agents", "ask", "worker", "--skill", "sing", "Sing."]).await;
    refused.assert_code(1);
    assert_contains(&refused.stderr, &["no such skill; use one of: find"]);
    let unserved = fleet.run(&["agents", "ask", "stranger", "Find it."]).await;
    unserved.assert_code(69);
    assert_contains(&unserved.stderr, &["nothing serves its tasks"]);
    worker.send(Signal::TERM);
    worker.wait().await.assert_code(0);
    fleet.run(&["agents", "show", "worker"]).await.assert_code(1);
}

#[tokio::test]
async fn running_agent_that_is_not_exposed_is_described_as_such() {
    let fleet = Fleet::new();
    let hidden = agent(&fleet, fleet.program("rockbot-agent"), "hidden", WORKER);
    fleet.write("agents-hidden/hidden.md", "+++\nname = 'hidden'\n+++\nYou find things.\n");
    let hidden = start(hidden).await;
    let shown = fleet.run(&["agents", "show", "hidden"]).await;
    shown.assert_code(1);
    assert_contains(&shown.stderr, &["agent hidden runs", "lacks [a2a] expose = true"]);
    hidden.send(Signal::TERM);
    hidden.wait().await.assert_code(0);
}
