//! Listing and calling operations, in process and over the bus.

use rockbot_contracts::{
    Executed, ToolErrorCode,
    mcp::{McpManageErrorCode, McpServerDetailsRequest},
};
use rockbot_tools::{ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener};

use super::api::{Api, TOKEN, document, entry, options, paths, url_of};
use crate::fixture::{GatewayFixture, context};

fn details_of(tool: Option<&str>) -> McpServerDetailsRequest {
    let server_name = "ITEMS".to_owned();
    McpServerDetailsRequest { server_name, tool_name: tool.map(ToOwned::to_owned), after: None }
}

#[tokio::test]
async fn operations_are_listed_described_and_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items.json");
    let api = Api::start().await;
    std::fs::write(&path, document(&api.url, &paths()).to_string()).unwrap();
    let mut server = entry(&path, &[&api.url]);
    server["toolsDenied"] = json!(["items/denied"]);
    let fixture = GatewayFixture::new(options(), json!({"Items": server})).await;
    let status = fixture.bridge.servers().remove(0);
    assert_eq!((status.transport, status.tools), ("openapi", 3));
    assert_eq!(status.protocol_version.as_deref(), Some("OpenAPI 3.0"));
    for (label, gateway) in &fixture.gateways {
        let summary = gateway.index().borrow().get("items").cloned().unwrap();
        assert_eq!(summary.tool_names, ["items/busy", "items/create", "items/get"], "{label}");
        assert_eq!(summary.display_name, "Item API");
        assert_eq!(summary.summary, "Keeps items.");
        let [skipped] = summary.rejected_tools.as_slice() else { panic!("{summary:?}") };
        assert!(skipped.name == "items/unsafe" && skipped.reason.contains("other"), "{skipped:?}");
        let details = gateway.details(details_of(Some("items/get"))).await.unwrap();
        let [get] = details.tools.as_slice() else { panic!("{details:?}") };
        assert_eq!(get.model_name, "Items__items_get");
        assert!(get.hints.read_only && get.parameters["required"] == json!(["id"]), "{get:?}");
        let unknown = gateway.details(details_of(Some("items/denied"))).await.unwrap_err();
        assert_eq!(unknown.code, McpManageErrorCode::NotFound, "{label}");

        let call = async |tool: &str, arguments: Value| {
            gateway.call("items", tool, arguments, &context(tool)).await
        };
        let got = call("items/get", json!({"id": "a/b", "filter": "x y"})).await.unwrap();
        let got = got.to_text().into_owned();
        assert!(got.contains(r#""id":"a/b""#) && got.contains(r#""filter":"x y""#), "{got}");
        assert!(got.contains(r#""isAuthorized":true"#) && !got.contains(TOKEN), "{got}");
        let created = call("items/create", json!({"body": {"name": "new"}})).await.unwrap();
        assert!(created.to_text().contains(r#"{"name":"new"}"#), "{label}: {created:?}");
        let invalid = call("items/create", json!({"body": {}})).await.unwrap_err();
        assert_eq!(invalid.code(), ToolErrorCode::InvalidArguments, "{label}");
        let denied = call("items/denied", json!({})).await.unwrap_err();
        assert_eq!(denied.code(), ToolErrorCode::ToolNotFound, "{label}");
    }
    fixture.shut_down().await;
}

/// Returns the code of a failure, and whether the operation ran.
fn outcome(result: Result<ToolResult, ToolFailure>) -> (ToolErrorCode, Executed) {
    let failure = result.expect_err("a failure");
    (failure.code(), failure.executed())
}

#[tokio::test]
async fn failure_says_whether_the_operation_ran() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items.json");
    let api = Api::start().await;
    let closed = url_of(&TcpListener::bind("127.0.0.1:0").await.unwrap());
    let cutting = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut paths = paths();
    paths["/closed"] = json!({"servers": [{"url": closed}],
        "post": {"operationId": "closed"}, "get": {"operationId": "closedGet"}});
    paths["/cut"] = json!({"servers": [{"url": url_of(&cutting)}],
        "post": {"operationId": "cut"}});
    std::fs::write(&path, document(&api.url, &paths).to_string()).unwrap();
    let origins = [api.url.as_str(), &closed, &url_of(&cutting)];
    let fixture = GatewayFixture::new(options(), json!({"items": entry(&path, &origins)})).await;
    let cut = async {
        loop {
            let (mut stream, _) = cutting.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
        }
    };
    let calls = async {
        for (label, gateway) in &fixture.gateways {
            let call = async |tool: &str| {
                outcome(gateway.call("items", tool, json!({}), &context(tool)).await)
            };
            let (no, unknown) = (Executed::No, Executed::Unknown);
            assert_eq!(call("items/busy").await, (ToolErrorCode::Overloaded, no), "{label}");
            assert_eq!(call("closed").await, (ToolErrorCode::Unavailable, no), "{label}");
            assert_eq!(call("closedGet").await, (ToolErrorCode::Unavailable, no), "{label}");
            assert_eq!(call("cut").await, (ToolErrorCode::OutcomeUnknown, unknown), "{label}");
        }
    };
    tokio::select! {
        () = cut => {}
        () = calls => {}
    }
    fixture.shut_down().await;
}
