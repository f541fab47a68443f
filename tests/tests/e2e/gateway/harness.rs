//! A fleet with an agent of a scripted model, and gateways in front of it.

use std::{collections::BTreeSet, path::PathBuf};

use rockbot_gateway::{FaceName, NamePatterns, Right, Token, TokenFile};
use rockbot_testkit::fixture::test_broker_url;
use serde_json::Value;
use tokio::process::Command;

use super::api_client::Client;
use crate::{
    fleet::Fleet,
    process::{Exit, Running},
};

/// The script of the model.
pub(super) const SCRIPT: &str = r#"
[[turn]]
text = "An answer."

[[turn]]
when = "tools"
text = "I look."
[[turn.call]]
name = "bash"
arguments = { command = "echo line >> runs.txt; echo a result" }

[[turn]]
when = "tools"
text = "It says: {{result.bash}}"

[[turn]]
when = "second"
text = "The second answer."

[[turn]]
when = "fail"
fail = "rejected"

[[turn]]
when = "sleep"
[[turn.call]]
name = "bash"
arguments = { command = "echo $$ > pid.txt; exec sleep 600" }

[[turn]]
when = "sleep"
text = "Awake."

[[turn]]
when = "gate"
[[turn.call]]
name = "bash"
arguments = { command = "echo line >> runs.txt; until [ -e go ]; do sleep 0.05; done; echo a result" }

[[turn]]
when = "gate"
text = "It says: {{result.bash}}"

[[turn]]
when = "steps"
[[turn.call]]
name = "bash"
arguments = { command = "until [ -e go-1 ]; do sleep 0.05; done; echo 1 >> runs.txt" }

[[turn]]
when = "steps"
[[turn.call]]
name = "bash"
arguments = { command = "until [ -e go-2 ]; do sleep 0.05; done; echo 2 >> runs.txt" }

[[turn]]
when = "steps"
[[turn.call]]
name = "bash"
arguments = { command = "until [ -e go-3 ]; do sleep 0.05; done; echo 3 >> runs.txt" }

[[turn]]
when = "steps"
text = "Three steps were taken."
"#;

/// A fleet with a tool handler and an agent.
pub(super) struct GatewayFleet {
    pub(super) fleet: Fleet,
    pub(super) token: String,
    _handler: Running,
    _agent: Running,
}

impl GatewayFleet {
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a fleet whose handler and agent have further settings.
    pub(super) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let fleet = Fleet::new();
        fleet.write("script.toml", SCRIPT);
        let faces = BTreeSet::from([FaceName::Openai]);
        let (token, secret) = Token::generate("tests", faces).expect("a token");
        let token = Token { rights: [Right::Talk].into(), agents: NamePatterns::all(), ..token };
        TokenFile { tokens: vec![token] }.write(&fleet.path("tokens.toml")).expect("written");
        let handler = fleet.handler_with("handler-1", settings).await;
        let mut agent = fleet.program("rockbot-agent");
        let conversations = format!("sqlite:{}", fleet.path("conversations.db").display());
        agent
            .env("ROCKBOT_LLM__PROVIDER", "scripted")
            .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"))
            .env("ROCKBOT_MEMORY__STORE", "memory:")
            .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", conversations)
            .envs(settings.iter().copied());
        let mut agent = Running::start(agent);
        agent.expect_log("ready").await;
        Self { fleet, token: secret, _handler: handler, _agent: agent }
    }

    /// Starts a gateway, and returns it with its address.
    pub(super) async fn gateway(&self, instance: &str) -> (Running, String) {
        self.gateway_with(instance, &[]).await
    }

    /// Starts a gateway with further settings.
    pub(super) async fn gateway_with(
        &self,
        instance: &str,
        settings: &[(&str, &str)],
    ) -> (Running, String) {
        let mut command = self.fleet.program("rockbot-gateway");
        let store = format!("sqlite:{}", self.fleet.path("gateway.db").display());
        command
            .env("ROCKBOT_SERVICE__INSTANCE", instance)
            .env("ROCKBOT_GATEWAY__ADDRESS", "127.0.0.1:0")
            .env("ROCKBOT_GATEWAY__MESSAGES_PER_MINUTE", "6000")
            .env("ROCKBOT_GATEWAY__TOKENS", self.fleet.path("tokens.toml"))
            .env("ROCKBOT_GATEWAY__STORE", store)
            .envs(settings.iter().copied());
        let mut gateway = Running::start(command);
        gateway.expect_log("ready").await;
        let log = gateway.log();
        let (_, rest) = log.rsplit_once("address=").expect("an address");
        let address = rest.split_whitespace().next().expect("an address").to_owned();
        (gateway, address)
    }

    /// Starts a gateway with all faces.
    pub(super) async fn gateway_with_all_faces(&self, instance: &str) -> (Running, String) {
        self.gateway_with_all_faces_and(instance, &[]).await
    }

    /// Starts a gateway with all faces and further settings.
    pub(super) async fn gateway_with_all_faces_and(
        &self,
        instance: &str,
        settings: &[(&str, &str)],
    ) -> (Running, String) {
        let broker = test_broker_url();
        let faces = [
            ("ROCKBOT_GATEWAY__FACES", r#"["console", "openai", "a2a", "mcp"]"#),
            ("ROCKBOT_GATEWAY__CALLS__URL", broker.as_str()),
        ];
        self.gateway_with(instance, &[&faces[..], settings].concat()).await
    }

    /// Makes a token for all faces, agents and tools the only one. Gateways that start later know it.
    pub(super) fn token_for_all_faces(&self) -> String {
        let (token, secret) = Token::generate("all", FaceName::ALL.into()).expect("a token");
        let (rights, every) = ([Right::Talk].into(), NamePatterns::all());
        let token = Token { rights, agents: every.clone(), tools: every, ..token };
        TokenFile { tokens: vec![token] }.write(&self.fleet.path("tokens.toml")).expect("written");
        secret
    }

    /// Starts a scenario of a client against the gateway at `address`.
    pub(super) fn client(&self, program: &str, arguments: &[&str], address: &str) -> Running {
        client(program, arguments, address, &self.token)
    }

    /// Runs a scenario and returns its outcome.
    pub(super) async fn outcome(&self, program: &str, arguments: &[&str], address: &str) -> Value {
        let exit: Exit = self.client(program, arguments, address).wait().await;
        exit.assert_code(0);
        exit.json()
    }

    /// Returns how often the tool of the script has run.
    pub(super) fn runs(&self) -> usize {
        let runs = std::fs::read_to_string(self.fleet.path("runs.txt"));
        runs.unwrap_or_default().lines().count()
    }
}

/// Two gateways with all faces and one store, and a program that may use all of them.
pub(super) struct Gateways {
    pub(super) first: Running,
    pub(super) at_first: Client,
    pub(super) second: Running,
    pub(super) at_second: Client,
}

impl Gateways {
    pub(super) async fn start(fleet: &GatewayFleet) -> Self {
        let token = fleet.token_for_all_faces();
        let (first, first_address) = fleet.gateway_with_all_faces("gateway-0").await;
        let (second, second_address) = fleet.gateway_with_all_faces("gateway-1").await;
        let client = |address| Client { address, token: token.clone() };
        Self { first, at_first: client(first_address), second, at_second: client(second_address) }
    }
}

/// Starts a scenario of a client with this token.
pub(crate) fn client(program: &str, arguments: &[&str], address: &str, token: &str) -> Running {
    let folder = std::env::var_os("ROCKBOT_TEST_OPENAI_CLIENTS")
        .expect("ROCKBOT_TEST_OPENAI_CLIENTS is not set: run the tests with `cargo xtask test`");
    let mut command = Command::new(PathBuf::from(folder).join(program));
    let (scenario, rest) = arguments.split_first().expect("a scenario");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("OPENAI_API_KEY", token)
        .arg(scenario)
        .arg(format!("http://{address}/v1"))
        .args(rest);
    Running::start(command)
}
