//! Changes of resources that callers have read.

use rockbot_contracts::mcp::McpReadResourceRequest;
use rockbot_mcp_bridge::BridgeOptions;
use rockbot_testkit::fixture::within_timeout;
use serde_json::json;

use crate::fixture::{GatewayFixture, context};

#[tokio::test]
async fn callers_learn_which_read_resources_changed() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/watched.py");
    let servers = json!({"Notes": {"command": "python3", "args": [script]}});
    let fixture = GatewayFixture::new(BridgeOptions::default(), servers).await;
    let mut read_uris = Vec::new();
    for (at, (label, gateway)) in fixture.gateways.iter().enumerate() {
        let mut changes = gateway.resource_changes();
        let uri = format!("note:{at}");
        let (server_name, read) = ("notes".to_owned(), uri.clone());
        let request = McpReadResourceRequest { server_name, uri: read };
        gateway.read_resource(request).await.unwrap();
        let touched = json!({"uris": ["note:unread", &uri]});
        let result = gateway.call("notes", "touch", touched, &context("touch")).await.unwrap();
        assert!(result.to_text().contains(&uri), "{label}: subscribed");
        read_uris.push(uri.clone());
        // The server reports each change twice; the second report of an earlier one may follow later.
        loop {
            let changed = within_timeout("the change", changes.recv()).await.unwrap();
            assert_eq!(changed.server_name, "Notes", "{label}");
            let is_read = changed.uris.iter().all(|changed| read_uris.contains(changed));
            assert!(is_read, "{label}: {:?}", changed.uris);
            if changed.uris.contains(&uri) {
                break;
            }
        }
    }
    fixture.shut_down().await;
}
