//! The trace of a request.

use rockbot_testkit::Collector;
use serde_json::json;

use super::harness::GatewayFleet;

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
