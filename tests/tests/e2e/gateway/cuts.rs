//! Streams whose connection is cut three times, once in each step of a turn.

use rockbot_testkit::proxy::FaultProxy;
use serde_json::{Value, json};

use super::{
    api_client::{A2A_VERSION, Client, EventReader, a2a_message, rpc_request},
    harness::GatewayFleet,
};
use crate::process::Running;

/// A gateway with all faces, and a client that reaches it through a proxy.
struct CutGateway {
    fleet: GatewayFleet,
    _gateway: Running,
    proxy: FaultProxy,
    client: Client,
    /// Reaches the gateway without the proxy.
    direct: Client,
}

impl CutGateway {
    async fn start() -> Self {
        let fleet = GatewayFleet::start().await;
        let token = fleet.token_for_all_faces();
        let (_gateway, address) = fleet.gateway_with_all_faces("gateway-0").await;
        let proxy = FaultProxy::start(&format!("http://user:password@{address}")).await;
        let through_proxy = format!("127.0.0.1:{}", proxy.port());
        let client = Client { address: through_proxy, token: token.clone() };
        Self { fleet, _gateway, proxy, client, direct: Client { address, token } }
    }

    fn let_step_end(&self, step: usize) {
        self.fleet.fleet.write(&format!("go-{step}"), "");
    }

    /// Fails unless each step of the turn has run once.
    fn check_steps(&self) {
        let runs = std::fs::read_to_string(self.fleet.fleet.path("runs.txt")).expect("runs");
        assert_eq!(runs, "1\n2\n3\n");
    }

    /// Opens the stream of a `POST`.
    async fn post(&self, path: &str, headers: &str, body: &Value) -> EventReader {
        EventReader::new(self.client.send("POST", path, headers, &body.to_string()).await)
    }
}

fn starts_tool(data: &Value) -> bool {
    data["kind"] == "tool_started"
}

/// Returns what a person is shown: joined text, and the ids and contents of other events.
fn shown(events: &[(String, Value)]) -> Vec<Value> {
    let mut shown: Vec<Value> = Vec::new();
    for (id, data) in events.iter().filter(|(id, _)| !id.is_empty()) {
        match shown.last_mut().filter(|last| last["text_delta"].is_string()) {
            Some(last) if data["kind"] == "text_delta" => {
                let joined = [&last["text_delta"], &data["text"]].map(|text| text.as_str());
                *last = json!({"text_delta": joined.map(|text| text.expect("text")).concat()});
            }
            _ if data["kind"] == "text_delta" => shown.push(json!({"text_delta": data["text"]})),
            _ => shown.push(json!([id, data])),
        }
    }
    shown
}

#[tokio::test]
async fn event_stream_cut_three_times_has_each_event_once_and_in_order() {
    let gateway = CutGateway::start().await;
    let id = gateway.direct.start_conversation().await;
    let topic = format!("conversation:{id}");
    let mut undisturbed = gateway.direct.stream(&topic, None).await;
    let mut stream = gateway.client.stream(&topic, None).await;
    undisturbed.until(|data| data["epoch"].is_string()).await;
    stream.until(|data| data["epoch"].is_string()).await;
    gateway.direct.say(&id, "steps").await;
    let mut events = Vec::new();
    for step in 1..=3 {
        events.extend(stream.until(starts_tool).await);
        gateway.proxy.cut_all();
        // The turn goes on while the client is away.
        gateway.let_step_end(step);
        let (last, _) = events.last().expect("an event");
        stream = gateway.client.stream(&topic, Some(last)).await;
    }
    events.extend(stream.until(|data| data["kind"] == "answer").await);
    let whole = undisturbed.until(|data| data["kind"] == "answer").await;
    assert_eq!(shown(&events), shown(&whole));
    let count = |kind: &str| events.iter().filter(|(_, data)| data["kind"] == kind).count();
    assert_eq!((count("tool_started"), count("tool_finished"), count("answer")), (3, 3, 1));
    gateway.check_steps();
}

/// Returns whether an event of a task says that the tool runs.
fn called_tool(event: &Value) -> bool {
    event["statusUpdate"].to_string().contains("calls the tool bash")
}

/// Cuts a subscription over a binding. `result` returns the event in the data of the stream.
async fn cut_subscription(path: &str, result: fn(&Value) -> &Value) {
    let gateway = CutGateway::start().await;
    let params = a2a_message("steps");
    let is_rpc = path.is_empty();
    let mut stream = if is_rpc {
        let body = rpc_request("SendStreamingMessage", &params);
        gateway.post("/agents/assistant", A2A_VERSION, &body).await
    } else {
        gateway.post(&format!("/agents/assistant{path}"), A2A_VERSION, &params).await
    };
    let mut events: Vec<Value> = Vec::new();
    let mut add = |read: Vec<(String, Value)>| {
        events.extend(read.iter().map(|(_, data)| result(data).clone()));
        events[0]["task"]["id"].as_str().expect("an id").to_owned()
    };
    for step in 1..=3 {
        let id = add(stream.until(|data| called_tool(result(data))).await);
        gateway.proxy.cut_all();
        stream = if is_rpc {
            let body = rpc_request("SubscribeToTask", &json!({"id": id}));
            gateway.post("/agents/assistant", A2A_VERSION, &body).await
        } else {
            let path = format!("/agents/assistant/tasks/{id}:subscribe");
            EventReader::new(gateway.client.send("GET", &path, A2A_VERSION, "").await)
        };
        // The task as it is precedes what happens from then on.
        add(stream.until(|data| result(data)["task"].is_object()).await);
        gateway.let_step_end(step);
    }
    let ended =
        |data: &Value| result(data)["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED";
    add(stream.until(ended).await);
    gateway.check_steps();

    let tasks = events.iter().filter(|event| event["task"].is_object()).count();
    assert_eq!(tasks, 4, "{events:?}");
    assert_eq!(events.iter().filter(|event| called_tool(event)).count(), 3, "{events:?}");
    let ids = events.iter().filter_map(|event| {
        let id = event["statusUpdate"]["status"]["message"]["messageId"].as_str()?;
        id.rsplit_once('-')?.1.parse::<u64>().ok()
    });
    let ids: Vec<_> = ids.collect();
    assert!(ids.len() >= 3 && ids.is_sorted_by(|one, next| one < next), "{ids:?}: {events:?}");
    let chunks: Vec<_> =
        events.iter().map(|event| &event["artifactUpdate"]).filter(|c| c.is_object()).collect();
    let texts = chunks.iter().map(|chunk| chunk["artifact"]["parts"][0]["text"].as_str());
    let text: String = texts.map(|text| text.expect("text")).collect();
    assert_eq!(text, "Three steps were taken.", "{events:?}");
    assert_eq!(chunks.iter().filter(|chunk| chunk["lastChunk"] == true).count(), 1, "{chunks:?}");
}

#[tokio::test]
async fn subscription_cut_three_times_has_each_event_once_over_json_rpc() {
    cut_subscription("", |data| &data["result"]).await;
}

#[tokio::test]
async fn subscription_cut_three_times_has_each_event_once_over_rest() {
    cut_subscription("/message:stream", |data| data).await;
}

/// Cuts the stream of a request with a key three times; the client sends the request again. Returns the events of the
/// last stream, which ends with the event that `ends`.
async fn repeat_cut_stream(path: &str, body: &Value, ends: impl Fn(&Value) -> bool) -> Vec<Value> {
    let gateway = CutGateway::start().await;
    let key = "idempotency-key: key-1\r\n";
    let shows_call = |data: &Value| data.to_string().contains("[bash {");
    let mut stream = gateway.post(path, key, body).await;
    for step in 1..=3 {
        // A repeated request has the stream from its beginning.
        for _ in 0..step {
            stream.until(shows_call).await;
        }
        gateway.proxy.cut_all();
        gateway.let_step_end(step);
        stream = gateway.post(path, key, body).await;
    }
    let events = stream.until(ends).await;
    gateway.check_steps();
    events.into_iter().map(|(_, data)| data).collect()
}

#[tokio::test]
async fn completion_cut_three_times_is_streamed_whole_once_repeated() {
    let body = json!({"model": "assistant", "stream": true,
        "messages": [{"role": "user", "content": "steps"}]});
    let is_end = |data: &Value| data["choices"][0]["finish_reason"] == "stop";
    let chunks = repeat_cut_stream("/v1/chat/completions", &body, is_end).await;
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "Three steps were taken.");
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]), "{chunks:?}");
}

#[tokio::test]
async fn response_cut_three_times_is_streamed_whole_once_repeated() {
    let body = json!({"model": "assistant", "stream": true, "input": "steps"});
    let is_end = |data: &Value| data["type"] == "response.completed";
    let events = repeat_cut_stream("/v1/responses", &body, is_end).await;
    let numbers: Vec<_> = events.iter().map(|event| event["sequence_number"].as_u64()).collect();
    let expected: Vec<_> = (0..events.len() as u64).map(Some).collect();
    assert_eq!(numbers, expected);
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().expect("text"))
        .collect();
    assert_eq!(text, "Three steps were taken.");
}
