//! Audit records of messages and decisions that the broker did not confirm: they may have arrived.

use rockbot_gateway::{FaceName, Right};
use serde_json::{Value, json};

use crate::{
    a2a_client::message,
    audit_records::AuditRecords,
    callers::Callers,
    fleet::Fleet,
    handler::Handler,
    http::Request,
    openai_approvals::approval_in,
    sends::{Fate, Sends},
};

#[tokio::test]
async fn unconfirmed_message_may_have_arrived() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::start().await;
    let sends = Sends::all(&mut fleet);
    let callers = Callers::start(&fleet).await;
    let Callers { peer, ada, conversation, .. } = &callers;
    sends.set(Fate::Unconfirmed);

    let error = peer.call("SendMessage", &json!({"message": message("m1", "hello")})).await;
    let error = error.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("may have arrived"), "{error}");
    assert_eq!(error["data"][0]["metadata"]["executed"], "unknown");
    assert_eq!(callers.complete("assistant").await.status, 503);
    let said = ada.say(conversation, "key-00001", "hello").await;
    assert_eq!((said.status, &said.json()["executed"]), (503, &json!("unknown")));
    assert_eq!(records.outcomes("message"), ["unknown", "unknown", "unknown"]);

    sends.set(Fate::Arrives);
    assert_eq!(callers.complete("absent").await.status, 503);
    assert_eq!(records.outcomes("message").last().unwrap(), "not sent");
}

#[tokio::test]
async fn unconfirmed_cancel_may_have_arrived() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::start().await;
    let sends = Sends::all(&mut fleet);
    let callers = Callers::start(&fleet).await;
    let Callers { peer, ada, conversation, .. } = &callers;
    let id = peer.start(&message("m1", "wait for me")).await["id"].clone();
    peer.until(&id, "TASK_STATE_WORKING").await;
    sends.set(Fate::Unconfirmed);
    peer.call("CancelTask", &json!({"id": id})).await.unwrap_err();
    ada.post(&format!("/conversations/{conversation}/cancel"), &json!({})).await;
    assert_eq!(records.outcomes("cancel"), ["unknown", "unknown"]);
}

#[tokio::test]
async fn unconfirmed_decision_may_have_arrived() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::asking("erase", "{\"disk\":\"a\"}", "erased").await;
    fleet.call_next("erase", "{\"disk\":\"b\"}");
    fleet.call_next("erase", "{\"disk\":\"c\"}");
    let sends = Sends::all(&mut fleet);
    let callers = Callers::start(&fleet).await;
    let Callers { gateway, peer, token, ada, conversation, .. } = &callers;

    let task = peer.say(&message("m1", "go on")).await;
    let asked = &task["status"]["message"]["parts"][1]["data"];
    let decision = json!({"messageId": "m2", "taskId": task["id"], "role": "ROLE_USER", "parts": [{"data":
        {"approvalId": asked["approvalId"], "callHash": asked["callHash"], "decision": "allow"}}]});
    let body = json!({"model": "assistant", "stream": true,
        "messages": [{"role": "user", "content": "go on"}]});
    let completion = Request::post("/v1/chat/completions", &body).token(token);
    let mut stream = completion.open(gateway.address).await;
    stream.read_until("\"approval\":{").await;
    let details = approval_in(&stream.received());
    let mut events = ada.stream(&format!("conversation:{conversation}"), None).await;
    ada.say(conversation, "key-00001", "go on").await;
    let request = events.until_kind("approval_asked").await.pop().unwrap().data;

    sends.set(Fate::Unconfirmed);
    peer.call("SendMessage", &json!({"message": decision})).await.unwrap_err();
    let body = |hash: &Value| json!({"callHash": hash, "decision": "allow"});
    let path = format!("/v1/approvals/{}", details["approvalId"].as_str().unwrap());
    let decided = Request::post(&path, &body(&details["callHash"])).token(token);
    assert_eq!(decided.send(gateway.address).await.status, 503);
    let approval = request["approvalId"].as_str().unwrap();
    let path = format!("/conversations/{conversation}/approvals/{approval}");
    let decided = ada.post(&path, &body(&request["callHash"])).await;
    assert_eq!((decided.status, &decided.json()["executed"]), (503, &json!("unknown")));
    assert_eq!(records.outcomes("approval"), ["unknown", "unknown", "unknown"]);
}

#[tokio::test]
async fn refused_call_has_one_record() {
    let records = AuditRecords::capture();
    let fleet = Fleet::start().await;
    let _handler = Handler::start(&fleet).await;
    let gateway = fleet.gateway_with("call_tools = true").await;
    let token = gateway.token("program", FaceName::Console, &[Right::Call]).await;
    let body = json!({"arguments": {"text": "a"}});
    let call = Request::post("/api/v1/tools/write/calls", &body).token(&token);
    let refused = call.header("idempotency-key", "key-00001").send(gateway.address).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert_eq!(records.outcomes("tool_call"), ["unconfirmed"]);
}

#[tokio::test]
async fn unconfirmed_call_may_have_run() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::start().await;
    let _handler = Handler::start(&fleet).await;
    let sends = Sends::all(&mut fleet);
    let gateway = fleet.gateway_with("call_tools = true").await;
    let token = gateway.token("program", FaceName::Console, &[Right::Call]).await;
    let call = |key: &str| {
        let body = json!({"arguments": {"text": "a"}, "confirm": "write", "timeoutMs": 2000});
        let request = Request::post("/api/v1/tools/write/calls", &body);
        request.token(&token).header("idempotency-key", key)
    };
    assert_eq!(call("key-00001").send(gateway.address).await.status, 200);
    sends.set(Fate::Lost);
    let called = call("key-00002").send(gateway.address).await;
    assert_eq!(called.json()["executed"], "unknown", "{}", called.body);
    let outcomes = records.outcomes("tool_call");
    let expected = ["sent", "ok, executed: yes", "sent", "timeout, executed: unknown"];
    assert_eq!(outcomes, expected);
}
