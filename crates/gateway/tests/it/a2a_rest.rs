//! The A2A face over HTTP+JSON: its paths, its streams, and the form of its errors.

use rockbot_gateway::{FaceName, Right};
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, artifact_after, message, rest_results},
    fleet::Fleet,
    http::Request,
};

#[tokio::test]
async fn task_is_the_same_over_both_bindings() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let body = json!({"message": message("m1", "hello")});
    let sent = client.rest_call(client.rest_post("/message:send", &body)).await.unwrap();
    let task = &sent["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "You said hello.");
    let path = format!("/tasks/{}?historyLength=3", task["id"].as_str().unwrap());
    let found = client.rest_call(client.rest("GET", &path)).await.unwrap();
    for other in [found, client.task(&task["id"]).await, client.say(&message("m1", "hello")).await]
    {
        assert_eq!((&other["id"], &other["contextId"]), (&task["id"], &task["contextId"]));
        assert_eq!(other["artifacts"], task["artifacts"]);
    }
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn stream_and_subscription_have_events_without_an_envelope() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let body = json!({"message": message("m1", "wait for me")});
    let mut stream = client.rest_open(client.rest_post("/message:stream", &body)).await;
    stream.read_until("You said").await;
    let id = client.start(&message("m1", "wait for me")).await["id"].clone();
    let path = format!("/tasks/{}:subscribe", id.as_str().unwrap());
    let mut streams = vec![stream];
    for method in ["GET", "POST"] {
        let mut stream = client.rest_open(client.rest(method, &path)).await;
        stream.read_until("You said").await;
        streams.push(stream);
    }
    fleet.model.gate.add_permits(1);
    for stream in streams {
        let events = rest_results(stream).await;
        assert_eq!(events[0]["task"]["id"], id, "{events:?}");
        assert_eq!(artifact_after(&events), "You said wait for me.");
        let end = &events.last().unwrap()["statusUpdate"]["status"]["state"];
        assert_eq!(end, "TASK_STATE_COMPLETED");
    }
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn cancelled_task_ends_over_rest() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let id = client.start_waiting(&fleet).await;
    let path = format!("/tasks/{}:cancel", id.as_str().unwrap());
    let task = client.rest_call(client.rest_post(&path, &json!({"id": id}))).await.unwrap();
    assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED", "{task}");
    let (status, error) = client.rest_call(client.rest("POST", &path)).await.unwrap_err();
    assert_eq!((status, &error["status"]), (400, &json!("FAILED_PRECONDITION")));
    assert_eq!(error["details"][0]["reason"], "TASK_NOT_CANCELABLE");
}

#[tokio::test]
async fn errors_have_status_and_reason_of_the_protocol() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let body = json!({"message": {"messageId": "m"}});
    let send = || client.rest("POST", "/message:send");
    let push = "/tasks/unknown/pushNotificationConfigs";
    let without_version = Request::get("/agents/assistant/tasks").token(&client.token);
    for (request, status, name, reason) in [
        (client.rest("GET", "/tasks/unknown"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (client.rest("POST", "/tasks/unknown:cancel"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (client.rest("GET", "/tasks/unknown:subscribe"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (client.rest("GET", "/tasks?pageSize=0"), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (client.rest_post("/message:send", &body), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (client.rest_post("/message:stream", &body), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (send().body("{"), 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        (
            send().header("content-type", "text/plain").body(body.to_string()),
            415,
            "INVALID_ARGUMENT",
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        (without_version, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
        (client.rest("GET", push), 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (
            client.rest_post(push, &json!({"url": "https://a"})),
            400,
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            client.rest("DELETE", &format!("{push}/1")),
            400,
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            client.rest("GET", "/extendedAgentCard"),
            400,
            "FAILED_PRECONDITION",
            "UNSUPPORTED_OPERATION",
        ),
    ] {
        let (found, error) = client.rest_call(request).await.unwrap_err();
        assert_eq!((found, &error["status"]), (status, &json!(name)), "{error}");
        let info = &error["details"][0];
        assert_eq!(
            (&info["reason"], &info["domain"]),
            (&json!(reason), &json!("a2a-protocol.org"))
        );
        assert_eq!(info["metadata"]["executed"], "no", "{error}");
        assert!(error["message"].is_string(), "{error}");
    }
    for request in [
        client.rest("POST", "/tasks/unknown"),
        client.rest("POST", "/tasks/unknown:delete"),
        client.rest("GET", "/tasks/unknown:cancel"),
    ] {
        assert_eq!(client.send_raw(request).await.status, 404);
    }
    assert_eq!(fleet.model.request_count(), 0);
}

#[tokio::test]
async fn message_without_an_agent_says_so_with_503() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let body = json!({"message": message("m", "hello")});
    let request = Request::post("/agents/absent/message:send", &body).header("a2a-version", "1.0");
    let response = client.send_raw(request).await;
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    let error = response.json()["error"].clone();
    assert_eq!(error["status"], "UNAVAILABLE");
    assert!(error["message"].as_str().unwrap().contains("absent"), "{error}");
    let unknown = Request::post("/agents/unknown/message:send", &body).header("a2a-version", "1.0");
    assert_eq!(client.send_raw(unknown).await.status, 404);
}

#[tokio::test]
async fn foreign_task_is_unknown_over_rest() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let owner = A2aClient::new(&gateway, "owner").await;
    let other = A2aClient::new(&gateway, "other").await;
    let id = owner.say(&message("m1", "hello")).await["id"].as_str().unwrap().to_owned();
    for (method, verb) in [("GET", ""), ("POST", ":cancel"), ("POST", ":subscribe")] {
        let request = |id: &str| other.rest(method, &format!("/tasks/{id}{verb}"));
        let foreign = other.rest_call(request(&id)).await.unwrap_err();
        assert_eq!(foreign.0, 404);
        assert_eq!(foreign, other.rest_call(request(&"f".repeat(32))).await.unwrap_err());
    }
}

#[tokio::test]
async fn person_may_send_the_media_type_of_the_protocol() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let cookie = gateway.log_in().await;
    let origin = format!("http://{}", gateway.address);
    let body = json!({"message": message("m1", "hello")}).to_string();
    let send = |kind: &str| {
        let request = Request::new("POST", "/agents/assistant/message:send").body(body.as_str());
        let request = request.header("cookie", &cookie).header("origin", &origin);
        request.header("a2a-version", "1.0").header("content-type", kind)
    };
    let sent = send("application/a2a+json").send(gateway.address).await;
    assert_eq!(sent.status, 200, "{}", sent.body);
    let tasks = Request::get("/agents/assistant/tasks").header("cookie", &cookie);
    let tasks: Value = tasks.header("a2a-version", "1.0").send(gateway.address).await.json();
    assert_eq!(tasks["totalSize"], 1);
    assert_eq!(send("text/plain").send(gateway.address).await.status, 415);
    // A token with the name of the person has other tasks.
    let token = gateway.token("local", FaceName::A2a, &[Right::Talk]).await;
    let program = A2aClient::with_token(&gateway, &token);
    assert_eq!(program.list(&json!({})).await["totalSize"], 0);
}
