//! Responses: whole, streamed, continued, read again, and their errors.

use std::net::SocketAddr;

use rockbot_contracts::AgentName;
use rockbot_gateway::{FaceName, Right};
use rockbot_llm::Usage;
use rockbot_testkit::fixture::{wait_until, within_timeout};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    http::{Request, Response, Stream},
    openai_approvals::approval_in,
};

/// A program with a token.
struct Program {
    address: SocketAddr,
    token: String,
}

impl Program {
    async fn new(gateway: &TestGateway) -> Self {
        Self { address: gateway.address, token: gateway.openai_token().await }
    }

    fn request(&self, text: &str, extra: &Value) -> Request {
        let mut body = json!({"model": "assistant", "input": text});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        Request::post("/v1/responses", &body).token(&self.token)
    }

    async fn send(&self, request: Request) -> Response {
        request.send(self.address).await
    }

    async fn create(&self, text: &str, extra: &Value) -> Value {
        let response = self.send(self.request(text, extra)).await;
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    }

    async fn open(&self, text: &str) -> Stream {
        self.request(text, &json!({"stream": true})).open(self.address).await
    }

    async fn call(&self, method: &str, response: &Value) -> Response {
        let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
        self.send(Request::new(method, &path).token(&self.token)).await
    }

    async fn read(&self, response: &Value) -> Value {
        let read = self.call("GET", response).await;
        assert_eq!(read.status, 200, "{}", read.body);
        read.json()
    }
}

/// Starts a fleet with a gateway and a program.
async fn start() -> (Fleet, TestGateway, Program) {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let program = Program::new(&gateway).await;
    (fleet, gateway, program)
}

/// Returns the events of a stream, whose names and numbers are as they must be.
fn events(response: &Response) -> Vec<Value> {
    let events = response.body.split("\n\n").filter(|event| !event.is_empty());
    let events = events.filter_map(|event| event.strip_prefix("event: ")?.split_once("\ndata: "));
    let events: Vec<Value> = events
        .map(|(name, data)| {
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["type"], name);
            data
        })
        .collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    events
}

async fn finish(stream: Stream) -> Vec<Value> {
    events(&stream.finish().await)
}

fn text(response: &Value) -> &str {
    let items = response["output"].as_array().unwrap();
    let item = items.iter().find(|item| item["type"] == "message").unwrap();
    item["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn whole_response_has_answer_and_usage() {
    let (fleet, _gateway, program) = start().await;
    let usage = Usage { prompt_tokens: 11, completion_tokens: 3, ..Usage::default() };
    fleet.model.answer_next("Hi.", usage);
    let extra = json!({"metadata": {"a": "b"}, "instructions": "Be kind.", "temperature": 1});
    let response = program.create("hello", &extra).await;
    assert_eq!(
        (&response["object"], &response["status"]),
        (&json!("response"), &json!("completed"))
    );
    assert_eq!((text(&response), &response["model"]), ("Hi.", &json!("assistant")));
    assert_eq!(
        (&response["metadata"]["a"], &response["instructions"]),
        (&json!("b"), &json!("Be kind."))
    );
    let usage = &response["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"], &usage["total_tokens"]),
        (&json!(11), &json!(3), &json!(14))
    );
    let said = fleet.model.last_user_texts().pop().unwrap();
    assert!(said.contains("Be kind.") && said.ends_with("hello"), "{said}");
}

#[tokio::test]
async fn stream_has_the_events_of_items_and_parts() {
    let (_fleet, _gateway, program) = start().await;
    let events = finish(program.open("hello").await).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let is_delta = |kind: &&str| *kind == "response.output_text.delta";
    let deltas: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(deltas, "You said hello.");
    let others: Vec<_> = kinds.iter().copied().filter(|kind| !is_delta(kind)).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(others, expected);
    let last = &events.last().unwrap()["response"];
    assert_eq!((text(last), &last["status"]), ("You said hello.", &json!("completed")));
    assert!(last["usage"].is_object());
    assert_eq!(last["id"], events[0]["response"]["id"]);
    assert_eq!(text(&program.read(last).await), "You said hello.");
}

#[tokio::test]
async fn previous_response_continues_its_conversation_at_any_gateway() {
    let fleet = Fleet::start().await;
    let gateways = [fleet.gateway().await, fleet.gateway().await];
    let first = Program::new(&gateways[0]).await;
    let second = Program::new(&gateways[1]).await;
    let one = first.create("one", &json!({})).await;
    let two = second.create("two", &json!({"previous_response_id": one["id"]})).await;
    assert_eq!(two["previous_response_id"], one["id"]);
    assert_eq!(fleet.model.last_user_texts(), ["one", "two"]);
    let items = json!([{"role": "user", "content": "three"}, {"role": "user", "content": "four"}]);
    let more = json!({"previous_response_id": two["id"], "input": items});
    first.create("", &more).await;
    let texts = fleet.model.last_user_texts();
    assert!(texts[2].contains("User: three") && texts[2].ends_with("four"), "{texts:?}");
    let token = gateways[0].token("other", FaceName::Openai, &[Right::Talk]).await;
    let other = Program { address: gateways[0].address, token };
    let later = json!({"previous_response_id": one["id"]});
    let person = json!({"previous_response_id": one["id"], "user": "ada"});
    for (program, extra) in [(&other, &later), (&first, &person)] {
        let refused = program.send(program.request("x", extra)).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.json()["error"]["code"], "previous_response_not_found");
    }
    assert_eq!(other.call("GET", &one).await.status, 404);
    assert_eq!(other.call("DELETE", &one).await.status, 404);
}

#[tokio::test]
async fn conversation_of_the_client_is_found_by_its_items() {
    let (fleet, _gateway, program) = start().await;
    let first = finish(program.open("one").await).await;
    let output = first.last().unwrap()["response"]["output"].as_array().unwrap().clone();
    let mut items = vec![json!({"role": "user", "content": "one"})];
    items.extend(output);
    items.push(json!({"role": "user", "content": [{"type": "input_text", "text": "two"}]}));
    program.create("", &json!({"input": items})).await;
    assert_eq!(fleet.model.last_user_texts(), ["one", "two"]);
}

#[tokio::test]
async fn stored_response_is_read_until_it_is_deleted() {
    let fleet = Fleet::start().await;
    let gateways = [fleet.gateway().await, fleet.gateway().await];
    let first = Program::new(&gateways[0]).await;
    let second = Program::new(&gateways[1]).await;
    let keyed =
        first.request("wait for me", &json!({"stream": true})).header("idempotency-key", "k");
    let mut stream = keyed.open(gateways[0].address).await;
    stream.read_until("You said").await;
    let received = stream.received();
    let (_, id) = received.split_once("\"id\":\"resp_").unwrap();
    let running = json!({"id": format!("resp_{}", id.split('"').next().unwrap())});
    for program in [&first, &second] {
        let read = program.read(&running).await;
        assert_eq!((&read["status"], &read["output"]), (&json!("in_progress"), &json!([])));
    }
    fleet.model.gate.add_permits(1);
    finish(stream).await;
    let read = within_timeout("the answer", async {
        loop {
            let read = second.read(&running).await;
            if read["status"] != "in_progress" {
                return read;
            }
        }
    })
    .await;
    assert_eq!((&read["status"], text(&read)), (&json!("completed"), "You said wait for me."));
    let deleted = second.call("DELETE", &running).await;
    assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &json!(true)));
    assert_eq!(first.call("GET", &running).await.status, 404);
    assert_eq!(first.call("DELETE", &running).await.status, 404);
    let continued = first.request("x", &json!({"previous_response_id": running["id"]}));
    assert_eq!(first.send(continued).await.status, 400);
    let forgotten = first.create("hello", &json!({"store": false})).await;
    assert_eq!(first.call("GET", &forgotten).await.status, 404);
    assert_eq!(fleet.model.request_count(), 2);
}

#[tokio::test]
async fn response_of_agent_outside_gateway_is_not_found() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let agents = [AgentName::new("absent").unwrap()];
    let other = fleet.gateway_changed("", |parts| parts.agents = agents.into()).await;
    let program = Program::new(&gateway).await;
    let response = program.create("hello", &json!({})).await;
    assert_eq!(text(&program.read(&response).await), "You said hello.");
    let program = Program::new(&other).await;
    assert_eq!(program.call("GET", &response).await.status, 404);
}

#[tokio::test]
async fn input_that_the_agent_would_not_get_is_refused() {
    let (fleet, _gateway, program) = start().await;
    let first = program.create("one", &json!({})).await;
    let image = json!([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]);
    let file = json!([{"type": "input_file", "file_id": "x"}]);
    let large = json!("x".repeat(60 * 1024));
    let alone = json!([{"role": "user", "content": image}]);
    let before = |role: &str, content: &Value| {
        let last = json!({"role": "user", "content": "summarize"});
        json!([{"role": role, "content": content}, last])
    };
    for (input, problem) in [
        (before("user", &image), "in the last message"),
        (before("user", &large), "exceed 48 KiB"),
        (before("user", &file), "unsupported part"),
        (before("system", &file), "unsupported part"),
        (before("tool", &json!("x")), "unknown role"),
        (alone, "has no text"),
    ] {
        let extra = json!({"previous_response_id": first["id"], "input": input});
        let refused = program.send(program.request("", &extra)).await;
        assert_eq!(refused.status, 400, "{problem}: {}", refused.body);
        let error = &refused.json()["error"];
        assert_eq!((&error["param"], &error["executed"]), (&json!("input"), &json!("no")));
        assert!(error["message"].as_str().unwrap().contains(problem), "{error}");
    }
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn five_requests_with_one_key_are_one_response() {
    let fleet = Fleet::start().await;
    let gateways = [fleet.gateway().await, fleet.gateway().await];
    let programs = [Program::new(&gateways[0]).await, Program::new(&gateways[1]).await];
    let mut open = Vec::new();
    for number in 0..5 {
        let program = &programs[number % 2];
        let keyed = program.request("wait for me", &json!({})).header("idempotency-key", "k1");
        open.push(keyed.open(program.address).await);
    }
    wait_until("the model is asked", || fleet.model.request_count() > 0).await;
    fleet.model.gate.add_permits(100);
    let mut ids = std::collections::BTreeSet::new();
    for stream in open {
        let response = stream.finish().await.json();
        assert_eq!(text(&response), "You said wait for me.");
        ids.insert(response["id"].as_str().unwrap().to_owned());
    }
    assert_eq!((ids.len(), fleet.model.request_count()), (1, 1));
}

#[tokio::test]
async fn approvals_are_shown_and_decided() {
    let fleet = Fleet::asking("erase", "{\"disk\":\"a\"}", "erased").await;
    let gateway = fleet.gateway().await;
    let program = Program::new(&gateway).await;
    let mut stream = program.open("go on").await;
    stream.read_until("\"approval\":{").await;
    let approval = approval_in(&stream.received());
    let path = format!("/v1/approvals/{}", approval["approvalId"].as_str().unwrap());
    let decision = json!({"callHash": approval["callHash"], "decision": "allow"});
    let decided = program.send(Request::post(&path, &decision).token(&program.token)).await;
    assert_eq!(decided.status, 204, "{}", decided.body);
    let events = finish(stream).await;
    let last = &events.last().unwrap()["response"];
    let items = last["output"].as_array().unwrap();
    let lines = items.iter().find(|item| item["type"] == "reasoning").unwrap();
    let lines = lines["summary"][0]["text"].as_str().unwrap();
    assert!(lines.contains("erase needs approval") && lines.contains("erase finished"), "{lines}");
}

#[tokio::test]
async fn hanging_up_cancels_the_turn() {
    let (fleet, _gateway, program) = start().await;
    for stream in [true, false] {
        let before = fleet.model.request_count();
        let request = program.request("wait for me", &json!({"stream": stream}));
        let connection = request.open(program.address).await;
        wait_until("the model is asked", || fleet.model.request_count() > before).await;
        drop(connection);
        fleet.model.until_dropped().await;
    }
}

#[tokio::test]
async fn errors_have_the_form_of_openai() {
    let (fleet, _gateway, program) = start().await;
    for (extra, status, code) in [
        (json!({"model": "other"}), 404, "model_not_found"),
        (json!({"model": "absent"}), 503, "agent_unavailable"),
        (json!({"tools": [{"type": "web_search"}]}), 400, "invalid_value"),
        (json!({"previous_response_id": "resp_x"}), 400, "previous_response_not_found"),
        (json!({"input": 1}), 400, "invalid_request"),
    ] {
        for stream in [false, true] {
            let mut extra = extra.clone();
            extra["stream"] = json!(stream);
            let response = program.send(program.request("hello", &extra)).await;
            assert_eq!(response.status, status, "{extra}: {}", response.body);
            let error = &response.json()["error"];
            assert_eq!((&error["code"], &error["executed"]), (&json!(code), &json!("no")));
        }
    }
    let streamed = Request::get("/v1/responses/resp_x?stream=true").token(&program.token);
    assert_eq!(program.send(streamed).await.status, 400);
    assert_eq!(fleet.model.request_count(), 0);
}

#[tokio::test]
async fn failed_turn_is_a_failed_response() {
    let (fleet, _gateway, program) = start().await;
    fleet.model.fail_next();
    let whole = program.send(program.request("hello", &json!({}))).await;
    assert_eq!((whole.status, whole.header("x-should-retry")), (502, Some("false")));
    assert_eq!(whole.json()["error"]["code"], "model_failed");
    fleet.model.fail_next();
    let events = finish(program.open("hello").await).await;
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    let response = &last["response"];
    assert_eq!(
        (&response["status"], &response["error"]["code"]),
        (&json!("failed"), &json!("model_failed"))
    );
    let read = program.read(response).await;
    assert_eq!((&read["status"], &read["error"]), (&response["status"], &response["error"]));
}
