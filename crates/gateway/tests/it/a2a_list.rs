//! Lists of tasks: pages, filters, and whose tasks they have.

use rockbot_store::Prefix;
use rockbot_testkit::fixture::{wait_until, within_timeout};
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, message},
    fleet::Fleet,
    http::Request,
    sends::{Fate, Sends},
};

/// Waits until the ends of this number of tasks are listed in the store.
async fn until_ended(fleet: &Fleet, number: usize) {
    let prefix = Prefix::new(["gateway", "a2a-lists"]).unwrap();
    within_timeout("the ends are recorded", async {
        loop {
            let listed = fleet.store.list(&prefix, None, 1000).await.unwrap();
            let is_ended = |value: &[u8]| {
                let entry: Value = serde_json::from_slice(value).unwrap();
                entry["end"].is_object()
            };
            let ended = listed.iter().filter(|(_, entry)| is_ended(&entry.value)).count();
            if ended == number && listed.len() == number {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn ids(page: &Value) -> Vec<String> {
    let tasks = page["tasks"].as_array().unwrap();
    tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_have_own_tasks_newest_first() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let other = A2aClient::new(&gateway, "other").await;
    for number in 0..5 {
        client.say(&message(&format!("m{number}"), "hello")).await;
    }
    other.say(&message("m0", "hello")).await;
    until_ended(&fleet, 6).await;
    let all = client.list(&json!({})).await;
    assert_eq!(
        (&all["totalSize"], &all["pageSize"], &all["nextPageToken"]),
        (&json!(5), &json!(50), &json!(""))
    );
    let tasks = all["tasks"].as_array().unwrap();
    let times: Vec<_> = tasks.iter().map(|task| task["status"]["timestamp"].as_str()).collect();
    assert!(times.iter().all(Option::is_some) && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert!(tasks.iter().all(|task| task.get("artifacts").is_none()), "{all}");
    // Page by page, over both bindings, each task comes once.
    let (mut by_rpc, mut by_rest, mut token) = (Vec::new(), Vec::new(), String::new());
    for size in [2, 2, 1] {
        let page = client.list(&json!({"pageSize": 2, "pageToken": token})).await;
        let path = format!("/tasks?pageSize=2&pageToken={token}");
        assert_eq!(client.rest_call(client.rest("GET", &path)).await.unwrap(), page);
        assert_eq!(page["tasks"].as_array().unwrap().len(), size, "{page}");
        by_rpc.extend(ids(&page));
        by_rest.extend(ids(&page));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
    }
    assert_eq!((&by_rpc, &by_rest, token.as_str()), (&ids(&all), &ids(&all), ""));
    let foreign = other.list(&json!({})).await;
    assert_eq!(foreign["totalSize"], 1);
    assert!(!ids(&all).contains(&ids(&foreign)[0]));
    let absent = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    let absent = Request::post("/agents/absent", &absent).header("a2a-version", "1.0");
    assert_eq!(client.send_raw(absent).await.json()["result"]["totalSize"], 0);
}

#[tokio::test]
async fn filters_select_by_context_state_and_time() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let done = client.say(&message("m1", "hello")).await;
    until_ended(&fleet, 1).await;
    let params = json!({"message": message("m2", "wait for me")});
    let mut stream = client.open("SendStreamingMessage", &params).await;
    stream.read_until("You said").await;
    let running = client.start(&message("m2", "wait for me")).await;
    for (params, expected) in [
        (json!({"status": "TASK_STATE_WORKING"}), vec![&running]),
        (json!({"status": "TASK_STATE_COMPLETED"}), vec![&done]),
        (json!({"status": "TASK_STATE_FAILED"}), vec![]),
        (json!({"contextId": done["contextId"]}), vec![&done]),
        (json!({"contextId": "unknown"}), vec![]),
        (json!({"statusTimestampAfter": "2100-01-01T00:00:00Z"}), vec![]),
        (json!({"statusTimestampAfter": "1960-01-01T00:00:00Z"}), vec![&running, &done]),
    ] {
        let page = client.list(&params).await;
        let expected: Vec<_> = expected.iter().map(|task| task["id"].as_str().unwrap()).collect();
        assert_eq!(ids(&page), expected, "{params}");
        assert_eq!(page["totalSize"], expected.len(), "{params}");
    }
    let whole = client.list(&json!({"includeArtifacts": true})).await;
    assert_eq!(whole["tasks"][0]["artifacts"][0]["parts"][0]["text"], "You said ");
    assert_eq!(whole["tasks"][1]["artifacts"], done["artifacts"]);
    fleet.model.gate.add_permits(1);
    client.until(&running["id"], "TASK_STATE_COMPLETED").await;
}

#[tokio::test]
async fn list_without_the_agent_has_recorded_states() {
    let mut fleet = Fleet::start().await;
    let sends = Sends::to_agents(&mut fleet);
    let first = fleet.gateway().await;
    let client = A2aClient::new(&first, "peer").await;
    let ids_of = |task: &Value| task["id"].as_str().unwrap().to_owned();
    let done = ids_of(&client.say(&message("m1", "hello")).await);
    until_ended(&fleet, 1).await;
    let running = ids_of(&client.start(&message("m2", "wait for me")).await);
    wait_until("the model is asked", || fleet.model.request_count() == 2).await;
    first.kill();
    let second = fleet.gateway().await;
    let client = A2aClient::new(&second, "peer").await;
    sends.set(Fate::Unroutable);
    let page = client.list(&json!({"includeArtifacts": true})).await;
    assert_eq!(ids(&page), [running.clone(), done]);
    let tasks = page["tasks"].as_array().unwrap();
    let states = [0, 1].map(|at| tasks[at]["status"]["state"].clone());
    assert_eq!(states, ["TASK_STATE_SUBMITTED", "TASK_STATE_COMPLETED"]);
    assert!(tasks.iter().all(|task| task.get("artifacts").is_none()), "{page}");
    let request = client.rest("GET", &format!("/tasks/{running}"));
    let (status, error) = client.rest_call(request).await.unwrap_err();
    assert_eq!((status, &error["status"]), (503, &json!("UNAVAILABLE")));
    sends.set(Fate::Arrives);
    fleet.model.gate.add_permits(1);
    client.until(&json!(running), "TASK_STATE_COMPLETED").await;
}

#[tokio::test]
async fn list_at_another_gateway_has_present_states() {
    let fleet = Fleet::start().await;
    let first = fleet.gateway().await;
    let client = A2aClient::new(&first, "peer").await;
    let ids_of = |task: &Value| task["id"].as_str().unwrap().to_owned();
    let ended = ids_of(&client.start(&message("m1", "wait for one")).await);
    wait_until("the model is asked", || fleet.model.request_count() == 1).await;
    let running = ids_of(&client.start(&message("m2", "wait for two")).await);
    wait_until("the model is asked", || fleet.model.request_count() == 2).await;
    // Its end is recorded by no gateway.
    first.kill();
    fleet.model.gate.add_permits(1);
    let second = fleet.gateway().await;
    let client = A2aClient::new(&second, "peer").await;
    client.until(&json!(ended), "TASK_STATE_COMPLETED").await;
    let page = client.list(&json!({})).await;
    assert_eq!(ids(&page), [ended, running]);
    let states = [0, 1].map(|at| page["tasks"][at]["status"]["state"].clone());
    assert_eq!(states, ["TASK_STATE_COMPLETED", "TASK_STATE_WORKING"]);
    let refused = client.refused("ListTasks", &json!({"pageToken": "forged"})).await;
    assert_eq!(refused, -32602);
    fleet.model.gate.add_permits(1);
}

#[tokio::test]
async fn first_list_at_another_gateway_has_open_approvals() {
    let fleet = Fleet::asking("erase", "{\"disk\":\"a\"}", "erased").await;
    let first = fleet.gateway().await;
    let client = A2aClient::new(&first, "peer").await;
    let task = client.say(&message("m1", "go on")).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    let second = fleet.gateway().await;
    let at_second = A2aClient::new(&second, "peer").await;
    let page = at_second.list(&json!({"status": "TASK_STATE_INPUT_REQUIRED"})).await;
    let asked = |task: &Value| {
        task["status"]["message"]["parts"][1]["data"]["approvalId"].as_str().map(str::to_owned)
    };
    assert_eq!(asked(&page["tasks"][0]), asked(&task));
    let third = fleet.gateway().await;
    let at_third = A2aClient::new(&third, "peer").await;
    let found = at_third.task(&task["id"]).await;
    assert_eq!(found["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{found}");
}

#[tokio::test]
async fn pages_after_a_restart_have_each_task_once() {
    const TASKS: usize = 8;
    let fleet = Fleet::start().await;
    let first = fleet.gateway_with("messages_per_minute = 6000").await;
    let client = A2aClient::new(&first, "peer").await;
    for number in 0..TASKS {
        client.start(&message(&format!("m{number}"), "wait for me")).await;
    }
    wait_until("the model is asked", || fleet.model.request_count() == TASKS).await;
    // The ends are recorded by no gateway: the next one sees all of them at once.
    first.kill();
    fleet.model.gate.add_permits(TASKS);
    let second = fleet.gateway_with("messages_per_minute = 6000").await;
    let client = A2aClient::new(&second, "peer").await;
    until_answered(&fleet, &client).await;
    let whole = ids(&client.list(&json!({})).await);
    let (mut by_page, mut token) = (Vec::new(), String::new());
    for _ in 0..TASKS {
        let page = client.list(&json!({"pageSize": 1, "pageToken": token})).await;
        by_page.extend(ids(&page));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
    }
    assert_eq!((by_page, token.as_str()), (whole.clone(), ""));
    assert_eq!(whole.len(), TASKS);
}

/// Waits until every task of the caller has ended.
async fn until_answered(fleet: &Fleet, client: &A2aClient) {
    within_timeout("the tasks end", async {
        loop {
            let page = client.list(&json!({"status": "TASK_STATE_COMPLETED"})).await;
            if page["totalSize"] == fleet.model.request_count() {
                return;
            }
        }
    })
    .await;
}
