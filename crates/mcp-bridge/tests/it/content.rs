//! Resources, prompts and schemas of results, in process and over the bus.

use rockbot_contracts::{
    ContentBlock, ToolErrorCode,
    mcp::{
        McpGetPromptRequest, McpListResourcesRequest, McpManageErrorCode, McpReadResourceRequest,
        McpServerDetailsRequest,
    },
};
use rockbot_mcp_bridge::BridgeOptions;
use rockbot_tool_rpc::mcp::{McpGateway, McpIndex};
use serde_json::{Value, json};

use crate::fixture::{GatewayFixture, bridge, call, context};

fn library() -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/library.py");
    json!({"command": "python3", "args": [script]})
}

async fn fixture() -> GatewayFixture {
    GatewayFixture::new(BridgeOptions::default(), json!({"Library": library()})).await
}

fn server_name() -> String {
    "LIBRARY".to_owned()
}

#[tokio::test]
async fn resources_are_listed_in_pages() {
    let fixture = fixture().await;
    for (label, gateway) in &fixture.gateways {
        let mut uris = Vec::new();
        let mut after = None;
        loop {
            let request = McpListResourcesRequest {
                server_name: server_name(),
                templates: false,
                after: after.take(),
            };
            let page = gateway.resources(request).await.expect("a page");
            uris.extend(page.resources.into_iter().map(|resource| resource.uri));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(uris, ["books://0", "books://1", "books://2"], "{label}");
        let request = McpListResourcesRequest {
            server_name: server_name(),
            templates: true,
            ..McpListResourcesRequest::default()
        };
        let templates = gateway.resources(request).await.expect("templates").resources;
        assert_eq!(templates[0].uri, "books://{number}", "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn resources_are_read_within_bounds() {
    let fixture = fixture().await;
    for (label, gateway) in &fixture.gateways {
        let read = async |uri: &str| {
            let (server_name, uri) = (server_name(), uri.to_owned());
            gateway.read_resource(McpReadResourceRequest { server_name, uri }).await
        };
        let text = |block: &ContentBlock| match block {
            ContentBlock::Resource { text: Some(text), .. } => text.clone(),
            other => panic!("{label}: {other:?}"),
        };
        let one = read("books://1").await.expect("a resource");
        assert_eq!(text(&one.content[0]), "text of books://1", "{label}: without hidden text");
        assert!(!one.is_truncated, "{label}");
        let cover = read("books://cover").await.expect("an image");
        assert!(matches!(cover.content[0], ContentBlock::Image { .. }), "{label}");
        let long = read("books://long").await.expect("a long resource");
        assert!(long.is_truncated, "{label}");
        assert_eq!(text(&long.content[0]).len(), 2 * 1024 * 1024, "{label}");
        let missing = read("papers://1").await.unwrap_err();
        assert_eq!(missing.code, McpManageErrorCode::NotFound, "{label}");
        assert!(missing.message.contains("no resource papers://1"), "{label}: {missing}");
        let invalid = read("").await.unwrap_err();
        assert_eq!(invalid.code, McpManageErrorCode::InvalidRequest, "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn prompts_are_announced_and_requested() {
    let fixture = fixture().await;
    for (label, gateway) in &fixture.gateways {
        let server = gateway.index().borrow().get("library").expect("a server").clone();
        assert!(server.has_resources, "{label}");
        let names: Vec<_> = server.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        assert_eq!(names, ["summary", "review"], "{label}: unusable names are left out");
        assert_eq!(server.prompts[0].description, "Summary of the shelf", "{label}");
        assert!(!server.prompts[1].needs_no_arguments(), "{label}");
        let request = McpGetPromptRequest {
            server_name: server_name(),
            prompt_name: "review".to_owned(),
            arguments: [("title".to_owned(), "Emma".to_owned())].into(),
        };
        let messages = gateway.prompt(request).await.expect("messages");
        assert_eq!(messages.to_text(), "Write about Emma.", "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn unusable_entries_of_lists_cost_only_themselves() {
    let mut odd = library();
    odd["args"].as_array_mut().expect("arguments").push(json!("odd"));
    let fixture = GatewayFixture::new(BridgeOptions::default(), json!({"Library": odd})).await;
    for (label, gateway) in &fixture.gateways {
        let server = gateway.index().borrow().get("library").expect("a server").clone();
        let names: Vec<_> = server.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        assert_eq!(names[..3], ["summary", "review", "prompt0"], "{label}");
        // Four are unusable, and 12 are beyond the limit.
        assert_eq!((names.len(), server.prompts_left_out), (50, 16), "{label}");
        let list = async |templates, after| {
            let request = McpListResourcesRequest { server_name: server_name(), templates, after };
            gateway.resources(request).await.expect("a page")
        };
        let first = list(false, None).await;
        let uris: Vec<_> = first.resources.iter().map(|one| one.uri.as_str()).collect();
        assert_eq!((uris.as_slice(), first.left_out), (&["books://0"][..], 1), "{label}");
        let second = list(false, first.next).await;
        assert_eq!((second.resources.len(), second.left_out), (1, 0), "{label}");
        let templates = list(true, None).await;
        assert_eq!((templates.resources.len(), templates.left_out), (1, 1), "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn changed_prompts_are_announced() {
    let bridge = bridge(json!({"library": library()})).await;
    let mut index = bridge.index();
    call(&bridge, "library", "grow", json!({})).await.expect("grown");
    let has_new = |index: &McpIndex| {
        let server = index.get("library");
        server.is_some_and(|server| server.prompts.iter().any(|prompt| prompt.name == "new"))
    };
    let changed = tokio::time::timeout(std::time::Duration::from_secs(10), index.wait_for(has_new));
    assert!(changed.await.is_ok(), "the new prompt is not announced");
    bridge.stop().await;
}

#[tokio::test]
async fn operator_hides_resources_and_prompts() {
    let mut entry = library();
    entry["resources"] = json!(false);
    entry["prompts"] = json!(false);
    let bridge = bridge(json!({"library": entry})).await;
    let server = bridge.index().borrow().get("library").expect("a server").clone();
    assert!(!server.has_resources && server.prompts.is_empty());
    let (server_name, uri) = (server_name(), "books://1".to_owned());
    let refused = bridge.read_resource(McpReadResourceRequest { server_name, uri }).await;
    assert_eq!(refused.unwrap_err().code, McpManageErrorCode::NotFound);
    let request = McpGetPromptRequest {
        server_name: self::server_name(),
        prompt_name: "summary".to_owned(),
        ..McpGetPromptRequest::default()
    };
    assert_eq!(bridge.prompt(request).await.unwrap_err().code, McpManageErrorCode::NotFound);
    bridge.stop().await;
}

#[tokio::test]
async fn results_are_validated_against_the_output_schema() {
    let mut strict = library();
    strict["outputViolations"] = json!("refuse");
    let servers = json!({"Library": library(), "strict": strict});
    let fixture = GatewayFixture::new(BridgeOptions::default(), servers).await;
    for (label, gateway) in &fixture.gateways {
        let request = McpServerDetailsRequest {
            server_name: server_name(),
            tool_name: Some("count".to_owned()),
            after: None,
        };
        let details = gateway.details(request).await.expect("details");
        let schema = details.tools[0].output_schema.as_ref().expect("a schema");
        assert_eq!(schema["required"], json!(["count"]), "{label}");
        let count = async |server: &str, arguments: Value| {
            gateway.call(server, "count", arguments, &context("count")).await
        };
        let valid = count("strict", json!({"count": 3})).await.expect("a valid result");
        assert_eq!(valid.to_text(), "some books", "{label}");
        for (arguments, place) in [(json!({"count": "three"}), "/count"), (json!({}), "missing")] {
            let reported = count("library", arguments.clone()).await.expect("a result");
            let text = reported.to_text();
            assert!(text.starts_with("some books") && text.contains(place), "{label}: {text}");
            let refused = count("strict", arguments).await.unwrap_err();
            assert_eq!(refused.code(), ToolErrorCode::ExecutionFailed, "{label}");
        }
    }
    fixture.shut_down().await;
}
