//! Work that conversations delegated.

use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};

use crate::{
    api_harness::{ApiGateway, Person},
    fleet::Fleet,
};

/// Waits until the state of the only task of a person is `state`, and returns the page.
async fn until(person: &Person, state: &str) -> Value {
    within_timeout("the state of the task", async {
        loop {
            let page = person.read("/tasks").await;
            if page["agents"][0]["conversations"][0]["tasks"][0]["state"] == state {
                return page;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_own_conversations_are_shown_with_their_spending() {
    let fleet = Fleet::delegating().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let (ada, bob) = (gateway.person("ada"), gateway.member("bob", "talkers"));
    let none = ada.read("/tasks").await;
    let agent =
        json!({"agent": "assistant", "state": "running", "limited": false, "conversations": []});
    assert_eq!(none, json!({"agents": [agent]}));
    fleet.call_next("spawn_subagent", &json!({"description": "wait for it"}).to_string());
    let conversation = ada.converse().await;
    assert_eq!(ada.say(&conversation, "some-key", "go").await.status, 202);
    let page = until(&ada, "running").await;
    let tree = &page["agents"][0]["conversations"][0];
    assert_eq!(tree["conversation"]["id"], conversation.as_str());
    let task = &tree["tasks"][0];
    assert_eq!((&task["description"], &task["ended"]), (&json!("wait for it"), &json!(false)));
    assert_eq!(task.get("agent"), None, "{task}");
    // Its first request to the model waits.
    let calls = &task["usage"]["modelCalls"];
    assert!([json!(0), json!(null)].contains(calls), "{task}");
    let others = bob.read("/tasks").await;
    assert_eq!(others["agents"][0]["conversations"], json!([]), "tasks belong to their person");
    fleet.model.gate.add_permits(1);
    let page = until(&ada, "completed").await;
    let task = &page["agents"][0]["conversations"][0]["tasks"][0];
    assert_eq!((&task["ended"], &task["usage"]["modelCalls"]), (&json!(true), &json!(1)));
    assert!(task["endedMs"].as_u64().unwrap() >= task["createdMs"].as_u64().unwrap());
}
