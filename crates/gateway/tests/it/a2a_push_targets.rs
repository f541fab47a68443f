//! Targets of push notifications of the A2A face: their registration, and addresses that are refused.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use rockbot_egress::{DialPolicy, NameLookup};
use rockbot_gateway::{GatewayParts, PushOptions};
use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, message},
    a2a_push::{LOCAL, all_closed, has_open_target},
    audit_records::AuditRecords,
    fleet::Fleet,
    hook::Hook,
};

const CREATE: &str = "CreateTaskPushNotificationConfig";
const GET: &str = "GetTaskPushNotificationConfig";
const LIST: &str = "ListTaskPushNotificationConfigs";
const DELETE: &str = "DeleteTaskPushNotificationConfig";

/// Names, each with the addresses of its next lookups; the last one repeats.
#[derive(Debug)]
struct Names(Mutex<HashMap<&'static str, Vec<&'static str>>>);

impl NameLookup for Names {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let mut names = self.0.lock();
        let found = names
            .get_mut(host)
            .map(|lookups| if lookups.len() > 1 { lookups.remove(0) } else { lookups[0] });
        let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        async move { Ok(vec![SocketAddr::from((found?.parse::<IpAddr>().unwrap(), port))]) }.boxed()
    }
}

/// Sets names, and allows plain http to public addresses.
fn named(
    parts: &mut GatewayParts,
    names: impl IntoIterator<Item = (&'static str, Vec<&'static str>)>,
) {
    let names = Arc::new(Names(Mutex::new(names.into_iter().collect())));
    let policy = DialPolicy { allow_plain_http: true, names, ..DialPolicy::default() };
    parts.a2a.push = Some(PushOptions::new(policy).unwrap());
}

#[tokio::test]
async fn targets_are_created_read_and_deleted_over_both_bindings() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let gateway = fleet.gateway_with(LOCAL).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let task = client.say(&message("m1", "hello")).await["id"].clone();
    let of_task = json!({"taskId": task});
    let path = format!("/tasks/{}/pushNotificationConfigs", task.as_str().unwrap());
    assert_eq!(client.call(LIST, &of_task).await.unwrap(), json!({"configs": []}));

    let config = json!({"taskId": task, "url": hook.url(), "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "c"}});
    let created = client.call(CREATE, &config).await.unwrap();
    let mut expected = config.clone();
    expected["id"] = created["id"].clone();
    assert_eq!(created, expected);
    // A repeated request registers no second one.
    let repeated = client.rest_call(client.rest_post(&path, &config)).await.unwrap();
    assert_eq!(repeated, created);
    let id = created["id"].as_str().unwrap();
    let named = json!({"taskId": task, "id": id});
    assert_eq!(client.call(GET, &named).await.unwrap(), created);
    let get = client.rest("GET", &format!("{path}/{id}"));
    assert_eq!(client.rest_call(get).await.unwrap(), created);

    let with_id = |id: &str| json!({"taskId": task, "id": id, "url": hook.url()});
    for number in 2..=5 {
        client.call(CREATE, &with_id(&number.to_string())).await.unwrap();
    }
    assert_eq!(client.refused(CREATE, &with_id("6")).await, -32602, "five are registered");
    let replaced = json!({"taskId": task, "id": "5", "url": format!("{}/5", hook.url())});
    assert_eq!(client.call(CREATE, &replaced).await.unwrap(), replaced);
    let listed = client.rest_call(client.rest("GET", &path)).await.unwrap();
    let ids: Vec<_> = listed["configs"].as_array().unwrap().iter().map(|c| &c["id"]).collect();
    assert_eq!(json!(ids), json!([id, "2", "3", "4", "5"]));

    for _ in 0..2 {
        assert_eq!(client.call(DELETE, &named).await.unwrap(), json!({}));
        let delete = client.rest("DELETE", &format!("{path}/2"));
        assert_eq!(client.rest_call(delete).await.unwrap(), json!({}));
    }
    assert_eq!(client.refused(GET, &named).await, -32001);
    let (status, error) =
        client.rest_call(client.rest("GET", &format!("{path}/2"))).await.unwrap_err();
    assert_eq!((status, &error["details"][0]["reason"]), (404, &json!("TASK_NOT_FOUND")));
    let listed = client.call(LIST, &of_task).await.unwrap();
    assert_eq!(listed["configs"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn targets_of_a_foreign_task_are_those_of_an_unknown_one() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let gateway = fleet.gateway_with(LOCAL).await;
    let owner = A2aClient::new(&gateway, "owner").await;
    let other = A2aClient::new(&gateway, "other").await;
    let task = owner.say(&message("m1", "hello")).await["id"].clone();
    let config = json!({"taskId": task, "id": "1", "url": hook.url()});
    owner.call(CREATE, &config).await.unwrap();
    let mut unknown = config.clone();
    unknown["taskId"] = json!("f".repeat(32));
    for method in [CREATE, GET, LIST, DELETE] {
        let foreign = other.call(method, &config).await.unwrap_err();
        assert_eq!(foreign["code"], -32001, "{method}");
        assert_eq!(foreign, other.call(method, &unknown).await.unwrap_err(), "{method}");
    }
    assert_eq!(owner.call(GET, &config).await.unwrap(), config);
}

#[tokio::test]
async fn refused_addresses_are_not_registered() {
    let fleet = Fleet::start().await;
    let audit = AuditRecords::capture();
    let change = |parts: &mut GatewayParts| {
        let public = "93.184.216.34";
        named(parts, [("public.test", vec![public]), ("private.test", vec!["10.0.0.1"])]);
    };
    let gateway = fleet.gateway_changed("", change).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let task = client.say(&message("m1", "hello")).await["id"].clone();
    let requests = fleet.model.request_count();
    let mut messages = Vec::new();
    for url in [
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:169.254.169.254]/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://2130706433/",
        "http://10.0.0.1/",
        "http://private.test/",
        "http://unknown.test/",
        "http://user:password@public.test/",
        "file:///etc/passwd",
    ] {
        let config = json!({"taskId": task, "url": url});
        let error = client.call(CREATE, &config).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{url}");
        messages.push(error["message"].clone());
        // A message with such a target is not sent.
        let configuration = json!({"taskPushNotificationConfig": {"url": url}});
        let params = json!({"message": message("m2", "hello"), "configuration": configuration});
        let error = client.call("SendMessage", &params).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{url}");
        assert_eq!(error["data"][0]["metadata"]["executed"], "no", "{url}");
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "the reason is not shown: {messages:?}");
    assert_eq!(fleet.model.request_count(), requests);
    assert_eq!(client.list(&json!({})).await["totalSize"], 1);
    assert!(!has_open_target(&fleet).await);
    assert_eq!(audit.outcomes("push_target"), vec!["refused"; 20]);
}

#[tokio::test]
async fn name_that_becomes_private_is_refused_at_the_connection() {
    let (fleet, hook) = (Fleet::start().await, Hook::start().await);
    let audit = AuditRecords::capture();
    let change = |parts: &mut GatewayParts| {
        named(parts, [("rebinding.test", vec!["93.184.216.34", "127.0.0.1"])]);
    };
    let gateway = fleet.gateway_changed("", change).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let task = client.say(&message("m1", "hello")).await["id"].clone();
    let config = json!({"taskId": task, "url": format!("http://rebinding.test:{}/", hook.port())});
    client.call(CREATE, &config).await.unwrap();
    all_closed(&fleet).await;
    assert!(hook.received().is_empty());
    let registered = audit.with_action("push_target");
    let origin = format!("http://rebinding.test:{}", hook.port());
    let detail = registered[0]["detail"].as_str().unwrap();
    assert!(detail.ends_with(&origin), "{detail}");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (fleet, hook, other) = (Fleet::start().await, Hook::start().await, Hook::start().await);
    let gateway = fleet.gateway_with(LOCAL).await;
    let client = A2aClient::new(&gateway, "peer").await;
    let task = client.say(&message("m1", "hello")).await["id"].clone();
    hook.answer_next(307, Some(other.url()));
    let config = json!({"taskId": task, "url": hook.url()});
    client.call(CREATE, &config).await.unwrap();
    // It counts as a failed attempt.
    wait_until("a second attempt", || hook.received().len() >= 2).await;
    assert!(other.received().is_empty());
}

#[tokio::test]
async fn card_shows_whether_push_notifications_are_on() {
    let fleet = Fleet::start().await;
    for (keys, is_on) in [(LOCAL, true), ("", false)] {
        let gateway = fleet.gateway_with(keys).await;
        let client = A2aClient::new(&gateway, "peer").await;
        let card = client
            .send_raw(crate::http::Request::get("/agents/assistant/.well-known/agent-card.json"));
        let card: Value = card.await.json();
        assert_eq!(card["capabilities"]["pushNotifications"], is_on);
        assert!(card.get("signatures").is_none(), "{card}");
        if !is_on {
            let configuration = json!({"taskPushNotificationConfig": {"url": "https://a"}});
            let params = json!({"message": message("m1", "hello"), "configuration": configuration});
            assert_eq!(client.refused("SendMessage", &params).await, -32003);
        }
    }
    assert_eq!(fleet.model.request_count(), 0);
}
