//! The commands for stored conversations, over the broker and with a broker user per process.

use serde_json::Value;
use tokio::process::Command;

use super::harness::{kill, scene};
use crate::{
    fleet::assert_contains,
    identity::SecuredFleet,
    process::{Exit, Running},
};

/// A message that is no tool's output.
const HERON: &str = "a heron stands there";

async fn start_agent(secured: &SecuredFleet) -> Running {
    let script = secured.fleet.write("script.toml", &scene("stands", &[]));
    let store = format!("sqlite:{}", secured.fleet.path("conversations.db").display());
    let mut command = secured.program("rockbot-agent", "agent.assistant");
    command
        .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", store)
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script);
    let mut agent = Running::start(command);
    agent.expect_log("ready").await;
    agent
}

async fn run_as(secured: &SecuredFleet, user: &str, arguments: &[&str]) -> Exit {
    let mut command: Command = secured.program("rockbot", user);
    command.args(arguments);
    Running::start(command).wait().await
}

/// Returns the conversations that `user` sees.
async fn list(secured: &SecuredFleet, user: &str) -> Vec<Value> {
    let listed = run_as(secured, user, &["--json", "sessions", "list"]).await;
    listed.assert_code(0);
    listed.json().as_array().expect("a list").clone()
}

#[tokio::test]
async fn conversations_outlive_agent_and_belong_to_their_user() {
    let secured = SecuredFleet::start().await;
    let agent = start_agent(&secured).await;
    secured.cli(&["chat", HERON]).await.assert_code(0);
    kill(agent).await;

    let _restarted = start_agent(&secured).await;
    let listed = list(&secured, "cli").await;
    let [conversation] = listed.as_slice() else { panic!("{listed:#?}") };
    let session = conversation["sessionId"].as_str().expect("an id");
    let shown = secured.cli(&["sessions", "show", session]).await;
    shown.assert_code(0);
    assert_contains(&shown.stdout, &[HERON, "done"]);
    secured.cli(&["chat", "--continue", "another one stands"]).await.assert_code(0);
    secured.cli(&["chat", "--session", session, "a third stands"]).await.assert_code(0);
    let exported = secured.cli(&["sessions", "export", session]).await;
    exported.assert_code(0);
    assert_contains(&exported.stdout, &[HERON, "another one stands", "a third stands"]);
    assert!(exported.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));

    assert_eq!(list(&secured, "foreign").await, Vec::<Value>::new());
    for arguments in
        [["show", session].as_slice(), &["export", session], &["delete", session, "--yes"]]
    {
        let refused = run_as(&secured, "foreign", &[&["sessions"], arguments].concat()).await;
        assert_ne!(refused.code, Some(0), "{arguments:?}: {}", refused.stdout);
        assert!(!refused.stdout.contains(HERON), "{}", refused.stdout);
    }
    let turns = list(&secured, "cli").await[0]["turns"].clone();
    assert_eq!(turns, 3);
    secured.cli(&["sessions", "delete", session, "--yes"]).await.assert_code(0);
    assert_eq!(list(&secured, "cli").await, Vec::<Value>::new());
    assert_ne!(secured.cli(&["sessions", "show", session]).await.code, Some(0));
}

#[tokio::test]
async fn other_user_cannot_continue_conversation() {
    let secured = SecuredFleet::start().await;
    let _agent = start_agent(&secured).await;
    secured.cli(&["chat", HERON]).await.assert_code(0);
    let listed = list(&secured, "cli").await;
    let session = listed[0]["sessionId"].as_str().expect("an id");
    let intruder = ["chat", "--session", session, "what stands there?"];
    let refused = run_as(&secured, "foreign", &intruder).await;
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);
    assert_eq!(list(&secured, "cli").await[0]["turns"], 1);
}
