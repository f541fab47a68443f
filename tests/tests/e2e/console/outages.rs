//! The console while a program of its fleet is killed in mid-turn.

use rockbot_testkit::broker::PrivateBroker;
use rustix::process::Signal;

use super::browse;
use crate::{
    fleet::{Fleet, ProcessGroup},
    process::{Exit, Running},
};

/// The script of the model.
const MODEL: &str = include_str!("../../../../web/tests/program/outages.toml");

/// A fleet of separate programs, and the link that its gateway printed.
struct Programs<'a> {
    fleet: &'a Fleet,
    broker: Option<String>,
    handler: Running,
    agent: Running,
    gateway: Running,
    link: String,
}

impl<'a> Programs<'a> {
    /// Starts the programs on the test broker, or on the one with this URL.
    async fn start(fleet: &'a Fleet, broker: Option<String>) -> Self {
        fleet.write("model.toml", MODEL);
        let settings: Vec<_> = broker.iter().map(|url| ("ROCKBOT_BUS__URL", &**url)).collect();
        let handler = fleet.handler_with("handler-1", &settings).await;
        let agent = start_agent(fleet, broker.as_deref()).await;
        let mut gateway = fleet.program("rockbot-gateway");
        gateway.env("ROCKBOT_GATEWAY__ADDRESS", "127.0.0.1:0").envs(settings);
        let mut gateway = Running::start(gateway);
        gateway.expect_log("ready").await;
        gateway.expect_log("/#login=").await;
        let log = gateway.log();
        let link = log.split_whitespace().find(|word| word.contains("/#login="));
        let link = link.expect("a login link").to_owned();
        Self { fleet, broker, handler, agent, gateway, link }
    }

    /// Runs the browser test with this name, and `kill` beside it. Programs that `kill` returns run until the end of the
    /// test.
    async fn run<T>(&self, test: &str, kill: impl Future<Output = T>) {
        let kill = async {
            self.fleet.wait_for_file("kill").await;
            // It ends the command of the killed handler.
            let _group = ProcessGroup::from_file(self.fleet, "pid").await;
            let _programs = kill.await;
            std::future::pending::<()>().await;
        };
        let tests = ["outages.spec.ts", "--grep", test];
        tokio::select! {
            exit = browse(self.fleet, &self.link, &tests) => {
                let (agent, gateway) = (self.agent.log(), self.gateway.log());
                let Exit { code, stdout, stderr } = exit;
                assert_eq!(code, Some(0), "\n{stdout}\n{stderr}\n{agent}\n{gateway}");
            }
            () = kill => {}
        }
    }

    fn killed(&self) {
        self.fleet.write("killed", "1");
    }
}

async fn start_agent(fleet: &Fleet, broker: Option<&str>) -> Running {
    let mut agent = fleet.program("rockbot-agent");
    let conversations = format!("sqlite:{}", fleet.path("conversations.db").display());
    agent
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("model.toml"))
        .env("ROCKBOT_MEMORY__STORE", "memory:")
        .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", conversations)
        .envs(broker.map(|url| ("ROCKBOT_BUS__URL", url)));
    let mut agent = Running::start(agent);
    agent.expect_log("handler announced its tools").await;
    agent.expect_log("ready").await;
    agent
}

#[tokio::test]
async fn killed_agent_leaves_a_call_with_its_time() {
    let fleet = Fleet::new();
    let programs = Programs::start(&fleet, None).await;
    let kill = async {
        programs.agent.send(Signal::KILL);
        programs.killed();
        fleet.wait_for_file("restart").await;
        start_agent(&fleet, programs.broker.as_deref()).await
    };
    programs.run("killed agent", kill).await;
}

#[tokio::test]
async fn killed_handler_leaves_an_unknown_outcome() {
    let fleet = Fleet::new();
    let programs = Programs::start(&fleet, None).await;
    let kill = async {
        let second = fleet.handler("handler-2").await;
        programs.handler.send(Signal::KILL);
        programs.killed();
        second
    };
    programs.run("killed handler", kill).await;
}

#[tokio::test]
async fn killed_gateway_is_reported_with_the_next_attempt() {
    let fleet = Fleet::new();
    let programs = Programs::start(&fleet, None).await;
    let kill = async {
        programs.gateway.send(Signal::KILL);
        programs.killed();
    };
    programs.run("killed gateway", kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_broker_leaves_a_call_with_its_time() {
    let fleet = Fleet::new();
    let broker = tokio::task::spawn_blocking(PrivateBroker::start).await.expect("no panic");
    let mut broker = broker.expect("a broker");
    let programs = Programs::start(&fleet, Some(broker.amqp_url())).await;
    let kill = async {
        let crashed = tokio::task::spawn_blocking(move || {
            broker.crash().expect("crashed");
            broker
        });
        let mut broker = crashed.await.expect("no panic");
        programs.killed();
        fleet.wait_for_file("restart").await;
        let restarted = tokio::task::spawn_blocking(move || {
            broker.restart().expect("restarted");
            broker
        });
        restarted.await.expect("no panic")
    };
    programs.run("killed broker", kill).await;
}
