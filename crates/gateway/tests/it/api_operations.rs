//! Calls, tools and dead letters over the API.

use rockbot_bus::{Publication, Settlement, Subscription};
use rockbot_contracts::{
    CallStages, Envelope, QueueSpec, SessionId, ToolCallId, ToolInvokeRequest, ToolInvokeResponse,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_testkit::fixture::reply_address;
use serde_json::json;

use crate::{api_harness::ApiGateway, fleet::Fleet};

fn request(call: &str) -> Envelope {
    Envelope::from_payload(&ToolInvokeRequest {
        tool_call_id: ToolCallId::new(call).unwrap(),
        tool_name: "bash".to_owned(),
        arguments: "{\"command\":\"ls\"}".to_owned(),
        session_id: SessionId::new("s").unwrap(),
    })
    .with_source("assistant")
}

fn reply(call: &str) -> Envelope {
    Envelope::from_payload(&ToolInvokeResponse {
        tool_call_id: ToolCallId::new(call).unwrap(),
        tool_name: "bash".to_owned(),
        content: "notes.md".to_owned(),
        is_error: false,
        blocks: Vec::new(),
        details: None,
        child_loop_id: None,
        elapsed_ms: Some(3),
        stages: Some(CallStages { queue_ms: Some(2), start_ms: 0, run_ms: 3 }),
    })
    .with_source("tool-handler/h1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_watched_and_shown() {
    let fleet = Fleet::start().await;
    let bus = &fleet.bus;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 10);
    let _handler = bus.consume(work).await.unwrap();
    let address: ReplyAddress = reply_address("assistant", "i");
    let _replies = bus.consume(Subscription::new(address.queue(), 10)).await.unwrap();
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let ada = gateway.person("ada");
    let mut stream = ada.stream("calls", None).await;
    let first = stream.until_named("calls").await;
    assert_eq!((&first.data["snapshot"], &first.data["calls"]), (&json!(true), &json!([])));
    // Until the watch receives copies.
    let call = loop {
        let id = ToolCallId::generate();
        bus.publish(Publication::mandatory(tool_invoke(), request(id.as_str()))).await.unwrap();
        let page =
            ada.read("/calls?filter=tool:bash state:live".replace(' ', "%20").as_str()).await;
        if let Some(call) = page["calls"].get(0) {
            break call["id"].as_str().unwrap().to_owned();
        }
    };
    bus.publish(Publication::mandatory(address.tool_result(), reply(&call))).await.unwrap();
    let ended = stream
        .until(|event| {
            let calls = event.data["calls"].as_array().cloned().unwrap_or_default();
            calls.iter().any(|shown| shown["id"] == call.as_str() && shown["state"] == "ok")
        })
        .await;
    let frame = &ended.last().unwrap().data;
    let shown = frame["calls"].as_array().unwrap();
    let shown = shown.iter().find(|shown| shown["id"] == call.as_str()).unwrap();
    assert_eq!((&shown["executed"], &shown["handler"]), (&json!("yes"), &json!("tool-handler/h1")));
    let details = ada.read(&format!("/calls/{call}")).await;
    assert_eq!(details["request"]["key"], "tool.invoke");
    assert_eq!((&details["reply"]["runMs"], &details["contentKept"]), (&json!(3), &json!(true)));
    let stages = json!({"queueMs": 2, "startMs": 0, "runMs": 3});
    assert_eq!(details["call"]["stages"], stages);
    assert!(!details.to_string().contains("notes.md"), "content needs its own right");
    let content = ada.read(&format!("/calls/{call}/content")).await;
    assert_eq!(content, json!({"arguments": "{\"command\":\"ls\"}", "result": "notes.md"}));
    let bob = gateway.member("bob", "talkers");
    for path in ["/calls", "/fleet", "/tools", "/letters", "/stream?topics=calls"] {
        assert_eq!(bob.get(path).await.status, 403, "{path}");
    }
    assert_eq!(ada.get("/calls?filter=state:faild").await.status, 400);
    let queues = ada.read("/fleet").await["queues"].clone();
    let invoke = queues.as_array().unwrap().iter().find(|queue| queue["name"] == "tool.invoke");
    assert_eq!(invoke.unwrap()["consumers"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_rehearsed_replayed_and_purged() {
    let fleet = Fleet::start().await;
    let bus = &fleet.bus;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 10);
    let mut handler = bus.consume(work).await.unwrap();
    for call in ["call-1", "call-2"] {
        bus.publish(Publication::mandatory(tool_invoke(), request(call))).await.unwrap();
        let delivery = handler.next().await.unwrap();
        delivery.settle(Settlement::dead_letter("rejected")).await.unwrap();
    }
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let ada = gateway.person("ada");
    let queues = ada.read("/letters").await;
    let invoke = queues["queues"].as_array().unwrap().iter().find(|q| q["name"] == "tool.invoke");
    assert_eq!(invoke.unwrap()["deadLetters"], 2);
    let page = ada.read("/letters/tool.invoke").await;
    assert_eq!(page["waiting"], 2);
    let letters = page["letters"].as_array().unwrap();
    assert_eq!((&letters[0]["tool"], &letters[0]["reason"]), (&json!("bash"), &json!("rejected")));
    let id = |at: usize| letters[at]["messageId"].as_str().unwrap().to_owned();
    let details = ada.read(&format!("/letters/tool.invoke/{}", id(0))).await;
    assert!(details["body"].as_str().unwrap().contains("call-1"), "{details}");
    let replay = |dry_run: bool| json!({"ids": [id(0)], "dryRun": dry_run});
    let rehearsed = ada.post("/letters/tool.invoke/replay", &replay(true)).await.json();
    assert_eq!((&rehearsed["replayed"], &rehearsed["left"]), (&json!([id(0)]), &json!(2)));
    let replayed = ada.post("/letters/tool.invoke/replay", &replay(false)).await.json();
    assert_eq!((&replayed["replayed"], &replayed["left"]), (&json!([id(0)]), &json!(1)));
    let delivery = handler.next().await.unwrap();
    assert_eq!(delivery.envelope().attempt, 2);
    delivery.settle(Settlement::Ack).await.unwrap();
    let again = ada.post("/letters/tool.invoke/replay", &replay(false)).await;
    assert_eq!((again.status, again.json()["executed"].clone()), (404, json!("no")));
    let purge = |confirm: &str| json!({"ids": [id(1)], "confirm": confirm});
    assert_eq!(ada.post("/letters/tool.invoke/purge", &purge("yes")).await.status, 400);
    let purged = ada.post("/letters/tool.invoke/purge", &purge("tool.invoke")).await.json();
    assert_eq!((&purged["deleted"], &purged["left"]), (&json!([id(1)]), &json!(0)));
    assert_eq!(ada.get("/letters/no.such.queue").await.status, 404);
}
