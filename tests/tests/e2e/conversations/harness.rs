//! An agent with several processes, which share one store of conversations.

use std::{env, fs};

use rockbot_contracts::{AgentName, InstanceId, ReplyBody, SessionId, user::TurnOutcome};
use rockbot_store::{Clock, LogName, StoreUrl, Stores};
use rustix::process::Signal;
use serde_json::Value;

use super::user::User;
use crate::{
    fleet::{Fleet, ProcessGroup},
    process::Running,
};

/// A command that appends a line and then waits for [`Replicas::open_gate`].
pub(super) const GATED: &str =
    "echo gated >> lines; echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo passed";

/// The tools of the agent. Its models call the others only in tests of them.
const TOOLS: &str = "[tools]
allow = ['bash', 'agent__*', '*subagent*', 'report_progress', 'spawn_wisps', 'router__*']
[internal]
batch = true
wisps = true
[router]
destinations = ['helper']
";

/// An agent, its tool handler and its store. Each has a name of its own, because the tests share a
/// database.
pub(super) struct Replicas {
    pub(super) fleet: Fleet,
    pub(super) agent: AgentName,
    store: String,
    /// Base URL of a model server, instead of the script.
    model_url: Option<String>,
    pub(super) handler: Running,
}

impl Replicas {
    /// Starts the handler of an agent whose model plays `script`, on the test database.
    pub(super) async fn new(script: &str) -> Self {
        let store = env::var("ROCKBOT_TEST_POSTGRES_URL").expect(
            "this test needs a database: run `cargo xtask test`, or set ROCKBOT_TEST_POSTGRES_URL to \
             a PostgreSQL database that tests may write to",
        );
        Self::on_store(store, script).await
    }

    /// Starts the handler of an agent whose conversations are in `store`.
    pub(super) async fn on_store(store: String, script: &str) -> Self {
        let fleet = Fleet::new();
        fleet.write("script.toml", script);
        let agent = AgentName::new(InstanceId::generate().as_str()).expect("a name");
        fs::create_dir(fleet.path("agents")).expect("a folder");
        let fields = format!("name = '{agent}'\ndescription = 'Runs commands'\n");
        let text = "Run what the user asks for.";
        fleet.write("agents/agent.md", &format!("+++\n{fields}{TOOLS}+++\n{text}\n"));
        let handler = fleet.handler("handler-1").await;
        Self { fleet, agent, store, model_url: None, handler }
    }

    /// Uses a model server instead of the script.
    pub(super) fn with_model_server(self, base_url: String) -> Self {
        Self { model_url: Some(base_url), ..self }
    }

    /// Starts a process of the agent, and waits until it knows the tools of the handler.
    pub(super) async fn start(&self, instance: &str) -> Running {
        self.start_with(instance, &[]).await
    }

    /// Starts a process of the agent with additional settings.
    pub(super) async fn start_with(&self, instance: &str, settings: &[(&str, &str)]) -> Running {
        let mut running = self.launch(instance, settings);
        running.expect_log("handler announced its tools").await;
        running.expect_log("ready").await;
        running
    }

    /// Starts a process of the agent, and does not wait for it.
    pub(super) fn launch(&self, instance: &str, settings: &[(&str, &str)]) -> Running {
        let mut command = self.fleet.program("rockbot-agent");
        command
            .env("ROCKBOT_SERVICE__INSTANCE", instance)
            .env("ROCKBOT_AGENT__NAME", self.agent.as_str())
            .env("ROCKBOT_AGENT__DIRECTORY", self.fleet.path("agents"))
            .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", &self.store)
            .envs(settings.iter().copied());
        match &self.model_url {
            Some(url) => {
                command.env("ROCKBOT_LLM__BASE_URL", url).env("ROCKBOT_LLM__MODEL", "gated")
            }
            None => command
                .env("ROCKBOT_LLM__PROVIDER", "scripted")
                .env("ROCKBOT_LLM__SCRIPT", self.fleet.path("script.toml")),
        };
        Running::start(command)
    }

    /// Opens the store of the conversations.
    pub(super) async fn open_store(&self) -> Stores {
        let url = StoreUrl::parse(&self.store.clone().into()).expect("its URL");
        rockbot_store_sql::connect_stores(&url, Clock::System).await.expect("the store")
    }

    /// Returns the name of a conversation's log.
    pub(super) fn log_name(&self, session: &SessionId) -> LogName {
        LogName::new(["conversation", self.agent.as_str(), session.as_str()]).expect("a name")
    }

    /// Returns the recorded entries of a conversation, up to 500.
    pub(super) async fn entries(&self, stores: &Stores, session: &SessionId) -> Vec<Value> {
        let page = stores.log.read(&self.log_name(session), 1, 500).await.expect("a page");
        let parse = |value: &[u8]| serde_json::from_slice(value).expect("an entry");
        page.iter().map(|entry| parse(&entry.value)).collect()
    }

    /// Returns the kinds of the recorded entries of a conversation.
    pub(super) async fn kinds(&self, session: &SessionId) -> Vec<String> {
        let stores = self.open_store().await;
        let entries = self.entries(&stores, session).await;
        stores.close().await;
        entries.iter().map(|entry| entry["kind"].as_str().expect("a kind").to_owned()).collect()
    }

    /// Connects a user of the agent.
    pub(super) async fn user(&self) -> User {
        User::connect(self.fleet.bus(|_| {}).await, self.agent.clone()).await
    }

    /// Waits until the [`GATED`] command runs.
    pub(super) async fn gated_command(&self) -> ProcessGroup {
        ProcessGroup::from_file(&self.fleet, "pid").await
    }

    /// Lets the [`GATED`] command end.
    pub(super) fn open_gate(&self) {
        self.fleet.write("go", "");
    }

    /// Returns the lines that the commands appended.
    pub(super) fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.fleet.path("lines")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Stops the agents in order, so that nothing is published afterwards, and checks that each of the
    /// messages of `user` has one final answer.
    pub(super) async fn finish(self, agents: Vec<Running>, user: User) {
        self.stop(agents).await;
        user.check_final_answers().await;
    }

    /// Stops the agents and the handler in order.
    pub(super) async fn stop(self, agents: Vec<Running>) {
        for agent in agents {
            agent.send(Signal::TERM);
            agent.wait().await.assert_code(0);
        }
        self.handler.send(Signal::TERM);
        self.handler.wait().await.assert_code(0);
    }
}

/// Kills a process, and waits until it is gone.
pub(super) async fn kill(mut agent: Running) {
    agent.send(Signal::KILL);
    agent.wait_for_exit().await;
}

/// Fails unless the reply is an answer of the model with this text.
#[track_caller]
pub(super) fn assert_completed(body: &ReplyBody, expected: &str) {
    let ReplyBody::Answer { text, outcome, .. } = body else { panic!("not an answer: {body:?}") };
    assert_eq!((*outcome, text.as_str()), (TurnOutcome::Completed, expected));
}

/// Returns the script of a scene for messages that contain `when`: a command in each step, and then the
/// answer `done`.
pub(super) fn scene(when: &str, commands: &[&str]) -> String {
    let mut script = format!("[[turn]]\nwhen = '{when}'\n");
    for command in commands {
        script.push_str("[[turn.call]]\nname = 'bash'\n");
        script.push_str(&format!("arguments = {{ command = '''{command}''' }}\n[[turn]]\n"));
    }
    script.push_str("text = 'done'\n");
    script
}
