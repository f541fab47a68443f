//! Responses to requests of MCP servers for input, over the API.

use serde_json::{Value, json};

use crate::{
    api_harness::{ApiGateway, EventReader, Person},
    fleet::Fleet,
};

async fn result(stream: &mut EventReader) -> Value {
    let finished = stream.until_kind("tool_finished").await.pop().unwrap().data;
    finished["result"].clone()
}

async fn answer(person: &Person, conversation: &str, input: &str, body: Value) -> (u16, Value) {
    let path = format!("/conversations/{conversation}/inputs/{input}");
    let response = person.post(&path, &body).await;
    (response.status, response.json())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_response_of_the_owner_reaches_the_tool() {
    let fleet = Fleet::asking_for_input().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let (ada, eve) = (gateway.person("ada"), gateway.person("eve"));
    let conversation = ada.converse().await;
    let mut stream = ada.stream(&format!("conversation:{conversation}"), None).await;
    let share = ada.post(&format!("/conversations/{conversation}/share"), &json!({})).await.json();
    let share = format!("shared:{}", share["shareId"].as_str().unwrap());
    let mut shared = eve.stream(&share, None).await;
    ada.say_with_input(&conversation, "key-00001").await;
    let shown = shared.until_kind("input_asked").await.pop().unwrap().data["request"].clone();
    assert_eq!(shown, json!({"server": "paint", "message": "", "mode": "other"}));
    let asked = stream.until_kind("input_asked").await.pop().unwrap().data;
    assert_eq!(
        (&asked["request"]["server"], &asked["request"]["fields"][0]["name"]),
        (&json!("paint"), &json!("color"))
    );
    let input = asked["inputId"].as_str().unwrap();
    let red = json!({"action": "accept", "content": {"color": "red"}});
    assert_eq!(answer(&eve, &conversation, input, red.clone()).await.0, 404);
    for invalid in [
        json!({"action": "accept", "content": {"color": "blue"}}),
        json!({"action": "accept"}),
        json!({"action": "maybe"}),
    ] {
        assert_eq!(answer(&ada, &conversation, input, invalid.clone()).await.0, 400, "{invalid}");
    }
    assert_eq!(answer(&ada, &conversation, "unknown", red.clone()).await.0, 404);
    assert_eq!(answer(&ada, &conversation, input, red.clone()).await.0, 202);
    let closed = stream.until_kind("input_closed").await.pop().unwrap().data;
    assert_eq!((&closed["inputId"], &closed["outcome"]), (&json!(input), &json!("accept")));
    let got: Value = serde_json::from_str(result(&mut stream).await.as_str().unwrap()).unwrap();
    assert_eq!(got, red);
    assert_eq!(answer(&ada, &conversation, input, red).await.0, 404, "it is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_without_a_client_for_input_has_no_user() {
    let fleet = Fleet::asking_for_input().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let ada = gateway.person("ada");
    let conversation = ada.converse().await;
    let mut stream = ada.stream(&format!("conversation:{conversation}"), None).await;
    ada.say(&conversation, "key-00001", "go on").await;
    assert_eq!(result(&mut stream).await, "no user");
}
