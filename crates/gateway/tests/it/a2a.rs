//! Cards, messages and streams of the A2A face, and their errors.

use rockbot_gateway::{FaceName, NamePatterns, Right, Token};
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, artifact_after, message, results},
    fleet::Fleet,
    http::Request,
};

const CARD: &str = "/agents/assistant/.well-known/agent-card.json";

#[tokio::test]
async fn card_has_address_and_abilities() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let response = client.send_raw(Request::get(CARD)).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let card = response.json();
    assert_eq!(card["name"], "assistant");
    let interfaces = ["JSONRPC", "HTTP+JSON"].map(|binding| {
        json!({
            "url": format!("http://{}/agents/assistant", gateway.address),
            "protocolBinding": binding,
            "protocolVersion": "1.0",
        })
    });
    assert_eq!(card["supportedInterfaces"], json!(interfaces));
    assert_eq!(card["capabilities"]["streaming"], true);
    assert_eq!(card["capabilities"]["pushNotifications"], false);
    assert_eq!(card["skills"][0]["id"], "assistant");
    let tag = response.header("etag").unwrap();
    let again = client.send_raw(Request::get(CARD).header("if-none-match", tag)).await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let absent = CARD.replace("assistant", "absent");
    let absent = client.send_raw(Request::get(&absent)).await;
    assert_eq!(absent.json()["description"], "The agent absent.", "it does not run");
    assert_eq!(absent.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn token_reaches_its_agents_only() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let change = |token: Token| {
        let agents = NamePatterns::new(vec!["absent".to_owned()]);
        Token { agents, rights: [Right::Talk].into(), ..token }
    };
    let token = gateway.token_with("narrow", FaceName::A2a, change).await;
    let client = A2aClient::with_token(&gateway, &token);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": {"message": message("m", "hello")}});
    let unknown = client.send_raw(Request::post("/agents/unknown", &body)).await;
    assert_eq!(unknown.status, 404);
    for request in [Request::post("/agents/assistant", &body), Request::get(CARD)] {
        let refused = client.send_raw(request).await;
        assert_eq!((refused.status, &refused.body), (404, &unknown.body));
    }
    assert_eq!(fleet.model.request_count(), 0);
}

#[tokio::test]
async fn message_waits_for_its_answer() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let task = client.say(&message("m1", "hello")).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(task["status"]["timestamp"].as_str().unwrap().ends_with('Z'), "{task}");
    let artifact = json!([{"artifactId": "answer", "name": "answer",
        "parts": [{"text": "You said hello."}]}]);
    assert_eq!(task["artifacts"], artifact);
    // Later, without the turn in memory, it is the same task.
    assert_eq!(client.until(&task["id"], "TASK_STATE_COMPLETED").await["artifacts"], artifact);
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn stream_has_task_chunks_and_end() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let params = json!({"message": message("m1", "hello")});
    let streamed = results(client.open("SendStreamingMessage", &params).await).await;
    assert!(streamed[0]["task"]["id"].is_string(), "{streamed:?}");
    assert_eq!(artifact_after(&streamed), "You said hello.");
    let last = &streamed.last().unwrap()["statusUpdate"];
    assert_eq!(last["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(last["taskId"], streamed[0]["task"]["id"]);
    let chunks = streamed.iter().filter_map(|event| event.get("artifactUpdate"));
    let last_chunks: Vec<_> = chunks.map(|chunk| chunk["lastChunk"] == true).collect();
    assert_eq!(last_chunks.iter().filter(|last| **last).count(), 1);
    assert_eq!(last_chunks.last(), Some(&true));
    // The same message again is the same task, which has ended.
    let repeated = results(client.open("SendStreamingMessage", &params).await).await;
    assert_eq!(repeated.len(), 1, "{repeated:?}");
    assert_eq!(repeated[0]["task"]["id"], streamed[0]["task"]["id"]);
    assert_eq!(artifact_after(&repeated), "You said hello.");
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn context_is_a_conversation_of_one_caller() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let first = client.say(&message("m1", "one")).await;
    let in_context = |id: &str, text: &str| {
        let mut message = message(id, text);
        message["contextId"] = first["contextId"].clone();
        message
    };
    let second = client.say(&in_context("m2", "two")).await;
    assert_eq!(second["contextId"], first["contextId"]);
    assert_ne!(second["id"], first["id"]);
    assert!(fleet.model.last_user_texts().iter().any(|text| text.contains("one")));
    let other = A2aClient::new(&gateway, "other").await;
    let foreign = other.say(&in_context("m2", "three")).await;
    assert_eq!(foreign["status"]["state"], "TASK_STATE_COMPLETED");
    assert_ne!(foreign["id"], second["id"], "the same id of another caller is another message");
    assert!(!fleet.model.last_user_texts().iter().any(|text| text.contains("one")));
}

#[tokio::test]
async fn errors_have_the_codes_of_the_protocol() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let id = json!({"id": "unknown"});
    for (method, params, code) in [
        ("SendMessage", json!({}), -32602),
        ("SendMessage", json!({"message": {"messageId": "m"}}), -32602),
        ("GetTask", json!(["x"]), -32602),
        ("GetTask", id.clone(), -32001),
        ("CancelTask", id.clone(), -32001),
        ("SubscribeToTask", id.clone(), -32001),
        ("CreateTaskPushNotificationConfig", id.clone(), -32003),
        ("GetExtendedAgentCard", json!({}), -32004),
        ("message/send", json!({}), -32601),
    ] {
        assert_eq!(client.refused(method, &params).await, code, "{method}");
    }
    let error = client.call("GetTask", &id).await.unwrap_err();
    assert_eq!(error["data"][0]["reason"], "TASK_NOT_FOUND");
    assert_eq!(error["data"][0]["domain"], "a2a-protocol.org");
    assert_eq!(error["data"][0]["metadata"]["executed"], "no");
    let get = json!({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": id});
    for version in [None, Some("0.3"), Some("")] {
        let mut request = Request::post("/agents/assistant", &get);
        if let Some(version) = version {
            request = request.header("a2a-version", version);
        }
        let response: Value = client.send_raw(request).await.json();
        assert_eq!((&response["id"], &response["error"]["code"]), (&json!(7), &json!(-32009)));
    }
    let query = Request::post("/agents/assistant?A2A-Version=1.0", &get);
    assert_eq!(client.send_raw(query).await.json()["error"]["code"], -32001);
    let broken = Request::new("POST", "/agents/assistant").body("{");
    let error = client.send_raw(broken).await.json()["error"].clone();
    assert_eq!(error["code"], -32700);
    assert_eq!(error["data"][0]["metadata"]["executed"], "no");
    assert_eq!(fleet.model.request_count(), 0);
}
