//! The traces of requests.

use rockbot_testkit::Collector;
use serde_json::json;

use super::{
    api_client::{Client, mcp_call, read_response},
    harness::GatewayFleet,
};
use crate::process::Running;

/// A fleet with a gateway, whose spans go to a collector.
struct Traced {
    collector: Collector,
    client: Client,
    _gateway: Running,
    _fleet: GatewayFleet,
}

impl Traced {
    async fn start() -> Self {
        let collector = Collector::start().await;
        let endpoint = collector.endpoint();
        let settings = [("ROCKBOT_TELEMETRY__OTLP_ENDPOINT", endpoint.as_str())];
        let fleet = GatewayFleet::start_with(&settings).await;
        let token = fleet.token_for_all_faces();
        let (gateway, address) = fleet.gateway_with_all_faces_and("gateway-0", &settings).await;
        let client = Client { address, token };
        Self { collector, client, _gateway: gateway, _fleet: fleet }
    }
}

#[tokio::test]
async fn trace_reaches_from_the_request_to_the_tool() {
    let collector = Collector::start().await;
    let endpoint = collector.endpoint();
    let settings = [("ROCKBOT_TELEMETRY__OTLP_ENDPOINT", endpoint.as_str())];
    let fleet = GatewayFleet::start_with(&settings).await;
    let (_gateway, address) = fleet.gateway_with("gateway-0", &settings).await;
    let outcome = fleet.outcome("python", &["whole"], &address).await;
    assert_eq!(outcome["finish"], json!("stop"));
    let request = "POST /v1/chat/completions";
    let names = [request, "process user.message", "execute_tool bash", "process tool.invoke"];
    let trace = collector.trace_with(request, &names).await;
    let service = |name: &str| {
        let span = trace.iter().find(|span| span.name == name);
        span.map(|span| span.service.clone()).expect("a span")
    };
    assert_eq!(service(request), "rockbot-gateway");
    assert_eq!(service("process tool.invoke"), "rockbot-tool-handler");
}

#[tokio::test]
async fn trace_reaches_from_a_call_of_mcp_to_the_handler() {
    let Traced { collector, client, .. } = &Traced::start().await;
    let (headers, body) = mcp_call("bash", &json!({"command": "echo a result"}));
    let response = client.send("POST", "/mcp", &headers, &body.to_string()).await;
    let (status, result) = read_response(response).await;
    assert_eq!((status, &result["result"]["isError"]), (200, &json!(false)), "{result}");
    let trace = collector.tree_with("POST /mcp", &["POST /mcp", "process tool.invoke"]).await;
    let span = |name: &str| trace.iter().find(|span| span.name == name).expect("a span");
    let (request, handled) = (span("POST /mcp"), span("process tool.invoke"));
    assert_eq!((request.service.as_str(), request.parent.len()), ("rockbot-gateway", 0));
    assert_eq!(handled.service, "rockbot-tool-handler");
    // Every span on the way from the handler is in the trace, up to the request.
    let mut at = handled;
    while at.id != request.id {
        let parent = trace.iter().find(|span| span.id == at.parent);
        at = parent.unwrap_or_else(|| panic!("{} has no parent in {trace:?}", at.name));
    }
}

#[tokio::test]
async fn client_continues_its_trace_on_routes_that_need_a_credential() {
    let Traced { collector, client, .. } = &Traced::start().await;
    let headers = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    for (path, span, continued) in [("/v1/models", "GET /v1/models", true), ("/", "GET /", false)] {
        let response = client.send("GET", path, headers, "").await;
        assert_eq!(read_response(response).await.0, 200);
        let request = collector.spans_named(span, 1).await.remove(0);
        let is_own_trace = request.trace.starts_with(&[0x0a, 0xf7, 0x65, 0x19]);
        assert_eq!(is_own_trace, continued, "{path}: {request:?}");
    }
}
