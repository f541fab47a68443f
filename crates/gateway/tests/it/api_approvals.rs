//! Decisions on approval requests over the API.

use rockbot_llm::ChatMessage;
use serde_json::{Value, json};

use crate::{
    api_harness::{ApiGateway, EventReader, Person},
    fleet::Fleet,
};

/// A conversation whose turn waits for a decision.
struct Waiting {
    fleet: Fleet,
    _gateway: ApiGateway,
    ada: Person,
    conversation: String,
    stream: EventReader,
    request: Value,
}

impl Waiting {
    async fn start() -> Self {
        let fleet = Fleet::asking("edit", "{\"path\":\"notes.md\"}", "edited").await;
        let gateway = ApiGateway::start(&fleet, "g1").await;
        let ada = gateway.person("ada");
        let conversation = ada.converse().await;
        let mut stream = ada.stream(&format!("conversation:{conversation}"), None).await;
        ada.say(&conversation, "key-00001", "go on").await;
        let asked = stream.until_kind("approval_asked").await;
        let request = asked.last().unwrap().data.clone();
        Self { fleet, _gateway: gateway, ada, conversation, stream, request }
    }

    async fn decide(&self, body: Value) -> (u16, Value) {
        let approval = self.request["approvalId"].as_str().unwrap();
        let path = format!("/conversations/{}/approvals/{approval}", self.conversation);
        let response = self.ada.post(&path, &body).await;
        (response.status, response.json())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denial_closes_the_request_and_its_reason_reaches_the_model() {
    let mut waiting = Waiting::start().await;
    let request = waiting.request.clone();
    assert_eq!(request["arguments"], "{\"path\":\"notes.md\"}");
    assert_eq!(
        (&request["rule"], &request["hints"]["destructive"]),
        (&json!("default policy"), &json!(true))
    );
    let hash = request["callHash"].clone();
    let wrong = waiting.decide(json!({"callHash": "0", "decision": "allow"})).await;
    assert_eq!((wrong.0, &wrong.1["code"]), (409, &json!("hash_mismatch")));
    let unknown = waiting.decide(json!({"callHash": hash, "decision": "maybe"})).await;
    assert_eq!(unknown.0, 400);
    let denied = json!({"callHash": hash, "decision": "deny", "reason": "Show me a diff first."});
    assert_eq!(waiting.decide(denied.clone()).await.0, 202);
    let closed = waiting.stream.until_kind("approval_closed").await.pop().unwrap().data;
    assert_eq!((&closed["decision"], &closed["by"]), (&json!("deny"), &json!("ada")));
    waiting.stream.until_kind("answer").await;
    let messages = waiting.fleet.model.requests.lock().last().unwrap().messages.clone();
    let results: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            ChatMessage::Tool { content, .. } => Some(content.clone()),
            _ => None,
        })
        .collect();
    assert!(results[0].contains("Show me a diff first."), "{results:?}");
    let again = waiting.decide(denied).await;
    assert_eq!((again.0, &again.1["code"]), (409, &json!("approval_closed")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allowed_call_runs_and_shows_its_result() {
    let mut waiting = Waiting::start().await;
    let hash = waiting.request["callHash"].clone();
    assert_eq!(waiting.decide(json!({"callHash": hash, "decision": "allow"})).await.0, 202);
    let events = waiting.stream.until_kind("tool_finished").await;
    let finished = &events.last().unwrap().data;
    assert_eq!((&finished["result"], &finished["executed"]), (&json!("edited"), &json!("yes")));
    waiting.stream.until_kind("answer").await;
}
