//! A document with more operations than a message can describe.

use rockbot_contracts::{
    json::Limits,
    mcp::{McpServerDetailsRequest, McpToolDefinition},
};
use rockbot_memory::Ranker;
use serde_json::{Value, json};

use super::api::{Api, document, entry, options, paths};
use crate::fixture::{GatewayFixture, context};

/// The number of generated operations.
const OPERATIONS: usize = 1300;
/// The largest entry in the index, in bytes.
const MAX_INDEX_BYTES: usize = 64 * 1024;

/// Returns the paths of the API, and generated ones with large schemas.
fn many_paths() -> Value {
    let mut paths = paths();
    let text = json!({"type": "string", "description": "A setting of the widget. ".repeat(10)});
    let settings = (0..14).map(|number| (format!("setting{number}"), text.clone()));
    let schema = json!({"type": "object", "properties": Value::from_iter(settings)});
    let content = json!({"application/json": {"schema": schema}});
    for number in 0..OPERATIONS {
        let id = format!("widgets/update-all-the-settings-of-the-widget-{number:04}");
        let summary = format!("Changes settings of widget {number}.");
        paths[format!("/widgets/{number}")] = json!({"put": {"operationId": id,
            "summary": summary, "requestBody": {"content": content}}});
    }
    paths
}

#[tokio::test]
async fn large_document_is_indexed_described_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items.json");
    let api = Api::start().await;
    std::fs::write(&path, document(&api.url, &many_paths()).to_string()).unwrap();
    let fixture = GatewayFixture::new(options(), json!({"items": entry(&path, &[&api.url])})).await;
    let offered = OPERATIONS + 4;
    for (label, gateway) in &fixture.gateways {
        let summary = gateway.index().borrow().get("items").cloned().unwrap();
        assert_eq!(summary.tool_count as usize, offered, "{label}");
        let bytes = serde_json::to_vec(&summary).unwrap().len();
        assert!(bytes <= MAX_INDEX_BYTES, "{label}: {bytes} bytes");
        assert!((1000..offered).contains(&summary.tool_names.len()), "{label}");

        let server_name = "items".to_owned();
        let request = McpServerDetailsRequest { server_name, tool_name: None, after: None };
        let details = gateway.details(request).await.unwrap();
        assert_eq!(details.tools.len(), offered, "{label}");
        let bytes = serde_json::to_vec(&details.tools).unwrap().len();
        assert!(bytes > Limits::default().bytes, "{bytes} bytes fit into one message");

        // As `mcp_find_tools` ranks them.
        let text = |McpToolDefinition { model_name, description, .. }: &McpToolDefinition| {
            format!("{model_name} {model_name} {model_name} {description}")
        };
        let best = |query: &str| Ranker::rank(&details.tools, text, query)[0].name.clone();
        assert!(best("settings of widget 1299").ends_with("1299"), "{label}");
        assert_eq!(best("creates an item"), "items/create", "{label}");
        let call = gateway.call("items", "items/get", json!({"id": "7"}), &context("get")).await;
        assert!(call.unwrap().to_text().contains(r#""id":"7""#), "{label}");
    }
    fixture.shut_down().await;
}
