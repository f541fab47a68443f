//! Messages to agents that fail, or whose client hangs up meanwhile.

use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, message},
    audit_records::AuditRecords,
    callers::Callers,
    fleet::Fleet,
    http::Request,
    sends::{Fate, Sends},
};

#[tokio::test]
async fn message_too_large_for_the_broker_is_not_retryable() {
    let mut fleet = Fleet::start().await;
    let sends = Sends::to_agents(&mut fleet);
    let callers = Callers::start(&fleet).await;
    let Callers { peer, ada, conversation, .. } = &callers;
    sends.set(Fate::TooLarge);

    let body = json!({"message": message("m1", "hello")});
    let sent = peer.rest_call(peer.rest_post("/message:send", &body)).await;
    let (status, error) = sent.unwrap_err();
    let info = &error["details"][0];
    assert_eq!((status, &info["reason"]), (400, &json!("INVALID_PARAMS")), "{error}");
    assert_eq!(info["metadata"]["executed"], "no");
    let completed = callers.complete("assistant").await;
    assert_eq!((completed.status, completed.header("x-should-retry")), (413, Some("false")));
    let error = completed.json()["error"].clone();
    assert_eq!((&error["code"], &error["executed"]), (&json!("too_large"), &json!("no")));
    let said = ada.say(conversation, "key-00001", "hello").await;
    assert_eq!(said.status, 413, "{}", said.body);
    let problem = said.json();
    assert_eq!((&problem["code"], &problem["executed"]), (&json!("too_large"), &json!("no")));
    assert_eq!(peer.list(&json!({})).await["totalSize"], 0);
}

#[tokio::test]
async fn client_that_hangs_up_leaves_audit_records() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::start().await;
    let sends = Sends::to_agents(&mut fleet);
    let callers = Callers::start(&fleet).await;
    let Callers { peer, ada, conversation, .. } = &callers;
    let running = peer.start(&message("m1", "wait for me")).await["id"].clone();
    peer.until(&running, "TASK_STATE_WORKING").await;
    sends.set(Fate::Hangs);

    let path = format!("/api/v1/conversations/{conversation}/messages");
    let say =
        Request::post(&path, &json!({"text": "hello"})).header("idempotency-key", "key-00001");
    let streams = [
        peer.open("SendMessage", &json!({"message": message("m2", "hello")})).await,
        callers.open_completion().await,
        ada.open(say).await,
    ];
    sends.until_hanging(3).await;
    assert_eq!(records.outcomes("message"), ["sent"]);
    drop(streams);
    wait_until("the messages are recorded", || records.with_action("message").len() == 4).await;
    assert_eq!(records.outcomes("message"), ["sent", "unknown", "unknown", "unknown"]);

    let path = format!("/api/v1/conversations/{conversation}/cancel");
    let streams = [
        peer.open("CancelTask", &json!({"id": running})).await,
        ada.open(Request::post(&path, &json!({}))).await,
    ];
    sends.until_hanging(5).await;
    drop(streams);
    wait_until("the cancels are recorded", || records.with_action("cancel").len() == 2).await;
    assert_eq!(records.outcomes("cancel"), ["unknown", "unknown"]);
}

/// Returns the effect of a message that fails.
async fn executed(peer: &A2aClient, id: &str) -> Value {
    let params = json!({"message": message(id, "hello")});
    let error = peer.call("SendMessage", &params).await.unwrap_err();
    error["data"][0]["metadata"]["executed"].clone()
}

#[tokio::test]
async fn failed_repetition_does_not_say_that_the_message_was_not_sent() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::start().await;
    let sends = Sends::to_agents(&mut fleet);
    let gateway = fleet.gateway().await;
    let peer = A2aClient::new(&gateway, "peer").await;
    sends.set(Fate::Unconfirmed);
    assert_eq!(executed(&peer, "m1").await, "unknown");
    sends.set(Fate::Unroutable);
    assert_eq!(executed(&peer, "m1").await, "unknown");
    assert_eq!(executed(&peer, "m2").await, "no");
    assert_eq!(records.outcomes("message"), ["unknown", "not sent", "not sent"]);
}
