//! The REST API and its event stream on a broker.

use std::collections::BTreeSet;

use rockbot_gateway::{FaceName, NamePatterns, Right, Token, TokenFile};
use rockbot_testkit::fixture::test_broker_url;
use rustix::process::Signal;
use serde_json::json;

use super::{api_client::Client, harness::GatewayFleet};
use crate::process::Running;

/// Starts a gateway that watches calls and reads dead letters.
async fn gateway(fleet: &GatewayFleet) -> (Running, Client) {
    let (mut token, secret) =
        Token::generate("api", BTreeSet::from([FaceName::Console])).expect("a token");
    token.rights = Right::ALL.into();
    token.agents = NamePatterns::all();
    TokenFile { tokens: vec![token] }.write(&fleet.fleet.path("tokens.toml")).expect("written");
    let broker = test_broker_url();
    let settings = [
        ("ROCKBOT_GATEWAY__WATCH__URL", broker.as_str()),
        ("ROCKBOT_GATEWAY__LETTERS__URL", broker.as_str()),
    ];
    let (gateway, address) = fleet.gateway_with("gateway-0", &settings).await;
    (gateway, Client { address, token: secret })
}

#[tokio::test]
async fn conversation_continues_after_cuts_and_a_killed_gateway() {
    let fleet = GatewayFleet::start().await;
    let (running, client) = gateway(&fleet).await;
    let id = client.start_conversation().await;
    let topics = format!("conversation:{id},calls");
    let mut stream = client.stream(&topics, None).await;
    stream.until(|data| data["snapshot"] == true).await;
    let sent = client.say(&id, "tools").await;
    for _ in 0..4 {
        assert_eq!(client.say(&id, "tools").await["messageId"], sent["messageId"]);
    }
    let started = stream.until(|data| data["kind"] == "tool_started").await;
    let (last, data) = started.last().expect("an event");
    assert!(data["arguments"].as_str().expect("text").contains("runs.txt"), "{data}");
    let last = last.clone();
    drop(stream);
    let mut stream = client.stream(&topics, Some(&last)).await;
    let rest = stream.until(|data| data["kind"] == "answer").await;
    let finished = rest.iter().find(|(_, data)| data["kind"] == "tool_finished");
    assert!(finished.expect("the end of the call").1["result"].to_string().contains("a result"));
    let answer = &rest.last().expect("an event").1;
    assert!(answer["text"].as_str().expect("text").starts_with("It says:"), "{answer}");
    let calls = client.get("/calls?filter=tool:bash").await;
    assert_eq!(calls["calls"][0]["executed"], "yes", "{calls}");
    let fleet_state = client.get("/fleet").await;
    assert_eq!(fleet_state["agents"][0]["state"], "running", "{fleet_state}");
    assert_eq!(fleet_state["handlers"].as_array().map(Vec::len), Some(1), "{fleet_state}");
    running.send(Signal::KILL);
    drop((running, stream));
    let (_restarted, client) = gateway(&fleet).await;
    let repeated = client.say(&id, "tools").await;
    assert_eq!(
        (&repeated["messageId"], &repeated["state"]),
        (&sent["messageId"], &json!("repeated"))
    );
    let snapshot = client.get(&format!("/conversations/{id}")).await;
    let history = snapshot["history"].as_array().expect("items");
    assert_eq!(history.iter().filter(|item| item["kind"] == "answer").count(), 1, "{snapshot}");
    assert_eq!(fleet.runs(), 1);
    let mut stream = client.stream(&topics, Some(&last)).await;
    let reset = stream.until(|data| data["reason"] == "epoch").await;
    assert_eq!(reset.last().expect("an event").1["topic"], format!("conversation:{id}"));
}
