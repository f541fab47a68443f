//! Tokens: what each may use, and their end.

use rockbot_gateway::{FaceName, NamePatterns, Right, Token};
use serde_json::json;

use crate::{fleet::Fleet, http::Request};

fn message(model: &str) -> serde_json::Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn token_is_limited_to_its_agents() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let secret = gateway
        .token_with("limited", FaceName::Openai, |token| Token {
            rights: [Right::Talk].into(),
            agents: NamePatterns::new(vec!["abs*".to_owned()]),
            ..token
        })
        .await;
    let models = Request::get("/v1/models").token(&secret).send(gateway.address).await;
    let models = models.json()["data"].clone();
    assert_eq!(models.as_array().unwrap().len(), 1, "{models}");
    assert_eq!(models[0]["id"], "absent");
    for path in ["/v1/models/assistant", "/v1/models/other"] {
        let response = Request::get(path).token(&secret).send(gateway.address).await;
        assert_eq!(response.status, 404, "{path}");
    }
    let request = Request::post("/v1/chat/completions", &message("assistant")).token(&secret);
    let response = request.send(gateway.address).await;
    assert_eq!(response.status, 404);
    assert_eq!(response.json()["error"]["code"], "model_not_found");
    assert_eq!(fleet.model.request_count(), 0);
}

#[tokio::test]
async fn revoked_token_is_refused() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let secret = gateway.openai_token().await;
    gateway.revoke("program", &secret).await;
    let request = Request::post("/v1/chat/completions", &message("assistant")).token(&secret);
    let response = request.send(gateway.address).await;
    assert_eq!(response.status, 401);
    assert_eq!(response.json()["error"]["type"], "authentication_error");
    assert_eq!(response.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn token_is_limited_to_its_rate() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let secret = gateway
        .token_with("slow", FaceName::Openai, |token| Token {
            rights: [Right::Talk].into(),
            requests_per_minute: Some(3),
            ..token
        })
        .await;
    // One request was sent to see that the token is valid.
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = Request::get("/v1/models").token(&secret).send(gateway.address).await;
        statuses.push(response.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn messages_of_a_person_are_limited() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway_with("messages_per_minute = 1").await;
    let secret = gateway.openai_token().await;
    let request = Request::post("/v1/chat/completions", &message("assistant")).token(&secret);
    assert_eq!(request.send(gateway.address).await.status, 200);
    let limited = request.send(gateway.address).await;
    assert_eq!(limited.status, 429);
    assert_eq!(limited.json()["error"]["type"], "rate_limit_error");
    assert_eq!(fleet.model.request_count(), 1);
}
