//! Audit records of messages and decisions that the broker did not confirm: they may have arrived.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use rockbot_bus::{Bus, Publication, PublishError};
use rockbot_gateway::{FaceName, Right};
use rockbot_testkit::InterceptedBus;
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, message},
    api_harness::ApiGateway,
    audit_records::AuditRecords,
    fleet::Fleet,
    handler::Handler,
    http::Request,
    openai_approvals::approval_in,
};

/// Makes publishes of the gateways arrive without a confirm while the flag is set.
fn lose_confirms(fleet: &mut Fleet) -> Arc<AtomicBool> {
    intercept(fleet, true)
}

/// Makes publishes of the gateways get no confirm while the flag is set, whether they arrive or not.
fn intercept(fleet: &mut Fleet, arrive: bool) -> Arc<AtomicBool> {
    let is_lost = Arc::new(AtomicBool::new(false));
    let flag = is_lost.clone();
    let publish = move |bus: Arc<dyn Bus>, publication: Publication| {
        let is_lost = flag.load(Relaxed);
        async move {
            let key = publication.key.clone();
            if arrive || !is_lost {
                bus.publish(publication).await?;
            }
            if is_lost {
                let reason = "connection lost".to_owned();
                return Err(PublishError::Unconfirmed { key, reason });
            }
            Ok(())
        }
    };
    fleet.bus = InterceptedBus::wrap(fleet.bus.clone(), publish);
    is_lost
}

#[tokio::test]
async fn unconfirmed_message_may_have_arrived() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::start().await;
    let is_lost = lose_confirms(&mut fleet);
    let gateway = fleet.gateway().await;
    let peer = A2aClient::new(&gateway, "peer").await;
    let token = gateway.openai_token().await;
    let console = ApiGateway::start(&fleet, "console").await;
    let ada = console.person("ada");
    let conversation = ada.converse().await;
    is_lost.store(true, Relaxed);

    let error = peer.call("SendMessage", &json!({"message": message("m1", "hello")})).await;
    let error = error.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("may have arrived"), "{error}");
    assert_eq!(error["data"][0]["metadata"]["executed"], "unknown");
    let body = json!({"model": "assistant", "messages": [{"role": "user", "content": "hello"}]});
    let completion = Request::post("/v1/chat/completions", &body).token(&token);
    assert_eq!(completion.send(gateway.address).await.status, 503);
    let said = ada.say(&conversation, "key-00001", "hello").await;
    assert_eq!((said.status, &said.json()["executed"]), (503, &json!("unknown")));
    assert_eq!(records.outcomes("message"), ["unknown", "unknown", "unknown"]);

    is_lost.store(false, Relaxed);
    let absent = json!({"model": "absent", "messages": [{"role": "user", "content": "hello"}]});
    let absent = Request::post("/v1/chat/completions", &absent).token(&token);
    assert_eq!(absent.send(gateway.address).await.status, 503);
    assert_eq!(records.outcomes("message").last().unwrap(), "not sent");
}

#[tokio::test]
async fn unconfirmed_cancel_may_have_arrived() {
    let records = AuditRecords::capture();
    let mut fleet = Fleet::start().await;
    let is_lost = lose_confirms(&mut fleet);
    let gateway = fleet.gateway().await;
    let peer = A2aClient::new(&gateway, "peer").await;
    let console = ApiGateway::start(&fleet, "console").await;
    let ada = console.person("ada");
    let conversation = ada.converse().await;
    let id = peer.start(&message("m1", "wait for me")).await["id"].clone();
    peer.until(&id, "TASK_STATE_WORKING").await;
    is_lost.store(true, Relaxed);
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
    let is_lost = lose_confirms(&mut fleet);
    let gateway = fleet.gateway().await;
    let peer = A2aClient::new(&gateway, "peer").await;
    let token = gateway.openai_token().await;
    let console = ApiGateway::start(&fleet, "console").await;
    let ada = console.person("ada");

    let task = peer.say(&message("m1", "go on")).await;
    let asked = &task["status"]["message"]["parts"][1]["data"];
    let decision = json!({"messageId": "m2", "taskId": task["id"], "role": "ROLE_USER", "parts": [{"data":
        {"approvalId": asked["approvalId"], "callHash": asked["callHash"], "decision": "allow"}}]});
    let body = json!({"model": "assistant", "stream": true,
        "messages": [{"role": "user", "content": "go on"}]});
    let completion = Request::post("/v1/chat/completions", &body).token(&token);
    let mut stream = completion.open(gateway.address).await;
    stream.read_until("\"approval\":{").await;
    let details = approval_in(&stream.received());
    let conversation = ada.converse().await;
    let mut events = ada.stream(&format!("conversation:{conversation}"), None).await;
    ada.say(&conversation, "key-00001", "go on").await;
    let request = events.until_kind("approval_asked").await.pop().unwrap().data;

    is_lost.store(true, Relaxed);
    peer.call("SendMessage", &json!({"message": decision})).await.unwrap_err();
    let body = |hash: &Value| json!({"callHash": hash, "decision": "allow"});
    let path = format!("/v1/approvals/{}", details["approvalId"].as_str().unwrap());
    let decided = Request::post(&path, &body(&details["callHash"])).token(&token);
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
    let is_lost = intercept(&mut fleet, false);
    let gateway = fleet.gateway_with("call_tools = true").await;
    let token = gateway.token("program", FaceName::Console, &[Right::Call]).await;
    let call = |key: &str| {
        let body = json!({"arguments": {"text": "a"}, "confirm": "write", "timeoutMs": 2000});
        let request = Request::post("/api/v1/tools/write/calls", &body);
        request.token(&token).header("idempotency-key", key)
    };
    assert_eq!(call("key-00001").send(gateway.address).await.status, 200);
    is_lost.store(true, Relaxed);
    let called = call("key-00002").send(gateway.address).await;
    assert_eq!(called.json()["executed"], "unknown", "{}", called.body);
    let outcomes = records.outcomes("tool_call");
    let expected = ["sent", "ok, executed: yes", "sent", "timeout, executed: unknown"];
    assert_eq!(outcomes, expected);
}
