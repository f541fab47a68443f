//! Delivery of push notifications of the A2A face.

use std::{collections::BTreeSet, time::Duration};

use rockbot_gateway::GatewayParts;
use rockbot_store::Prefix;
use rockbot_testkit::fixture::{wait_until, within_timeout};
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, message},
    fleet::Fleet,
    hook::{Hook, Received},
};

/// Keys of a gateway that may notify this machine.
pub(crate) const LOCAL: &str = "a2a.push.enabled = true\na2a.push.allow_plain_http = true\n\
                                a2a.push.allow_private = [\"127.0.0.0/8\"]";

const COMPLETED: &str = "TASK_STATE_COMPLETED";

/// Makes attempts, scans and leases short.
pub(crate) fn quickly(parts: &mut GatewayParts) {
    let options = parts.a2a.push.as_mut().expect("push notifications are on");
    options.first_delay = Duration::from_millis(10);
    options.max_delay = Duration::from_millis(50);
    options.scan_interval = Duration::from_millis(50);
}

fn with_short_leases(parts: &mut GatewayParts) {
    quickly(parts);
    parts.a2a.push.as_mut().expect("push notifications are on").lease = Duration::from_secs(2);
}

/// Starts a task that waits for a permit, whose events go to a hook. Returns its id.
pub(crate) async fn start_notified(client: &A2aClient, fleet: &Fleet, hook: &Hook) -> Value {
    let configuration = json!({"returnImmediately": true,
        "taskPushNotificationConfig": {"url": hook.url(), "token": "secret"}});
    let params = json!({"message": message("m1", "wait for me"), "configuration": configuration});
    let task = client.call("SendMessage", &params).await.expect("a task")["task"].clone();
    wait_until("the model is asked", || fleet.model.request_count() > 0).await;
    task["id"].clone()
}

/// Returns whether a target has notifications that are not delivered.
pub(crate) async fn has_open_target(fleet: &Fleet) -> bool {
    let prefix = Prefix::new(["gateway", "a2a-push-open"]).unwrap();
    !fleet.store.list(&prefix, None, 1).await.unwrap().is_empty()
}

/// Waits until no target has notifications that are not delivered.
pub(crate) async fn all_closed(fleet: &Fleet) {
    within_timeout("all targets are closed", async {
        while has_open_target(fleet).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn events(received: &[Received]) -> Vec<&Value> {
    received.iter().map(|received| &received.event).collect()
}

#[tokio::test]
async fn events_are_delivered_in_order_with_the_token() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let gateway = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let id = start_notified(&client, &fleet, &hook).await;
    let authentication = json!({"scheme": "Bearer", "credentials": "c"});
    let second = Hook::start().await;
    let config = json!({"taskId": id, "url": second.url(), "authentication": authentication});
    client.call("CreateTaskPushNotificationConfig", &config).await.unwrap();
    hook.until("TASK_STATE_WORKING").await;
    second.until("TASK_STATE_WORKING").await;
    fleet.model.gate.add_permits(1);
    for hook in [&hook, &second] {
        let received = hook.until(COMPLETED).await;
        let first = &received[0].event["task"];
        assert_eq!(first["id"], id, "{received:?}");
        let [.., answer, end] = &*events(&received) else { panic!("{received:?}") };
        let artifact = &answer["artifactUpdate"];
        assert_eq!(artifact["artifact"]["parts"][0]["text"], "You said wait for me.", "{answer}");
        assert_eq!((&artifact["append"], &artifact["lastChunk"]), (&json!(false), &json!(true)));
        assert_eq!(end["statusUpdate"]["taskId"], id, "{end}");
        for received in &received {
            assert_eq!(received.header("content-type"), Some("application/a2a+json"));
        }
    }
    let headers = |hook: &Hook, name| {
        let received = hook.received().into_iter();
        let values = received.map(|received| received.header(name).map(str::to_owned));
        values.collect::<Vec<_>>()
    };
    let token = headers(&hook, "x-a2a-notification-token");
    assert!(token.iter().all(|token| token.as_deref() == Some("secret")), "{token:?}");
    let authorization = headers(&second, "authorization");
    assert!(authorization.iter().all(|value| value.as_deref() == Some("Bearer c")));
    assert!(headers(&hook, "authorization").iter().all(Option::is_none));
    all_closed(&fleet).await;
}

#[tokio::test]
async fn ended_task_is_delivered_whole() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let gateway = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let task = client.say(&message("m1", "hello")).await;
    let config = json!({"taskId": task["id"], "url": hook.url()});
    client.call("CreateTaskPushNotificationConfig", &config).await.unwrap();
    let received = hook.until(COMPLETED).await;
    assert_eq!(received[0].event["task"]["artifacts"], task["artifacts"]);
    all_closed(&fleet).await;
    assert_eq!(hook.received().len(), 1);
}

#[tokio::test]
async fn refused_event_is_sent_again_before_the_next() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let gateway = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&gateway, "peer").await;
    for _ in 0..3 {
        hook.answer_next(503, None);
    }
    start_notified(&client, &fleet, &hook).await;
    wait_until("the event is accepted", || hook.received().len() >= 4).await;
    fleet.model.gate.add_permits(1);
    let received = hook.until(COMPLETED).await;
    let events = events(&received);
    assert!(events[..4].iter().all(|event| *event == events[0]), "{events:?}");
    assert!(events[4..].iter().all(|event| *event != events[0]), "{events:?}");
}

#[tokio::test]
async fn failing_target_is_given_up() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let give_up = |parts: &mut GatewayParts| {
        quickly(parts);
        parts.a2a.push.as_mut().unwrap().give_up = Duration::ZERO;
    };
    let gateway = fleet.gateway_changed(LOCAL, give_up).await;
    let client = A2aClient::new(&gateway, "peer").await;
    hook.answer_next(500, None);
    let id = start_notified(&client, &fleet, &hook).await;
    wait_until("an attempt", || !hook.received().is_empty()).await;
    all_closed(&fleet).await;
    fleet.model.gate.add_permits(1);
    client.until(&id, COMPLETED).await;
    assert_eq!(hook.received().len(), 1);
}

#[tokio::test]
async fn deleted_target_gets_nothing_more() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let gateway = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let id = start_notified(&client, &fleet, &hook).await;
    hook.until("TASK_STATE_WORKING").await;
    let listed = client.call("ListTaskPushNotificationConfigs", &json!({"taskId": id})).await;
    let config = listed.unwrap()["configs"][0]["id"].clone();
    let path = json!({"taskId": id, "id": config});
    client.call("DeleteTaskPushNotificationConfig", &path).await.unwrap();
    fleet.model.gate.add_permits(1);
    client.until(&id, COMPLETED).await;
    all_closed(&fleet).await;
    assert!(hook.received().iter().all(|received| received.state() != Some(COMPLETED)));
}

#[tokio::test]
async fn one_of_two_gateways_delivers() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let first = fleet.gateway_changed(LOCAL, quickly).await;
    let _second = fleet.gateway_changed(LOCAL, quickly).await;
    let client = A2aClient::new(&first, "peer").await;
    start_notified(&client, &fleet, &hook).await;
    hook.until("TASK_STATE_WORKING").await;
    fleet.model.gate.add_permits(1);
    hook.until(COMPLETED).await;
    all_closed(&fleet).await;
    let received = hook.received();
    let ends = received.iter().filter(|received| received.state() == Some(COMPLETED)).count();
    assert_eq!(ends, 1, "{received:?}");
    let bodies: BTreeSet<_> = received.iter().map(|received| received.event.to_string()).collect();
    assert_eq!(bodies.len(), received.len(), "{received:?}");
}

#[tokio::test]
async fn delivery_outlives_its_gateway() {
    for is_killed in [true, false] {
        let (fleet, hook) = (Fleet::start().await, Hook::start().await);
        // An orderly stop releases leases, which expire later than the test otherwise.
        let first = if is_killed {
            fleet.gateway_changed(LOCAL, with_short_leases).await
        } else {
            fleet.gateway_changed(LOCAL, quickly).await
        };
        let client = A2aClient::new(&first, "peer").await;
        let id = start_notified(&client, &fleet, &hook).await;
        hook.until("TASK_STATE_WORKING").await;
        if is_killed {
            first.kill();
        } else {
            first.stop().await;
        }
        fleet.model.gate.add_permits(1);
        let _second = fleet.gateway_changed(LOCAL, quickly).await;
        let received = hook.until(COMPLETED).await;
        let end = &received.last().unwrap().event;
        let ended = end.get("task").map_or(&end["statusUpdate"]["taskId"], |task| &task["id"]);
        assert_eq!(*ended, id, "{received:?}");
        all_closed(&fleet).await;
    }
}
