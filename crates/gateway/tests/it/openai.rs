//! Chat completions, whole and streamed, and their errors.

use rockbot_gateway::{FaceName, Right};
use rockbot_llm::Usage;
use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    http::{Request, Response},
};

async fn complete(gateway: &TestGateway, token: &str, body: &Value) -> Response {
    Request::post("/v1/chat/completions", body).token(token).send(gateway.address).await
}

fn hello(extra: &Value) -> Value {
    let mut body =
        json!({"model": "assistant", "messages": [{"role": "user", "content": "hello"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn whole_completion_has_answer_and_usage() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let usage = Usage { prompt_tokens: 11, completion_tokens: 3, ..Usage::default() };
    fleet.model.answer_next("Hi.", usage);
    let response = complete(&gateway, &token, &hello(&json!({}))).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let body = response.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "assistant");
    assert_eq!(body["choices"][0]["message"]["content"], "Hi.");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14});
    assert_eq!(body["usage"], usage);
}

#[tokio::test]
async fn stream_has_deltas_usage_and_end() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let response = complete(&gateway, &token, &hello(&options)).await;
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("x-accel-buffering"), Some("no"));
    let mut events = response.events();
    assert_eq!(events.pop(), Some("[DONE]"));
    let chunks: Vec<Value> =
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
    let [.., finish, usage] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert_eq!((&usage["choices"], usage["usage"].is_object()), (&json!([]), true));
    assert_eq!(response.streamed("content"), "You said hello.");
}

#[tokio::test]
async fn stream_without_include_usage_has_none() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let response = complete(&gateway, &token, &hello(&json!({"stream": true}))).await;
    assert!(!response.body.contains("\"usage\""), "{}", response.body);
    assert!(response.body.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn text_ends_before_a_stop_sequence() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    for (stream, stop) in [(false, json!("hel")), (true, json!(["x", "said h"]))] {
        let body = hello(&json!({"stream": stream, "stop": stop}));
        let response = complete(&gateway, &token, &body).await;
        assert_eq!(response.answer(stream), if stream { "You " } else { "You said " });
    }
}

#[tokio::test]
async fn person_may_use_the_api_in_a_browser() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let cookie = gateway.log_in().await;
    let request = Request::post("/v1/chat/completions", &hello(&json!({})));
    let request = request.header("cookie", &cookie);
    let response = request.header("origin", &format!("http://{}", gateway.address));
    assert_eq!(response.send(gateway.address).await.status, 200);
}

#[tokio::test]
async fn models_are_the_configured_agents() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let list = Request::get("/v1/models").token(&token).send(gateway.address).await.json();
    assert_eq!(list["object"], "list");
    let names: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(names, ["assistant", "absent"]);
    let one = Request::get("/v1/models/assistant").token(&token).send(gateway.address).await;
    assert_eq!(one.json(), list["data"][0]);
}

#[tokio::test]
async fn errors_have_the_form_of_openai() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    for (extra, status, code) in [
        (json!({"model": "other"}), 404, "model_not_found"),
        (json!({"model": "absent"}), 503, "agent_unavailable"),
        (json!({"n": 2}), 400, "invalid_value"),
        (json!({"messages": 1}), 400, "invalid_request"),
    ] {
        for stream in [false, true] {
            let mut body = hello(&extra);
            body["stream"] = json!(stream);
            let response = complete(&gateway, &token, &body).await;
            assert_eq!(response.status, status, "{extra}: {}", response.body);
            let error = &response.json()["error"];
            assert_eq!(error["code"], code);
            assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        }
    }
    assert_eq!(fleet.model.request_count(), 0);
}

#[tokio::test]
async fn image_without_text_is_refused() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let body = hello(&json!({"messages": [{"role": "user", "content": [image]}]}));
    let response = complete(&gateway, &token, &body).await;
    assert_eq!(response.status, 400, "{}", response.body);
    let error = &response.json()["error"];
    assert_eq!((&error["param"], &error["executed"]), (&json!("messages"), &json!("no")));
    assert_eq!(fleet.model.request_count(), 0);
}

#[tokio::test]
async fn failed_model_is_an_error_that_is_not_retried() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    fleet.model.fail_next();
    let whole = complete(&gateway, &token, &hello(&json!({}))).await;
    assert_eq!((whole.status, whole.header("x-should-retry")), (502, Some("false")));
    assert_eq!(whole.json()["error"]["code"], "model_failed");
    fleet.model.fail_next();
    let stream = complete(&gateway, &token, &hello(&json!({"stream": true}))).await;
    assert_eq!(stream.status, 200);
    let last: Value = serde_json::from_str(stream.events().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "model_failed");
}

#[tokio::test]
async fn hanging_up_cancels_the_turn() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    for stream in [true, false] {
        let body = json!({
            "model": "assistant", "stream": stream,
            "messages": [{"role": "user", "content": "wait for me"}],
        });
        let before = fleet.model.request_count();
        let request = Request::post("/v1/chat/completions", &body).token(&token);
        let connection = request.open(gateway.address).await;
        wait_until("the model is asked", || fleet.model.request_count() > before).await;
        drop(connection);
        fleet.model.until_dropped().await;
    }
}

#[tokio::test]
async fn token_of_another_face_reaches_no_agent() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.token("mcp-only", FaceName::Mcp, &Right::ALL).await;
    assert_eq!(complete(&gateway, &token, &hello(&json!({}))).await.status, 403);
    assert_eq!(fleet.model.request_count(), 0);
}
