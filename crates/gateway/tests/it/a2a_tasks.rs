//! Tasks of the A2A face: repeated, cut off, cancelled, failed, and waiting for approval.

use rockbot_store::Prefix;
use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};

use crate::{
    a2a_client::{A2aClient, artifact_after, message, rest_results, results},
    fleet::Fleet,
    http::Request,
};

#[tokio::test]
async fn repeated_message_is_one_task_at_every_gateway() {
    let fleet = Fleet::start().await;
    let rate = "messages_per_minute = 6000";
    let gateways = [fleet.gateway_with(rate).await, fleet.gateway_with(rate).await];
    let clients =
        [A2aClient::new(&gateways[0], "peer").await, A2aClient::new(&gateways[1], "peer").await];
    let sending: Vec<_> = (0..100)
        .map(|number| {
            let client = clients[number % 2].clone();
            tokio::spawn(async move { client.say(&message("m1", "wait for me")).await })
        })
        .collect();
    wait_until("the model is asked", || fleet.model.request_count() > 0).await;
    fleet.model.gate.add_permits(100);
    let mut tasks = Vec::new();
    for task in sending {
        tasks.push(task.await.unwrap());
    }
    for task in &tasks {
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "You said wait for me.");
        assert_eq!((&task["id"], &task["contextId"]), (&tasks[0]["id"], &tasks[0]["contextId"]));
    }
    assert_eq!(fleet.model.request_count(), 1);
    let other = json!({"message": message("m1", "another text")});
    assert_eq!(clients[1].refused("SendMessage", &other).await, -32602);
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn task_outlives_its_client_and_its_gateway() {
    let fleet = Fleet::start().await;
    let first = fleet.gateway().await;
    let client = A2aClient::new(&first, "peer").await;
    let params = json!({"message": message("m1", "wait for me")});
    let mut stream = client.open("SendStreamingMessage", &params).await;
    stream.read_until("You said").await;
    let id = client.start(&message("m1", "wait for me")).await["id"].clone();
    drop(stream);
    let mut again = client.open("SubscribeToTask", &json!({"id": id})).await;
    again.read_until("You said").await;
    first.kill();
    let second = fleet.gateway().await;
    let client = A2aClient::new(&second, "peer").await;
    assert_eq!(client.task(&id).await["status"]["state"], "TASK_STATE_WORKING");
    let mut rest = client.open("SubscribeToTask", &json!({"id": id})).await;
    rest.read_until("\"task\"").await;
    fleet.model.gate.add_permits(1);
    let events = results(rest).await;
    assert_eq!(events[0]["task"]["id"], id);
    assert_eq!(artifact_after(&events), "You said wait for me.");
    let end = &events.last().unwrap()["statusUpdate"]["status"]["state"];
    assert_eq!(end, "TASK_STATE_COMPLETED");
    let task = client.until(&id, "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "You said wait for me.");
    assert_eq!(client.refused("SubscribeToTask", &json!({"id": id})).await, -32004);
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn subscription_at_another_gateway_has_each_event_once_and_in_order() {
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let fleet = Fleet::start().await;
        let first = fleet.gateway().await;
        let client = A2aClient::new(&first, "peer").await;
        let id = client.start(&message("m1", "wait for me")).await["id"].clone();
        let mut stream = client.open("SubscribeToTask", &json!({"id": id})).await;
        stream.read_until("You said").await;
        first.kill();
        let second = fleet.gateway().await;
        let client = A2aClient::new(&second, "peer").await;
        let path = format!("/tasks/{}:subscribe", id.as_str().unwrap());
        let mut rest = if binding == "JSONRPC" {
            client.open("SubscribeToTask", &json!({"id": id})).await
        } else {
            client.rest_open(client.rest("GET", &path)).await
        };
        rest.read_until("\"task\"").await;
        fleet.model.gate.add_permits(1);
        let events =
            if binding == "JSONRPC" { results(rest).await } else { rest_results(rest).await };
        // The task as it is, the rest of the answer or all of it, and one end.
        assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_WORKING", "{events:?}");
        let kinds: Vec<_> =
            events.iter().flat_map(|event| event.as_object().unwrap().keys()).collect();
        let (task, end) = (kinds[0].as_str(), kinds[kinds.len() - 1].as_str());
        assert_eq!((task, end), ("task", "statusUpdate"), "{events:?}");
        let chunks = &events[1..events.len() - 1];
        assert!(chunks.iter().all(|event| event.get("artifactUpdate").is_some()), "{events:?}");
        let last_chunks = chunks.iter().map(|event| event["artifactUpdate"]["lastChunk"] == true);
        assert_eq!(last_chunks.filter(|is_last| *is_last).count(), 1, "{events:?}");
        assert_eq!(artifact_after(&events), "You said wait for me.", "{binding}");
        let state = &events[events.len() - 1]["statusUpdate"]["status"]["state"];
        assert_eq!(state, "TASK_STATE_COMPLETED");
        assert_eq!(fleet.model.request_count(), 1);
    }
}

#[tokio::test]
async fn cancelled_task_ends_once() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let id = client.start_waiting(&fleet).await;
    let task = client.call("CancelTask", &json!({"id": id})).await.unwrap();
    assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED", "{task}");
    assert!(task.get("artifacts").is_none(), "{task}");
    client.until(&id, "TASK_STATE_CANCELED").await;
    assert_eq!(client.refused("CancelTask", &json!({"id": id})).await, -32002);
    let repeated = client.say(&message("m1", "wait for me")).await;
    assert_eq!(repeated["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn failed_task_says_why() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    fleet.model.fail_next();
    let task = client.say(&message("m1", "hello")).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
    let reason = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(!reason.is_empty(), "{task}");
    let again = client.until(&task["id"], "TASK_STATE_FAILED").await;
    assert_eq!(again["status"]["message"]["parts"][0]["text"], reason);
    let mut more = message("m2", "again");
    more["taskId"] = task["id"].clone();
    assert_eq!(client.refused("SendMessage", &json!({"message": more})).await, -32004);
}

#[tokio::test]
async fn message_without_an_agent_is_no_task() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let client = A2aClient::new(&gateway, "peer").await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": {"message": message("m", "hello")}});
    let request = Request::post("/agents/absent", &body).header("a2a-version", "1.0");
    let error = client.send_raw(request).await.json()["error"].clone();
    assert_eq!(error["code"], -32603);
    assert!(error["message"].as_str().unwrap().contains("absent"), "{error}");
    assert_eq!(error["data"][0]["metadata"]["executed"], "no");
    let body = json!({"jsonrpc": "2.0", "id": 2, "method": "ListTasks", "params": {}});
    let request = Request::post("/agents/absent", &body).header("a2a-version", "1.0");
    assert_eq!(client.send_raw(request).await.json()["result"]["totalSize"], 0);
    let prefix = Prefix::new(["gateway", "a2a-tasks"]).unwrap();
    assert!(fleet.store.list(&prefix, None, 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn foreign_task_is_an_unknown_one() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let owner = A2aClient::new(&gateway, "owner").await;
    let other = A2aClient::new(&gateway, "other").await;
    let id = owner.start_waiting(&fleet).await;
    let unknown = json!({"id": "f".repeat(32)});
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let foreign = other.call(method, &json!({"id": id})).await.unwrap_err();
        assert_eq!(foreign["code"], -32001, "{method}");
        assert_eq!(foreign, other.call(method, &unknown).await.unwrap_err(), "{method}");
    }
    let mut more = message("m2", "hello");
    more["taskId"] = id.clone();
    assert_eq!(other.refused("SendMessage", &json!({"message": more})).await, -32001);
    fleet.model.gate.add_permits(1);
    owner.until(&id, "TASK_STATE_COMPLETED").await;
}

#[tokio::test]
async fn caller_decides_on_an_approval() {
    for (decision, said) in [("allow", "erased"), ("deny", "den")] {
        let fleet = Fleet::asking("erase", "{\"disk\":\"a\"}", "erased").await;
        let gateway = fleet.gateway().await;
        let client = A2aClient::new(&gateway, "peer").await;
        // It waits until the task needs the client.
        let task = client.say(&message("m1", "go on")).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
        let asked = task["status"]["message"]["parts"][1]["data"].clone();
        assert_eq!(asked["toolName"], "erase", "{task}");
        let decide = |hash: &Value, decision: &str| {
            let decision = json!({"approvalId": asked["approvalId"], "callHash": hash,
                "decision": decision});
            json!({"messageId": "m2", "taskId": task["id"], "contextId": task["contextId"],
                "role": "ROLE_USER", "parts": [{"data": decision}]})
        };
        let wrong = json!({"message": decide(&json!("x"), "allow")});
        assert_eq!(client.refused("SendMessage", &wrong).await, -32602);
        let mut text = message("m3", "allow");
        text["taskId"] = task["id"].clone();
        assert_eq!(client.refused("SendMessage", &json!({"message": text})).await, -32602);
        // Another gateway gets the open request from the agent.
        let second = fleet.gateway().await;
        let at_second = A2aClient::new(&second, "peer").await;
        let done = at_second.say(&decide(&asked["callHash"], decision)).await;
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
        assert_eq!(done["id"], task["id"]);
        let requests = fleet.model.requests.lock();
        let result = format!("{:?}", requests.last().unwrap().messages);
        assert!(result.contains(said), "{result}");
    }
}
