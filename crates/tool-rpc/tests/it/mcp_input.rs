//! Requests of MCP servers for input, on the side of the agent.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Consumer, Publication};
use rockbot_contracts::{
    AgentName, Envelope, InputAction, InputBody, InputId, InputRequest, InputResponse, InstanceId,
    QueueSpec, SessionId, ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    mcp::{McpInputAnswer, McpInputAnswered, McpInputAsked},
    topology::{mcp_manage_at, progress_key, tool_invoke_mcp},
};
use rockbot_testkit::fixture::{BusFixture, next_delivery, within_timeout};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{ToolContext, UserInput};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::mcp_fixture::agent;

/// A shown request; it is withdrawn when the receiver of the response is closed.
struct Shown {
    request: InputRequest,
    response: oneshot::Sender<InputResponse>,
}

struct User(mpsc::Sender<Shown>);

impl UserInput for User {
    fn ask(&self, request: InputRequest, _limit: Duration) -> BoxFuture<'_, InputResponse> {
        let (response, responded) = oneshot::channel();
        self.0.try_send(Shown { request, response }).unwrap_or_else(|_| panic!("a free place"));
        Box::pin(async move { responded.await.unwrap() })
    }
}

/// A call of which a test plays the bridges.
struct Bridges {
    bus: BusFixture,
    request: Envelope,
    call: ToolInvokeRequest,
}

impl Bridges {
    async fn receive(bus: BusFixture, requests: &mut Consumer) -> Self {
        let delivery = next_delivery(requests).await;
        let request = delivery.envelope().clone();
        let call = request.decode(Limits::default()).unwrap();
        Self { bus, request, call }
    }

    async fn ask(&self, bridge: &str, input: &str) {
        let body = InputBody::Url { url: "https://auth.example.com/login".to_owned() };
        let asked = McpInputAsked {
            tool_call_id: self.call.tool_call_id.clone(),
            input_id: InputId::new(input).unwrap(),
            bridge: InstanceId::new(bridge).unwrap(),
            expires_in_ms: 60_000,
            request: InputRequest {
                server: "of the peer".to_owned(),
                message: "m".to_owned(),
                body,
            },
        };
        let key = progress_key(self.request.reply_to.as_ref().unwrap()).unwrap();
        self.publish(&key, Envelope::from_payload(&asked)).await;
    }

    async fn finish(&self) {
        let response = ToolInvokeResponse {
            tool_call_id: self.call.tool_call_id.clone(),
            tool_name: "log_in".to_owned(),
            content: "done".to_owned(),
            is_error: false,
            blocks: Vec::new(),
            details: None,
            child_loop_id: None,
            elapsed_ms: None,
            stages: None,
        };
        self.publish(self.request.reply_to.as_ref().unwrap(), Envelope::from_payload(&response))
            .await;
    }

    async fn publish(&self, key: &rockbot_contracts::RoutingKey, envelope: Envelope) {
        let envelope = envelope.with_correlation_id(self.call.tool_call_id.as_str());
        let sent = self.bus.remote.publish(Publication::mandatory(key.clone(), envelope));
        within_timeout("publish", sent).await.unwrap();
    }
}

#[tokio::test]
async fn request_of_a_lost_bridge_is_withdrawn_when_another_one_asks() {
    let bus = BusFixture::memory();
    let mut requests = bus.consume(QueueSpec::work(&tool_invoke_mcp()), 1).await;
    let second = InstanceId::new("bridge-2").unwrap();
    let mut answers = bus.consume(QueueSpec::exclusive(&mcp_manage_at(&second), &second), 1).await;
    let agent = agent(&bus, "one").await;
    let (shown, mut shows) = mpsc::channel(16);
    let name = AgentName::new("agent").unwrap();
    let mut context = ToolContext::new("log_in", SessionId::generate(), name);
    context.input = Some(Arc::new(User(shown)));
    let call = tokio::spawn({
        let agent = agent.clone();
        async move { agent.call("Shop", "log_in", json!({}), &context).await }
    });
    let bridges = Bridges::receive(bus, &mut requests).await;
    assert!(bridges.request.accepts_input);

    bridges.ask("bridge-1", "input-1").await;
    let mut first = within_timeout("the first request", shows.recv()).await.unwrap();
    assert_eq!(first.request.server, "Shop", "the name by which the agent knows the server");
    bridges.ask("bridge-2", "input-2").await;
    let again = within_timeout("the second request", shows.recv()).await.unwrap();
    within_timeout("the withdrawal of the first", first.response.closed()).await;

    again.response.send(InputAction::Accept.into()).unwrap();
    let delivery = next_delivery(&mut answers).await;
    let answer: McpInputAnswer = delivery.envelope().decode(Limits::default()).unwrap();
    assert_eq!(
        (answer.input_id.as_str(), answer.response.action),
        ("input-2", InputAction::Accept)
    );
    let answered = McpInputAnswered { input_id: answer.input_id, accepted: true };
    let envelope = Envelope::from_payload(&answered);
    let correlation = delivery.envelope().correlation_id.clone().unwrap();
    let envelope = envelope.with_correlation_id(&*correlation);
    let key = delivery.envelope().reply_to.clone().unwrap();
    bridges.bus.remote.publish(Publication::mandatory(key, envelope)).await.unwrap();

    bridges.finish().await;
    let result = within_timeout("the result", call).await.unwrap().unwrap();
    assert_eq!(result.to_text(), "done");
    assert!(shows.try_recv().is_err(), "each request is shown once");
}
