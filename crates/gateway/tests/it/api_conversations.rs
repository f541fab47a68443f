//! Conversations over the API: idempotent messages, resumed streams, and people who are kept apart.

use futures_util::{StreamExt, stream};
use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};

use crate::{
    api_harness::{ApiGateway, Person, StreamEvent},
    fleet::Fleet,
    http::Request,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_arrives_in_stream_history_and_list() {
    let fleet = Fleet::start().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let ada = gateway.person("ada");
    let id = ada.converse().await;
    let mut stream = ada.stream(&format!("conversation:{id}"), None).await;
    assert_eq!(stream.next().await.name, "hello");
    let sent = ada.say(&id, "key-00001", "Hello there").await;
    assert_eq!((sent.status, sent.json()["state"].clone()), (202, json!("accepted")));
    let events = stream.until_kind("answer").await;
    let message = &events[0].data;
    assert_eq!((&message["kind"], &message["key"]), (&json!("message"), &json!("key-00001")));
    assert_eq!(message["messageId"], sent.json()["messageId"]);
    assert_eq!(events.last().unwrap().data["text"], "You said Hello there.");
    let history = ada.answered(&id, 1).await;
    assert_eq!(history[0]["text"], "Hello there");
    let list = ada.read("/conversations?query=hello").await;
    let entry = &list["conversations"][0];
    assert_eq!((&entry["title"], &entry["turns"]), (&json!("Hello there"), &json!(1)));
    assert_eq!(ada.read("/conversations?query=other").await["conversations"], json!([]));
    let export = ada.get(&format!("/conversations/{id}/export")).await;
    assert!(export.body.contains("## You\n\nHello there"), "{}", export.body);
    assert!(export.header("content-disposition").unwrap().starts_with("attachment"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_message_runs_one_turn() {
    let fleet = Fleet::start().await;
    let (one, two) = (ApiGateway::start(&fleet, "g1").await, ApiGateway::start(&fleet, "g2").await);
    let ada = one.person("ada");
    let id = ada.converse().await;
    let attempts = stream::iter(0..5).map(|_| ada.say(&id, "key-00001", "wait for me"));
    let sent: Vec<_> = attempts.buffer_unordered(5).collect().await;
    let ids: Vec<_> = sent.iter().map(|sent| sent.json()["messageId"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0] && id.is_string()), "{sent:?}");
    assert_eq!(sent.iter().filter(|sent| sent.json()["state"] == "accepted").count(), 1);
    // Another replica of the gateway, while the turn runs and after it.
    let elsewhere = two.person("ada");
    let repeated = elsewhere.say(&id, "key-00001", "wait for me").await;
    assert_eq!((repeated.status, &repeated.json()["messageId"]), (202, &ids[0]));
    wait_until("the model is asked", || fleet.model.request_count() > 0).await;
    fleet.model.gate.add_permits(1);
    ada.answered(&id, 1).await;
    let later = elsewhere.say(&id, "key-00001", "wait for me").await;
    assert_eq!(later.json()["state"], "repeated");
    assert_eq!(fleet.model.request_count(), 1);
    let other = ada.say(&id, "key-00001", "something else").await;
    assert_eq!((other.status, other.json()["executed"].clone()), (409, json!("no")));
    let path = format!("/conversations/{id}/messages");
    let missing = ada.post(&path, &json!({"text": "no key"})).await;
    assert_eq!((missing.status, missing.json()["code"].clone()), (400, json!("missing_key")));
}

/// Adds the events of a conversation to what a page would show: text of a message, and other kinds.
fn apply(shown: &mut Vec<String>, event: &StreamEvent) {
    let data = &event.data;
    let text = data["text"].as_str().unwrap_or_default();
    match (data["kind"].as_str().unwrap(), shown.last_mut()) {
        ("text_delta", Some(last)) if last.starts_with("text:") => last.push_str(text),
        ("text_delta", _) => shown.push(format!("text:{text}")),
        (kind, _) => shown.push(format!("{kind}:{text}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_stream_has_each_event_once_and_in_order() {
    let fleet = Fleet::start().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let ada = gateway.person("ada");
    let id = ada.converse().await;
    let topic = format!("conversation:{id}");
    let mut undisturbed = ada.stream(&topic, None).await;
    undisturbed.until_named("hello").await;
    let mut stream = ada.stream(&topic, None).await;
    stream.until_named("hello").await;
    let (mut shown, mut last) = (Vec::new(), None);
    for turn in 0..3 {
        ada.say(&id, &format!("key-0000{turn}"), &format!("wait {turn}")).await;
        for event in stream.until_kind("text_delta").await {
            apply(&mut shown, &event);
            last = event.id;
        }
        // The connection is lost in the middle of the answer, which ends meanwhile.
        drop(stream);
        fleet.model.gate.add_permits(1);
        ada.answered(&id, turn + 1).await;
        stream = ada.stream(&topic, last.as_deref()).await;
        for event in stream.until_kind("answer").await {
            apply(&mut shown, &event);
            last = event.id;
        }
    }
    let mut whole = Vec::new();
    for _ in 0..3 {
        undisturbed.until_kind("answer").await.iter().for_each(|event| apply(&mut whole, event));
    }
    assert_eq!(shown, whole);
    let expected = ["message:wait 0", "text:You said wait 0.", "answer:You said wait 0."];
    assert_eq!(shown[..3], expected);
    // A position of another process of the gateway.
    let mut other = ada.stream(&topic, Some("0123456789abcdef-3")).await;
    let reset = other.until_named("reset").await;
    assert_eq!(reset.data, json!({"topic": topic, "reason": "epoch"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_continues_in_the_stream() {
    let fleet = Fleet::start().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let ada = gateway.person("ada");
    let id = ada.converse().await;
    ada.say(&id, "key-00001", "first").await;
    ada.answered(&id, 1).await;
    let mut stream = ada.stream(&format!("conversation:{id}"), None).await;
    stream.until_named("hello").await;
    ada.say(&id, "key-00002", "wait").await;
    stream.until_kind("text_delta").await;
    let snapshot = ada.read(&format!("/conversations/{id}")).await;
    let kinds = |items: &Value| -> Vec<String> {
        items.as_array().unwrap().iter().map(|item| item["kind"].to_string()).collect()
    };
    // The running turn is in the events only.
    assert_eq!(kinds(&snapshot["history"]).last().unwrap(), "\"answer\"");
    assert_eq!(kinds(&snapshot["running"]), ["\"message\"", "\"text_delta\""]);
    assert_eq!(snapshot["conversation"]["state"], "running");
    let after = snapshot["lastEventId"].as_str().unwrap().to_owned();
    let mut resumed = ada.stream(&format!("conversation:{id}"), Some(&after)).await;
    fleet.model.gate.add_permits(1);
    let rest = resumed.until_kind("answer").await;
    let kinds: Vec<_> = rest.iter().map(|event| event.data["kind"].clone()).collect();
    assert_eq!(kinds, [json!("text_delta"), json!("answer")]);
    let events = ada.read(&format!("/conversations/{id}/events?after={after}")).await;
    assert_eq!(events["events"].as_array().unwrap().last().unwrap()["kind"], "answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_gateway_adopts_the_running_turn() {
    let fleet = Fleet::start().await;
    let first = ApiGateway::start(&fleet, "g1").await;
    let id = first.person("ada").converse().await;
    first.person("ada").say(&id, "key-00001", "wait").await;
    wait_until("the model is asked", || fleet.model.request_count() > 0).await;
    drop(first);
    let second = ApiGateway::start(&fleet, "g2").await;
    let ada = second.person("ada");
    let mut stream = ada.stream(&format!("conversation:{id}"), None).await;
    stream.until_named("hello").await;
    let snapshot = ada.read(&format!("/conversations/{id}")).await;
    assert_eq!(snapshot["conversation"]["state"], "running");
    fleet.model.gate.add_permits(1);
    let events = stream.until_kind("answer").await;
    assert_eq!(events.last().unwrap().data["text"], "You said wait.");
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_see_only_their_own_conversations() {
    let fleet = Fleet::start().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let (ada, bob) = (gateway.person("ada"), gateway.person("bob"));
    let id = ada.converse().await;
    ada.say(&id, "key-00001", "secret").await;
    ada.answered(&id, 1).await;
    assert_eq!(bob.read("/conversations").await["conversations"], json!([]));
    let path = format!("/conversations/{id}");
    for sub in ["", "/events?after=x", "/export"] {
        assert_eq!(bob.get(&format!("{path}{sub}")).await.status, 404, "{sub}");
    }
    assert_eq!(bob.get(&format!("/stream?topics=conversation:{id}")).await.status, 404);
    assert_eq!(bob.say(&id, "key-00002", "mine now").await.status, 404);
    for sub in ["/cancel", "/share"] {
        assert_eq!(bob.post(&format!("{path}{sub}"), &json!({})).await.status, 404, "{sub}");
    }
    let decision = json!({"callHash": "x", "decision": "allow"});
    assert_eq!(bob.post(&format!("{path}/approvals/a"), &decision).await.status, 404);
    assert_eq!(delete(&bob, &path).await, 404);
    assert_eq!(fleet.model.request_count(), 1);
    // A share opens it read-only, until it ends.
    let share = ada.post(&format!("{path}/share"), &json!({})).await.json()["shareId"].clone();
    let share = share.as_str().unwrap();
    let shared = bob.read(&format!("/shared/{share}")).await;
    assert_eq!(
        (&shared["readOnly"], &shared["history"][0]["text"]),
        (&json!(true), &json!("secret"))
    );
    let mut stream = bob.stream(&format!("shared:{share}"), None).await;
    stream.until_named("hello").await;
    ada.say(&id, "key-00003", "more").await;
    stream.until_kind("answer").await;
    assert_eq!(delete(&ada, &format!("{path}/share")).await, 204);
    assert_eq!(bob.get(&format!("/shared/{share}")).await.status, 404);
    let ended = stream.until_named("reset").await;
    assert_eq!(ended.data, json!({"topic": format!("shared:{share}"), "reason": "ended"}));
    assert_eq!(delete(&ada, &path).await, 204);
    assert_eq!(ada.get(&path).await.status, 404);
}

async fn delete(person: &Person, path: &str) -> u16 {
    person.send(Request::new("DELETE", &format!("/api/v1{path}"))).await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_turn_ends_in_the_stream() {
    let fleet = Fleet::start().await;
    let gateway = ApiGateway::start(&fleet, "g1").await;
    let ada = gateway.person("ada");
    let id = ada.converse().await;
    let mut stream = ada.stream(&format!("conversation:{id}"), None).await;
    ada.say(&id, "key-00001", "wait").await;
    stream.until_kind("text_delta").await;
    let cancelled = ada.post(&format!("/conversations/{id}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, 202, "{}", cancelled.body);
    let events = stream.until_kind("answer").await;
    assert_eq!(events.last().unwrap().data["outcome"], "cancelled");
    let renamed = json!({"title": "Never mind"});
    let request = Request::new("PATCH", &format!("/api/v1/conversations/{id}"));
    let request = request.header("content-type", "application/json").body(renamed.to_string());
    assert_eq!(ada.send(request).await.json()["title"], "Never mind");
    stream.until_kind("renamed").await;
}
