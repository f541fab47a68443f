//! Requests in the form in which Open WebUI sends them.

use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    http::{Request, Response},
};

/// A request as in a file of `tests/fixtures/open-webui`.
struct Recorded {
    name: &'static str,
    headers: Value,
    body: Value,
}

impl Recorded {
    fn new(name: &'static str, text: &str) -> Self {
        let mut parsed: Value = serde_json::from_str(text).unwrap();
        Self { name, headers: parsed["headers"].take(), body: parsed["body"].take() }
    }

    async fn send(&self, gateway: &TestGateway, token: &str) -> Response {
        let mut request = Request::post("/v1/chat/completions", &self.body).token(token);
        for (name, value) in self.headers.as_object().unwrap() {
            request = request.header(name, value.as_str().unwrap());
        }
        request.send(gateway.address).await
    }

    /// Returns the beginning of the test model's answer to the last message.
    fn expected(&self) -> String {
        let content = &self.body["messages"].as_array().unwrap().last().unwrap()["content"];
        let text = content.as_str().or_else(|| content[0]["text"].as_str());
        format!("You said {}", text.unwrap())
    }

    fn is_stream(&self) -> bool {
        self.body["stream"] == true
    }
}

macro_rules! recorded {
    ($name:literal) => {
        Recorded::new($name, include_str!(concat!("../fixtures/open-webui/", $name, ".json")))
    };
}

#[tokio::test]
async fn every_request_of_open_webui_is_answered() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    for recorded in [
        recorded!("chat"),
        recorded!("second-message"),
        recorded!("image"),
        recorded!("fields-of-the-browser"),
        recorded!("title"),
        recorded!("tags"),
        recorded!("follow-ups"),
        recorded!("tool-selection"),
    ] {
        let response = recorded.send(&gateway, &token).await;
        assert_eq!(response.status, 200, "{}: {}", recorded.name, response.body);
        let is_stream = recorded.is_stream();
        let answer = response.answer(is_stream);
        assert!(answer.starts_with(&recorded.expected()), "{}: {answer}", recorded.name);
        if is_stream {
            assert!(response.body.ends_with("data: [DONE]\n\n"), "{}", recorded.name);
            let wants_usage = recorded.body["stream_options"]["include_usage"] == true;
            assert_eq!(response.body.contains("\"usage\":{"), wants_usage, "{}", recorded.name);
        } else {
            assert_eq!(response.json()["choices"][0]["finish_reason"], "stop", "{}", recorded.name);
        }
    }
}

#[tokio::test]
async fn models_are_listed_as_open_webui_reads_them() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let request = Request::get("/v1/models").token(&token);
    let listed = request.header("content-type", "application/json").send(gateway.address).await;
    let listed = listed.json();
    assert_eq!(listed["object"], "list");
    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(json!(ids), json!(["assistant", "absent"]));
}

#[tokio::test]
async fn chat_of_open_webui_is_one_conversation_without_its_titles() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    recorded!("chat").send(&gateway, &token).await;
    recorded!("title").send(&gateway, &token).await;
    assert_eq!(fleet.model.last_user_texts().len(), 1, "a title has a conversation of its own");
    recorded!("second-message").send(&gateway, &token).await;
    let texts = fleet.model.last_user_texts();
    assert!(texts[0].contains("Which files mention RabbitMQ?"), "{texts:?}");
    assert!(texts.last().unwrap().contains("And which of them are tests?"), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains("Give the chat a title")), "{texts:?}");
}

#[tokio::test]
async fn picture_of_open_webui_reaches_the_agent() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    recorded!("image").send(&gateway, &token).await;
    // A model that reads no images gets a note about the picture.
    let texts = fleet.model.last_user_texts();
    assert!(texts[0].contains("image/png of 70 bytes"), "{texts:?}");
}
