//! A client of the A2A face.

use std::net::SocketAddr;

use rockbot_gateway::{FaceName, Right};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    http::{Request, Response, Stream},
};

/// A program with a token for the face.
#[derive(Debug, Clone)]
pub(crate) struct A2aClient {
    address: SocketAddr,
    pub(crate) token: String,
}

impl A2aClient {
    pub(crate) async fn new(gateway: &TestGateway, name: &str) -> Self {
        let token = gateway.token(name, FaceName::A2a, &[Right::Talk]).await;
        Self { address: gateway.address, token }
    }

    pub(crate) fn with_token(gateway: &TestGateway, token: &str) -> Self {
        Self { address: gateway.address, token: token.to_owned() }
    }

    fn request(&self, method: &str, params: &Value) -> Request {
        let body = json!({"jsonrpc": "2.0", "id": "r", "method": method, "params": params});
        Request::post("/agents/assistant", &body).token(&self.token).header("a2a-version", "1.0")
    }

    /// Sends any request to the agent.
    pub(crate) async fn send_raw(&self, request: Request) -> Response {
        request.token(&self.token).send(self.address).await
    }

    /// Returns the result or the error of a request.
    pub(crate) async fn call(&self, method: &str, params: &Value) -> Result<Value, Value> {
        let response = self.request(method, params).send(self.address).await;
        assert_eq!(response.status, 200, "{}", response.body);
        assert_eq!(response.header("content-type"), Some("application/json"));
        let body = response.json();
        assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!("r")), "{body}");
        match body.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(body["result"].clone()),
        }
    }

    /// Returns the code of a request that is refused.
    pub(crate) async fn refused(&self, method: &str, params: &Value) -> i64 {
        self.call(method, params).await.expect_err("refused")["code"].as_i64().unwrap()
    }

    /// Sends a message and returns its task.
    pub(crate) async fn say(&self, message: &Value) -> Value {
        let sent = self.call("SendMessage", &json!({"message": message})).await;
        sent.expect("a task")["task"].clone()
    }

    /// Sends a message and returns its task at once.
    pub(crate) async fn start(&self, message: &Value) -> Value {
        let configuration = json!({"returnImmediately": true});
        let params = json!({"message": message, "configuration": configuration});
        self.call("SendMessage", &params).await.expect("a task")["task"].clone()
    }

    /// Starts a task whose answer waits for a permit, and returns its id once the model has the request.
    pub(crate) async fn start_waiting(&self, fleet: &Fleet) -> Value {
        let id = self.start(&message("m1", "wait for me")).await["id"].clone();
        wait_until("the model is asked", || fleet.model.request_count() > 0).await;
        id
    }

    pub(crate) async fn task(&self, id: &Value) -> Value {
        self.call("GetTask", &json!({"id": id})).await.expect("a task")
    }

    /// Waits until a task has this state.
    pub(crate) async fn until(&self, id: &Value, state: &str) -> Value {
        within_timeout(state, async {
            loop {
                let task = self.task(id).await;
                if task["status"]["state"] == state {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Creates a request over HTTP+JSON. `path` follows the address of the agent.
    pub(crate) fn rest(&self, method: &str, path: &str) -> Request {
        let request = Request::new(method, &format!("/agents/assistant{path}"));
        request.token(&self.token).header("a2a-version", "1.0")
    }

    /// Creates a request with a body over HTTP+JSON.
    pub(crate) fn rest_post(&self, path: &str, body: &Value) -> Request {
        let request = self.rest("POST", path).header("content-type", "application/a2a+json");
        request.body(body.to_string())
    }

    /// Returns the result of a request over HTTP+JSON, or its status and error.
    pub(crate) async fn rest_call(&self, request: Request) -> Result<Value, (u16, Value)> {
        let response = request.send(self.address).await;
        assert_eq!(
            response.header("content-type"),
            Some("application/a2a+json"),
            "{}",
            response.body
        );
        let body = response.json();
        if response.status == 200 {
            return Ok(body);
        }
        let error = body["error"].clone();
        assert_eq!(error["code"], response.status, "{error}");
        Err((response.status, error))
    }

    /// Opens the stream of a request over HTTP+JSON.
    pub(crate) async fn rest_open(&self, request: Request) -> Stream {
        request.open(self.address).await
    }

    /// Lists tasks over JSON-RPC.
    pub(crate) async fn list(&self, params: &Value) -> Value {
        self.call("ListTasks", params).await.expect("a page")
    }

    /// Opens the stream of a request.
    pub(crate) async fn open(&self, method: &str, params: &Value) -> Stream {
        self.request(method, params).open(self.address).await
    }
}

/// Returns a message of text.
pub(crate) fn message(id: &str, text: &str) -> Value {
    json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// Reads a stream to its end, and returns the results of its events.
pub(crate) async fn results(stream: Stream) -> Vec<Value> {
    let events = rest_results(stream).await.into_iter();
    events.map(|event| event["result"].clone()).collect()
}

/// Reads a stream over HTTP+JSON to its end, and returns its events.
pub(crate) async fn rest_results(stream: Stream) -> Vec<Value> {
    let response = stream.finish().await;
    assert_eq!(response.header("content-type"), Some("text/event-stream"), "{}", response.body);
    let events = response.events().into_iter();
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Returns the text of the artifact after the events of a stream.
pub(crate) fn artifact_after(results: &[Value]) -> String {
    let mut text = String::new();
    for result in results {
        if let Some(task) = result.get("task") {
            let known = &task["artifacts"][0]["parts"][0]["text"];
            known.as_str().unwrap_or_default().clone_into(&mut text);
        } else if let Some(update) = result.get("artifactUpdate") {
            if update["append"] == false {
                text.clear();
            }
            text += update["artifact"]["parts"][0]["text"].as_str().unwrap();
        }
    }
    text
}
