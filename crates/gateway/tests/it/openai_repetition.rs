//! Repeated requests: one turn, whichever gateway receives them.

use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    http::Request,
    sends::{Fate, Sends},
};

fn body(text: &str) -> Value {
    json!({"model": "assistant", "messages": [{"role": "user", "content": text}]})
}

fn request(token: &str, body: &Value) -> Request {
    Request::post("/v1/chat/completions", body).token(token)
}

#[tokio::test]
async fn five_requests_with_one_key_run_one_turn() {
    let fleet = Fleet::start().await;
    let gateways = [fleet.gateway().await, fleet.gateway().await];
    let tokens = [gateways[0].openai_token().await, gateways[1].openai_token().await];
    let mut open = Vec::new();
    for number in 0..5 {
        let (gateway, token) = (&gateways[number % 2], &tokens[number % 2]);
        let keyed = request(token, &body("wait for me")).header("idempotency-key", "k1");
        open.push(keyed.open(gateway.address).await);
    }
    wait_until("the model is asked", || fleet.model.request_count() > 0).await;
    fleet.model.gate.add_permits(100);
    let mut responses = Vec::new();
    for stream in open {
        let response = stream.finish().await;
        assert_eq!(response.status, 200, "{}", response.body);
        responses.push(response.json());
    }
    assert!(responses.iter().all(|response| response["id"] == responses[0]["id"]));
    for response in &responses {
        assert_eq!(response["choices"][0]["message"]["content"], "You said wait for me.");
    }
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn request_is_recognized_after_a_gateway_was_killed() {
    let fleet = Fleet::start().await;
    let first = fleet.gateway().await;
    let token = first.openai_token().await;
    let stream = json!({"stream": true, "model": "assistant",
        "messages": [{"role": "user", "content": "wait for me"}]});
    let mut open =
        request(&token, &stream).header("idempotency-key", "k").open(first.address).await;
    open.read_until("You said").await;
    first.kill();
    let second = fleet.gateway().await;
    let token = second.openai_token().await;
    let repeated = request(&token, &stream).header("idempotency-key", "k");
    let mut repeated = repeated.open(second.address).await;
    repeated.read_until("\"role\"").await;
    fleet.model.gate.add_permits(1);
    repeated.read_until("[DONE]").await;
    let response = repeated.finish().await;
    assert!(response.streamed("content").ends_with("wait for me."), "{}", response.body);
    let again = request(&token, &stream).header("idempotency-key", "k").send(second.address).await;
    assert_eq!(again.streamed("content"), "You said wait for me.");
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn key_of_another_request_is_refused() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let first = request(&token, &body("one")).header("idempotency-key", "k");
    assert_eq!(first.send(gateway.address).await.status, 200);
    let other = request(&token, &body("two")).header("idempotency-key", "k");
    let other = other.send(gateway.address).await;
    assert_eq!(other.status, 409);
    assert_eq!(other.json()["error"]["code"], "idempotency_key_reused");
    let long = request(&token, &body("two")).header("idempotency-key", &"k".repeat(256));
    assert_eq!(long.send(gateway.address).await.status, 400);
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn attempts_of_a_client_run_one_turn() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let attempt =
        |number: &str| request(&token, &body("hello")).header("x-stainless-retry-count", number);
    let mut ids = Vec::new();
    for number in ["0", "1", "2", "0"] {
        let response = attempt(number).send(gateway.address).await;
        assert_eq!(response.status, 200, "{}", response.body);
        ids.push(response.json()["id"].clone());
    }
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
    assert_ne!(ids[0], ids[3], "a first attempt is a new request");
    assert_eq!(fleet.model.request_count(), 2);
}

#[tokio::test]
async fn turn_with_a_key_outlives_its_reader() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let keyed = request(&token, &body("wait for me")).header("idempotency-key", "k");
    let open = keyed.open(gateway.address).await;
    wait_until("the model is asked", || fleet.model.request_count() == 1).await;
    drop(open);
    let repeated = keyed.open(gateway.address).await;
    fleet.model.gate.add_permits(1);
    let response = repeated.finish().await;
    assert_eq!(response.json()["choices"][0]["message"]["content"], "You said wait for me.");
    assert_eq!(fleet.model.request_count(), 1);
}

/// Returns the effect of a request that fails.
async fn executed(gateway: &TestGateway, request: Request) -> Value {
    let response = request.send(gateway.address).await;
    assert_eq!(response.status, 503, "{}", response.body);
    response.json()["error"]["executed"].clone()
}

#[tokio::test]
async fn failed_repetition_at_another_gateway_has_an_unknown_effect() {
    let mut fleet = Fleet::start().await;
    let sends = Sends::to_agents(&mut fleet);
    let gateways = [fleet.gateway().await, fleet.gateway().await];
    let tokens = [gateways[0].openai_token().await, gateways[1].openai_token().await];
    let keyed =
        |at: usize, key: &str| request(&tokens[at], &body("hello")).header("idempotency-key", key);
    let attempt = |at: usize, number: &str| {
        request(&tokens[at], &body("again")).header("x-stainless-retry-count", number)
    };
    sends.set(Fate::Unroutable);
    assert_eq!(executed(&gateways[0], request(&tokens[0], &body("hello"))).await, "no");
    for _ in 0..2 {
        // No request of this key was sent, at any gateway.
        assert_eq!(executed(&gateways[0], keyed(0, "unsent")).await, "no");
        assert_eq!(executed(&gateways[1], keyed(1, "unsent")).await, "no");
    }
    assert_eq!(executed(&gateways[0], attempt(0, "0")).await, "no");
    assert_eq!(executed(&gateways[1], attempt(1, "1")).await, "no");
    sends.set(Fate::Arrives);
    assert_eq!(keyed(0, "sent").send(gateways[0].address).await.status, 200);
    assert_eq!(attempt(0, "0").send(gateways[0].address).await.status, 200);
    sends.set(Fate::Unroutable);
    assert_eq!(executed(&gateways[1], keyed(1, "sent")).await, "unknown");
    assert_eq!(executed(&gateways[1], attempt(1, "1")).await, "unknown");
    sends.set(Fate::Arrives);
    let kept = keyed(1, "sent").send(gateways[1].address).await;
    assert_eq!(kept.answer(false), "You said hello.");
    assert_eq!(fleet.model.request_count(), 2);
}
