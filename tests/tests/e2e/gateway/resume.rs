//! Streams that continue at another gateway, after one was killed.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    api_client::{A2A_VERSION, Client, EventReader, a2a_message, rpc_request},
    harness::{GatewayFleet, Gateways},
};
use crate::fleet::ProcessGroup;

/// Opens the stream of an A2A request.
async fn open(client: &Client, method: &str, params: &Value) -> EventReader {
    let body = rpc_request(method, params).to_string();
    EventReader::new(client.send("POST", "/agents/assistant", A2A_VERSION, &body).await)
}

fn is_end(data: &Value) -> bool {
    data["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
}

/// Returns whether an event says that the tool runs.
fn calls_tool(data: &Value) -> bool {
    data.to_string().contains("calls the tool bash")
}

#[tokio::test]
async fn subscription_continues_at_the_other_gateway_after_a_kill() {
    let fleet = GatewayFleet::start().await;
    let gateways = Gateways::start(&fleet).await;
    let params = a2a_message("sleep");
    let mut stream = open(&gateways.at_first, "SendStreamingMessage", &params).await;
    let mut seen = stream.until(calls_tool).await;
    let command = ProcessGroup::from_file(&fleet.fleet, "pid.txt").await;
    let id = seen[0].1["result"]["task"]["id"].clone();
    // Two cuts by a killed gateway and a lost connection, in the middle of the turn.
    gateways.first.send(Signal::KILL);
    drop((gateways.first, stream));
    for _ in 0..2 {
        let mut cut = open(&gateways.at_second, "SubscribeToTask", &json!({"id": id})).await;
        let first = cut.until(|data| data["result"]["task"].is_object()).await;
        assert_eq!(first.len(), 1, "{first:?}");
        assert_eq!(first[0].1["result"]["task"]["status"]["state"], "TASK_STATE_WORKING");
    }
    let mut rest = open(&gateways.at_second, "SubscribeToTask", &json!({"id": id})).await;
    seen.extend(rest.until(|data| data["result"]["task"].is_object()).await);
    drop(command);
    let after = rest.until(is_end).await;
    // The same message at the other gateway is the same task.
    let mut repeated = open(&gateways.at_second, "SendStreamingMessage", &params).await;
    let repeated = repeated.until(|data| data["result"]["task"].is_object()).await;
    let task = &repeated[0].1["result"]["task"];
    assert_eq!((&task["id"], &task["status"]["state"]), (&id, &json!("TASK_STATE_COMPLETED")));
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Awake.");

    assert!(seen.iter().filter(|(_, data)| calls_tool(data)).count() == 1, "{seen:?}");
    assert!(!seen.iter().any(|(_, data)| is_end(data)), "{seen:?}");
    assert!(!after.iter().any(|(_, data)| calls_tool(data)), "{after:?}");
    let chunks: Vec<_> = after
        .iter()
        .map(|(_, data)| &data["result"]["artifactUpdate"])
        .filter(|c| c.is_object())
        .collect();
    let mut answer = String::new();
    for chunk in &chunks {
        if chunk["append"] == false {
            answer.clear();
        }
        answer += chunk["artifact"]["parts"][0]["text"].as_str().expect("text");
    }
    assert_eq!(answer, "Awake.");
    assert_eq!(chunks.iter().filter(|chunk| chunk["lastChunk"] == true).count(), 1, "{chunks:?}");
}

/// Returns the epoch and the number of an event's id.
fn position(id: &str) -> (String, u64) {
    let (epoch, number) = id.rsplit_once('-').expect("an epoch and a number");
    (epoch.to_owned(), number.parse().expect("a number"))
}

#[tokio::test]
async fn event_stream_continues_at_the_other_gateway_after_a_kill() {
    let fleet = GatewayFleet::start().await;
    let gateways = Gateways::start(&fleet).await;
    let (first, second) = (&gateways.at_first, &gateways.at_second);
    let id = first.start_conversation().await;
    let topic = format!("conversation:{id}");
    let mut stream = first.stream(&topic, None).await;
    let sent = first.say(&id, "sleep").await;
    let before = stream.until(|data| data["kind"] == "tool_started").await;
    let last = before.last().expect("an event").0.clone();
    let command = ProcessGroup::from_file(&fleet.fleet, "pid.txt").await;
    gateways.first.send(Signal::KILL);
    drop(stream);

    // The other gateway has other ids and reports that: the client reads the conversation, and continues after it.
    let mut stream = second.stream(&topic, Some(&last)).await;
    let reset = stream.until(|data| data["reason"] == "epoch").await;
    assert_eq!(reset.last().expect("an event").1["topic"], topic);
    drop(stream);
    let snapshot = second.get(&format!("/conversations/{id}")).await;
    assert!(!snapshot["history"].to_string().contains("Awake."), "{snapshot}");
    let after = snapshot["lastEventId"].as_str().expect("an id").to_owned();
    let mut stream = second.stream(&topic, Some(&after)).await;
    drop(command);
    let mut events = stream.until(|data| data["kind"] == "tool_finished").await;
    // A lost connection at the same gateway continues after the last event.
    let last = events.last().expect("an event").0.clone();
    drop(stream);
    let mut stream = second.stream(&topic, Some(&last)).await;
    events.extend(stream.until(|data| data["kind"] == "answer").await);

    let numbered: Vec<_> = events.iter().filter(|(id, _)| !id.is_empty()).collect();
    let positions: Vec<_> = numbered.iter().map(|(id, _)| position(id)).collect();
    assert!(positions.is_sorted_by(|one, next| one.0 == next.0 && one.1 < next.1), "{positions:?}");
    let count = |kind: &str| events.iter().filter(|(_, data)| data["kind"] == kind).count();
    assert_eq!(
        (count("tool_started"), count("tool_finished"), count("answer"), count("reset")),
        (0, 1, 1, 0),
        "{events:?}"
    );
    let repeated = second.say(&id, "sleep").await;
    assert_eq!(
        (&repeated["messageId"], &repeated["state"]),
        (&sent["messageId"], &json!("repeated"))
    );
}
