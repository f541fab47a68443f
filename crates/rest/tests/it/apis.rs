//! Tools of OpenAPI documents.

use std::time::Duration;

use rockbot_contracts::ToolErrorCode as Code;
use rockbot_tools::{Executed, ToolProvider};
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use crate::{
    fixture::{Fixture, context},
    server::{Act, Server, json as json_act, response},
};

/// A document with one operation that needs a token of an OAuth client, and one that cannot be called.
fn document(url: &str) -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "Items", "version": "1"},
        "servers": [{"url": format!("{url}/v1")}],
        "components": {"securitySchemes": {"oauth": {"type": "oauth2", "flows": {
            "clientCredentials": {"tokenUrl": format!("{url}/token"), "scopes": {"read": "x"}}}}}},
        "paths": {"/items/{id}": {"get": {
            "operationId": "getItem", "security": [{"oauth": ["read"]}],
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
            ],
            "responses": {"200": {"description": "x"}}}},
            "/locked": {"get": {"operationId": "locked", "security": [{"none": []}],
            "responses": {"200": {"description": "x"}}}}},
    })
}

async fn fixture(document: &Value) -> Fixture {
    let server = Url::parse(document["servers"][0]["url"].as_str().unwrap()).unwrap();
    let origin = server.origin().ascii_serialization();
    let folder_file = json!({"openApi": {"items": {
        "spec": "items.json", "toolNamePrefix": "items", "headers": {"X-Team": "blue"},
        "credentialOrigins": [origin],
        "auth": {"oauth": {"clientId": "me", "clientSecret": "${SECRET}"}},
    }}});
    let fixture = Fixture::new(&json!({"restTools": {}})).await;
    std::fs::write(fixture.folder.path().join("items.json"), document.to_string()).unwrap();
    fixture.write(&folder_file.to_string());
    fixture.provider.warm_up().await.unwrap();
    fixture
}

#[tokio::test]
async fn operation_is_called_with_a_token_that_is_renewed_once() {
    let token =
        |name: &str| json_act(&json!({"access_token": name, "expires_in": 3600}).to_string());
    let acts = [
        token("first-access-token"),
        Act::Send(response("401 Unauthorized", "", "expired")),
        token("second-access-token"),
        Act::Echo,
        Act::Echo,
    ];
    let server = Server::start(acts).await;
    let fixture = fixture(&document(&server.url)).await;
    let (context, _) = context("rest__items_getItem");
    for _ in 0..2 {
        let result = fixture.call(json!({"id": "a/b"}), &context).await.unwrap();
        let text = result.to_text();
        assert!(!text.contains("access-token") && text.contains("[secret]"), "{text}");
    }
    let received = server.received();
    let targets: Vec<_> = received.iter().map(|one| one.target.as_str()).collect();
    let item = "/v1/items/a%2Fb";
    assert_eq!(targets, ["/token", item, "/token", item, item]);
    assert!(received[0].headers["authorization"].starts_with("Basic "));
    assert!(received[0].text().contains("grant_type=client_credentials&scope=read"));
    let sent = |index: usize| received[index].headers["authorization"].as_str();
    let second = "Bearer second-access-token";
    assert_eq!([sent(1), sent(3), sent(4)], ["Bearer first-access-token", second, second]);
    assert_eq!(received[3].headers["x-team"], "blue");
}

/// An API that shows the token in an error, with a hidden character in it, and cut off.
#[tokio::test]
async fn token_is_in_no_result() {
    let token = json!({"access_token": "secret-access-token", "expires_in": 3600}).to_string();
    let kind = "content-type: text/plain; charset=utf-8\r\n";
    for shown in
        ["secret-access-token", "secret-acc\u{200b}ess-token", "\u{1b}[1msecret-access-token"]
    {
        for status in ["200 OK", "400 Bad Request", "403 Forbidden", "500 x"] {
            let reply = Act::Send(response(status, kind, &format!("the token {shown} is bad")));
            let server = Server::start([json_act(&token), reply]).await;
            let fixture = fixture(&document(&server.url)).await;
            let (context, _) = context("rest__items_getItem");
            let result = fixture.call(json!({"id": "a"}), &context).await.unwrap();
            let text = result.to_text();
            assert!(text.contains("the token [secret] is bad"), "{status}: {text:?}");
        }
    }
}

#[tokio::test]
async fn refused_client_is_unavailable_and_not_executed() {
    let server = Server::start([Act::Send(response("401 x", "", ""))]).await;
    let fixture = fixture(&document(&server.url)).await;
    let (context, _) = context("rest__items_getItem");
    let failure = fixture.call(json!({"id": "a"}), &context).await.unwrap_err();
    assert_eq!(failure.executed(), Executed::No);
    assert!(failure.to_string().contains("refused the OAuth client (401)"), "{failure}");
    assert!(server.received().iter().all(|one| one.target == "/token"));
}

#[tokio::test]
async fn silent_token_endpoint_ends_with_each_call() {
    let server = Server::start([Act::Stall]).await;
    let fixture = fixture(&document(&server.url)).await;
    let call = async || {
        let (mut context, _) = context("rest__items_getItem");
        context.deadline = Instant::now() + Duration::from_millis(200);
        fixture.call(json!({"id": "a"}), &context).await.unwrap_err()
    };
    let (first, second, third) = tokio::join!(call(), call(), call());
    for failure in [first, second, third] {
        assert_eq!((failure.code(), failure.executed()), (Code::Timeout, Executed::No));
    }
    assert!(server.received().iter().all(|one| one.target == "/token"));
}

/// The next call obtains the token that a cancelled one was waiting for.
#[tokio::test]
async fn cancelled_call_leaves_the_token_to_the_next() {
    let token = json!({"access_token": "access-token", "expires_in": 3600}).to_string();
    let server = Server::start([Act::Stall, json_act(&token), json_act("{}")]).await;
    let fixture = fixture(&document(&server.url)).await;
    let (first, _) = context("rest__items_getItem");
    let (second, _) = context("rest__items_getItem");
    let then = async {
        server.arrival().await;
        let cancel = async { first.cancellation.cancel() };
        tokio::join!(fixture.call(json!({"id": "b"}), &second), cancel).0
    };
    let (cancelled, result) = tokio::join!(fixture.call(json!({"id": "a"}), &first), then);
    let failure = cancelled.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (Code::Cancelled, Executed::No));
    assert_eq!(result.unwrap().to_text(), "{}");
    let received = server.received();
    let targets: Vec<_> = received.iter().map(|one| one.target.as_str()).collect();
    assert_eq!(targets, ["/token", "/token", "/v1/items/b"]);
}

#[tokio::test]
async fn skipped_operations_have_a_reason() {
    let fixture = fixture(&document("http://127.0.0.1:1")).await;
    let status = fixture.provider.status();
    let [entry] = status.entries.as_slice() else { panic!("{status:?}") };
    assert!(entry.is_api && entry.tools.len() == 1 && status.is_ok());
    let [skipped] = entry.skipped.as_slice() else { panic!("{entry:?}") };
    assert!(skipped.operation == "locked" && !skipped.reason.is_empty());
}

#[tokio::test]
async fn document_change_replaces_its_tools() {
    let mut document = document("http://127.0.0.1:1");
    let fixture = fixture(&document).await;
    let mut changes = fixture.provider.changes().unwrap();
    document["paths"]["/items/{id}"]["get"]["operationId"] = json!("fetchItem");
    std::fs::write(fixture.folder.path().join("items.json"), document.to_string()).unwrap();
    let changed = tokio::time::timeout(Duration::from_secs(3), changes.changed()).await;
    changed.expect("within three seconds").unwrap();
    assert!(fixture.provider.has("rest__items_fetchItem"));
    assert!(!fixture.provider.has("rest__items_getItem"));
}

#[tokio::test]
async fn document_that_chooses_recipients_of_credentials_is_an_error() {
    let far = document("https://evil.example.com");
    let mut entry = json!({"spec": "far.json",
        "auth": {"oauth": {"clientId": "me", "clientSecret": "${SECRET}"}}});
    let fixture = Fixture::new(&json!({"restTools": {}})).await;
    std::fs::write(fixture.folder.path().join("far.json"), far.to_string()).unwrap();
    fixture.write(&json!({"openApi": {"far": entry}}).to_string());
    let error = fixture.provider.warm_up().await.unwrap_err().to_string();
    assert!(error.contains("https://evil.example.com"), "{error}");
    assert!(error.contains("credentialOrigins"), "{error}");
    assert!(fixture.provider.list().is_empty());
    entry["credentialOrigins"] = json!(["https://evil.example.com"]);
    fixture.write(&json!({"openApi": {"far": entry}}).to_string());
    fixture.provider.warm_up().await.unwrap();
    assert!(fixture.provider.has("rest__getItem"));
}

#[tokio::test]
async fn unreadable_document_keeps_its_last_tools() {
    let document = document("http://127.0.0.1:1");
    let fixture = fixture(&document).await;
    let path = fixture.folder.path().join("items.json");
    for text in ["{", "{\"openapi\": \"9.9\"}"] {
        std::fs::write(&path, text).unwrap();
        let error = fixture.provider.warm_up().await.unwrap_err().to_string();
        assert!(error.contains("its last tools are still offered"), "{error}");
        assert!(fixture.provider.has("rest__items_getItem"));
    }
    std::fs::write(&path, document.to_string()).unwrap();
    fixture.provider.warm_up().await.unwrap();
    // A changed entry does not keep tools that it may not have.
    let entry = json!({"spec": "items.json", "include": {"methods": ["NONE"]}, "baseUrl": "x"});
    fixture.write(&json!({"openApi": {"items": entry}}).to_string());
    assert!(fixture.provider.warm_up().await.is_err() || fixture.provider.list().is_empty());
    assert!(!fixture.provider.has("rest__items_getItem"));
}

#[tokio::test]
async fn slow_document_delays_no_other_entry() {
    let slow = Server::start([Act::Stall]).await;
    let tool =
        |description: &str| json!({"description": description, "url": "http://127.0.0.1:1/"});
    let file = |description: &str| {
        let slow = json!({"spec": format!("{}/openapi.json", slow.url)});
        let other = json!({"spec": "items.json", "credentialOrigins": ["http://127.0.0.1:1"],
            "auth": {"oauth": {"clientId": "me", "clientSecret": "${SECRET}"}}});
        json!({"restTools": {"a": tool(description)}, "openApi": {"b": slow, "c": other}})
    };
    let fixture = Fixture::new(&json!({"restTools": {}})).await;
    let document = document("http://127.0.0.1:1").to_string();
    std::fs::write(fixture.folder.path().join("items.json"), document).unwrap();
    let mut changes = fixture.provider.changes().unwrap();
    for description in ["one", "two"] {
        fixture.write(&file(description).to_string());
        let is_offered = || {
            let tool = fixture.provider.get("a");
            tool.is_some_and(|tool| tool.registration().description == description)
                && fixture.provider.has("rest__getItem")
        };
        while !is_offered() {
            // Less than the time after which the slow server counts as lost.
            let changed = tokio::time::timeout(Duration::from_millis(1_900), changes.changed());
            changed.await.expect("within two seconds").unwrap();
        }
    }
}

#[tokio::test]
async fn document_is_fetched_from_a_url() {
    let document = json!({
        "openapi": "3.0.3", "info": {"title": "x", "version": "1"}, "servers": [{"url": "/api"}],
        "paths": {"/ping": {"get": {"operationId": "ping", "responses": {"200": {"description": "x"}}}}},
    });
    let server = Server::start([json_act(&document.to_string()), json_act("{}")]).await;
    let url = format!("{}/openapi.json", server.url);
    let fixture = Fixture::new(&json!({"openApi": {"far": {"spec": url}}})).await;
    let (context, _) = context("rest__ping");
    fixture.call(json!({}), &context).await.unwrap();
    assert_eq!(server.received()[1].target, "/api/ping");
    let missing = Server::start([Act::Send(response("404 Not Found", "", ""))]).await;
    let fixture = Fixture::new(&json!({"openApi": {"far": {"spec": missing.url}}})).await;
    let status = fixture.provider.status();
    assert!(status.entries[0].problems[0].contains("404"), "{status:?}");
}
