//! Processes of one agent, with one store of conversations and with a store each.

use std::{fs, time::Duration};

use rockbot_contracts::InstanceId;
use rockbot_testkit::{fixture::within_timeout, store_fixture::test_postgres_url};
use rustix::process::Signal;
use tokio::{process::Command, time::interval};

use crate::{
    agents::{start_scripted, use_demo_script},
    fleet::{Fleet, assert_contains},
    http,
    process::{Exit, Running},
};

const METRIC: &str = "rockbot_agent_foreign_processes";

/// Starts a handler, in a fleet with the definition of an agent.
async fn fleet(agent: &str) -> (Fleet, Running) {
    let fleet = Fleet::new();
    fs::create_dir(fleet.path("agents")).expect("a folder");
    let definition = format!("+++\nname = '{agent}'\ndescription = 'Answers'\n+++\nAnswer.\n");
    fleet.write("agents/agent.md", &definition);
    let handler = fleet.handler("handler-1").await;
    (fleet, handler)
}

/// Returns a process of an agent with its conversations in `store`.
fn agent(fleet: &Fleet, name: &str, instance: &str, store: &str) -> Command {
    let mut command = fleet.program("rockbot-agent");
    use_demo_script(&mut command);
    command
        .env("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0")
        .env("ROCKBOT_AGENT__NAME", name)
        .env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"))
        .env("ROCKBOT_SERVICE__INSTANCE", instance)
        .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", store);
    command
}

async fn start(command: Command) -> Running {
    let mut agent = Running::start(command);
    agent.expect_log("ready").await;
    agent
}

/// Waits until a process has compared its store with the inbox, and found this number of others.
async fn wait_for_foreign(agent: &mut Running, expected: u32) {
    let admin = agent.admin_address().await;
    let mut ticks = interval(Duration::from_millis(100));
    let found = async {
        loop {
            ticks.tick().await;
            let (_, metrics) = http::request(&admin, "/metrics").await;
            let value = metrics.lines().find_map(|line| line.strip_prefix(METRIC));
            if value.and_then(|value| value.trim().parse().ok()) == Some(expected) {
                return;
            }
        }
    };
    within_timeout(METRIC, found).await;
}

async fn doctor(fleet: &Fleet, agent: &str) -> Exit {
    let mut command = fleet.program("rockbot");
    command
        .arg("doctor")
        .env("ROCKBOT_AGENT__NAME", agent)
        .env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"));
    Running::start(command).wait().await
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_separate_stores_are_reported_by_both() {
    let (fleet, _handler) = fleet("writer").await;
    let store = |name: &str| format!("sqlite:{}", fleet.path(name).display());
    let mut first = start(agent(&fleet, "writer", "one", &store("one.db"))).await;
    doctor(&fleet, "writer").await.assert_code(0);
    let mut second = start(agent(&fleet, "writer", "two", &store("two.db"))).await;
    for agent in [&mut first, &mut second] {
        wait_for_foreign(agent, 1).await;
        agent.expect_log("agent inbox has consumers with other conversations").await;
    }
    let found = doctor(&fleet, "writer").await;
    found.assert_code(1);
    let parts = ["agent writer", "different conversations", "1 other", "agent.conversations.store"];
    assert_contains(&found.stderr, &parts);

    second.send(Signal::TERM);
    second.wait().await.assert_code(0);
    wait_for_foreign(&mut first, 0).await;
    doctor(&fleet, "writer").await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_one_store_are_not_reported() {
    let url = test_postgres_url();
    // The tests share a database.
    let name = InstanceId::generate().to_string();
    let (fleet, _handler) = fleet(&name).await;
    let mut first = start(agent(&fleet, &name, "one", &url)).await;
    let mut second = start(agent(&fleet, &name, "two", &url)).await;
    // A third process with another store shows that both have compared their stores meanwhile.
    let other = format!("sqlite:{}", fleet.path("other.db").display());
    let mut third = start(agent(&fleet, &name, "three", &other)).await;
    wait_for_foreign(&mut third, 2).await;
    for agent in [&mut first, &mut second] {
        wait_for_foreign(agent, 1).await;
    }
    third.send(Signal::TERM);
    third.wait().await.assert_code(0);
    for agent in [&mut first, &mut second] {
        wait_for_foreign(agent, 0).await;
    }
    doctor(&fleet, &name).await.assert_code(0);
}

#[tokio::test]
async fn two_processes_with_conversations_in_memory_are_reported() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let mut first = start_scripted(&fleet, "rockbot-agent", &[]);
    first.expect_log("ready").await;
    let mut second = start_scripted(&fleet, "rockbot-agent", &[]);
    for agent in [&mut first, &mut second] {
        agent.expect_log("agent inbox has consumers with other conversations").await;
    }
    second.send(Signal::TERM);
    second.wait().await.assert_code(0);
    first.expect_log("all consumers of the agent inbox share its conversations again").await;
}
