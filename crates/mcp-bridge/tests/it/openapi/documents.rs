//! Documents that change, and documents that cannot be used.

use rockbot_mcp_bridge::{Bridge, ServersFile};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::{Value, json};

use super::api::{Api, document, entry, options, paths, write};
use crate::fixture::{call, servers_file};

#[tokio::test]
async fn changed_document_replaces_the_tools() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items.json");
    let api = Api::start().await;
    let all = paths();
    let only = |path: &str| document(&api.url, &json!({path: all[path]})).to_string();
    std::fs::write(&path, only("/items/{id}")).unwrap();
    let bridge = Bridge::new(options());
    bridge.apply(servers_file(&json!({"items": entry(&path, &[&api.url])}))).await;
    wait_until("the server", || bridge.servers().iter().all(|server| server.ready)).await;
    let mut index = bridge.index();
    // The tools stay while the document is invalid.
    write(&path, "{");
    let reason = || bridge.servers().remove(0).reason;
    wait_until("the invalid document", || reason().is_some()).await;
    assert!(reason().unwrap().contains("not valid JSON"), "{:?}", reason());
    assert!(call(&bridge, "items", "items/get", json!({"id": "1"})).await.is_ok());
    write(&path, &only("/items"));
    within_timeout("the tools of the new document", async {
        loop {
            index.changed().await.unwrap();
            let names = index.borrow().get("items").expect("never withdrawn").tool_names.clone();
            if names == ["items/create"] {
                return;
            }
        }
    })
    .await;
    assert_eq!(reason(), None);
    assert!(call(&bridge, "items", "items/create", json!({"body": {"name": "a"}})).await.is_ok());
    assert!(call(&bridge, "items", "items/get", json!({"id": "1"})).await.is_err());
    bridge.stop().await;
}

#[tokio::test]
async fn unusable_document_fails_its_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let api = Api::start().await;
    let file = folder.path().join("mcp.json");
    std::fs::write(folder.path().join("good.json"), document(&api.url, &paths()).to_string())
        .unwrap();
    std::fs::write(folder.path().join("other.json"), r#"{"openapi": "9.0"}"#).unwrap();
    let remote = format!("{}/items/document", api.url);
    let servers = json!({"mcpServers": {
        "good": entry("good.json".as_ref(), &[&api.url]), "missing": {"openapi": "missing.json"},
        "other": {"openapi": "other.json"}, "remote": {"openapi": remote, "required": true},
    }});
    std::fs::write(&file, servers.to_string()).unwrap();
    // Relative paths refer to the folder of the servers file.
    let servers = ServersFile::read(&file, |_| None).unwrap();
    assert!(servers.errors.is_empty(), "{:?}", servers.errors);
    let bridge = Bridge::new(options());
    bridge.apply(servers).await;
    let settled = || {
        let servers = bridge.servers();
        servers.iter().all(|server| server.ready || server.reason.is_some())
    };
    wait_until("all servers", settled).await;
    let reasons = bridge.servers().into_iter().map(|server| (server.name, json!(server.reason)));
    let reasons: Value = reasons.collect();
    assert_eq!(reasons["good"], Value::Null);
    for (server, reason) in [
        ("missing", "openapi: cannot read"),
        ("other", "version \"9.0\" is not supported"),
        ("remote", "is not an OpenAPI document"),
    ] {
        let text = reasons[server].as_str().unwrap_or_default();
        assert!(text.contains(reason), "{server}: {text}");
    }
    assert_eq!(bridge.missing_required(), ["remote"]);
    bridge.stop().await;
}
