//! Bounds of the push notifications of the A2A face.

use std::sync::Arc;

use rockbot_store::{Entry, Key, Prefix, Store, Write};
use rockbot_testkit::fixture::{assert_never, wait_until, within_timeout};
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, message},
    a2a_push::{LOCAL, all_closed, quickly, start_notified},
    fleet::Fleet,
    hook::Hook,
};

const CREATE: &str = "CreateTaskPushNotificationConfig";
/// Maximum number of targets of one identity that a gateway notifies.
const MAX_OWN: usize = 64;
/// Maximum number of targets of one identity whose notifications are not delivered.
const MAX_OPEN: usize = 512;
const PREFIX: [&str; 2] = ["gateway", "a2a-push-open"];

/// Returns the targets whose notifications are not delivered.
async fn open_targets(store: &Arc<dyn Store>) -> Vec<(Key, Entry)> {
    store.list(&Prefix::new(PREFIX).unwrap(), None, MAX_OPEN).await.unwrap()
}

/// Returns the list and the fields of the only open target, or those that one of several has.
async fn an_open_target(store: &Arc<dyn Store>) -> (String, Value) {
    let entries = open_targets(store).await;
    let (key, entry) = entries.first().expect("an open target");
    let list = key.segments().nth(PREFIX.len()).expect("a list");
    (list, serde_json::from_slice(&entry.value).unwrap())
}

/// Adds open targets to a list, as other requests of its identity do.
async fn add_open_targets(store: &Arc<dyn Store>, list: &str, fields: &Value, count: usize) {
    for number in 0..count {
        let [first, second] = PREFIX;
        let key = Key::new([first, second, list, &format!("another-{number}")]).unwrap();
        store.write(Write::new(key, fields.to_string())).await.unwrap();
    }
}

/// Returns the configuration of a target of a task that has ended.
async fn configuration(client: &A2aClient, hook: &Hook) -> Value {
    let task = client.say(&message("m1", "hello")).await["id"].clone();
    json!({"taskId": task, "url": hook.url()})
}

#[tokio::test]
async fn identity_has_64_deliveries_at_a_time_beside_those_of_others() {
    const TARGETS: usize = MAX_OWN + 6;
    let (fleet, hook, other_hook) =
        (Fleet::start().await, Hook::gated().await, Hook::start().await);
    let gateway = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&gateway, "peer").await;
    client.call(CREATE, &configuration(&client, &hook).await).await.unwrap();
    let (list, fields) = an_open_target(&fleet.store).await;
    add_open_targets(&fleet.store, &list, &fields, TARGETS - 1).await;
    wait_until("all deliveries", || hook.open() == MAX_OWN).await;
    assert_never("another", wait_until("another", || hook.open() > MAX_OWN)).await;

    let other = A2aClient::new(&gateway, "other").await;
    other.call(CREATE, &configuration(&other, &other_hook).await).await.unwrap();
    other_hook.until("TASK_STATE_COMPLETED").await;

    hook.release();
    all_closed(&fleet).await;
    assert!(hook.received().len() >= TARGETS, "{}", hook.received().len());
}

#[tokio::test]
async fn identity_with_512_open_targets_registers_no_other() {
    let (fleet, hook) = (Fleet::start().await, Hook::gated().await);
    let gateway = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let known = configuration(&client, &hook).await;
    client.call(CREATE, &known).await.unwrap();
    let (list, fields) = an_open_target(&fleet.store).await;
    add_open_targets(&fleet.store, &list, &fields, MAX_OPEN - 1).await;

    let mut another = known.clone();
    another["id"] = json!("another");
    let refused = client.call(CREATE, &another).await.unwrap_err();
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("512 targets of push notifications"), "{refused}");
    assert_eq!(refused["data"][0]["metadata"]["executed"], "no", "{refused}");
    // The limit is that of an identity, and a known target may be registered again.
    client.call(CREATE, &known).await.unwrap();
    let other = A2aClient::new(&gateway, "other").await;
    other.call(CREATE, &configuration(&other, &hook).await).await.unwrap();

    hook.release();
    all_closed(&fleet).await;
    client.call(CREATE, &another).await.unwrap();
}

#[tokio::test]
async fn time_of_failed_attempts_counts_across_gateways() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    for _ in 0..1000 {
        hook.answer_next(500, None);
    }
    let first = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&first, "peer").await;
    start_notified(&client, &fleet, &hook).await;
    within_timeout("the first failed attempt is recorded", async {
        while !an_open_target(&fleet.store).await.1["failingSinceMs"].is_u64() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    first.stop().await;
    // It failed over an hour ago.
    let (key, entry) = open_targets(&fleet.store).await.remove(0);
    let mut fields: Value = serde_json::from_slice(&entry.value).unwrap();
    fields["failingSinceMs"] = json!(fields["failingSinceMs"].as_u64().unwrap() - 3_600_000);
    fleet.store.write(Write::new(key, fields.to_string())).await.unwrap();

    let before = hook.received().len();
    let _second = fleet.gateway_changed(LOCAL, quickly).await;
    all_closed(&fleet).await;
    assert_eq!(hook.received().len(), before + 1);
}

#[tokio::test]
async fn endless_response_does_not_hold_a_delivery() {
    let (fleet, hook) = (Fleet::start().await, Hook::endless().await);
    let gateway = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&gateway, "peer").await;
    client.call(CREATE, &configuration(&client, &hook).await).await.unwrap();
    all_closed(&fleet).await;
    assert_eq!(hook.received().len(), 1);
}
