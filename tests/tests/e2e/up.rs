//! `rockbot up` as a process that is monitored.

use rockbot_testkit::Collector;
use rustix::process::Signal;

use crate::{
    agents::use_demo_script,
    call_logs::{LEVEL, expect_lines},
    fleet::{Fleet, assert_contains},
    http,
    process::Running,
};

#[tokio::test]
async fn up_serves_health_and_metrics_and_exports_traces() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "# Notes\n\nThe bus carries each call.\n");
    let collector = Collector::start().await;
    let mut up = fleet.program("rockbot");
    up.arg("up")
        .env(LEVEL.0, LEVEL.1)
        .env("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0")
        .env("ROCKBOT_TELEMETRY__OTLP_ENDPOINT", collector.endpoint());
    use_demo_script(&mut up);
    let mut up = Running::start(up);
    let address = up.admin_address().await;
    up.expect_log("ready; stop with Ctrl-C").await;
    assert_eq!(http::request(&address, "/healthz").await.0, 200);
    let (status, body) = http::request(&address, "/readyz").await;
    assert_eq!(status, 200, "{body}");

    fleet.run(&["chat", "List this folder."]).await.assert_code(0);
    expect_lines(&up, "list_files", "ok").await;
    let (status, metrics) = http::request(&address, "/metrics").await;
    assert_eq!(status, 200);
    assert_contains(
        &metrics,
        &[
            "rockbot_tool_invocations_total{status=\"ok\",tool_name=\"list_files\"} 1",
            "rockbot_bus_process_duration_seconds_count{queue=\"tool.invoke\"} ",
            "rockbot_bus_process_duration_seconds_count{queue=\"user.message\"} ",
            "rockbot_bus_publish_duration_seconds_count ",
            "rockbot_build_info{process=\"rockbot\",",
            "rockbot_ready 1",
        ],
    );
    let names = ["process user.message", "execute_tool list_files", "process tool.invoke"];
    let trace = collector.trace_with("execute_tool list_files", &names).await;
    assert!(trace.iter().all(|span| span.service == "rockbot"), "{trace:#?}");
    up.send(Signal::TERM);
    up.wait().await.assert_code(0);
}
