//! Large results as resources.

use rmcp::{
    ClientLifecycleMode,
    model::{ReadResourceRequestParams, ResourceContents},
};
use rockbot_mcp_server::McpClient;
use serde_json::json;

use crate::fixture::{Handler, client, eras, filter, text};

fn content(contents: &ResourceContents) -> (&str, &str, Option<&serde_json::Value>) {
    let ResourceContents::TextResourceContents { uri, text, meta, .. } = contents else {
        panic!("{contents:?}")
    };
    (uri, text, meta.as_ref().and_then(|meta| meta.0.get("rockbot/next")))
}

#[tokio::test]
async fn large_result_is_linked_and_read_in_ranges() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let whole: String = (0..50_000).map(|number| format!("line {number} ü\n")).collect();
    for era in eras() {
        let session = fleet.connect(client("desktop"), era).await;
        let result = session.call("huge", json!({})).await;
        assert!(text(&result).starts_with("{\"tool_output\""), "{:.200}", text(&result));
        let link = result.content[1].as_resource_link().unwrap();
        assert_eq!(link.size, Some(whole.len() as u64));

        let listed = session.peer().list_all_resources().await.unwrap();
        assert_eq!(listed[0].uri, link.uri);
        let mut uri = link.uri.clone();
        let mut read = String::new();
        loop {
            let result = session.read(&uri).await;
            let (_, text, next) = content(&result.contents[0]);
            read.push_str(text);
            let Some(next) = next else { break };
            let next = next.as_str().unwrap().to_owned();
            assert_eq!(content(&result.contents[1]).0, next);
            uri = next;
        }
        assert!(read == whole, "{} of {} bytes", read.len(), whole.len());
        let part = session.read(&format!("{}?from=5&count=3", link.uri)).await;
        assert_eq!(content(&part.contents[0]).1, "0 ü");
        let end = session.read(&format!("{}?from=99999999", link.uri)).await;
        assert_eq!(content(&end.contents[0]).1, "");
    }
}

#[tokio::test]
async fn result_belongs_to_its_client() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let era = ClientLifecycleMode::Initialize;
    let owner = fleet.connect(client("owner"), era.clone()).await;
    let result = owner.call("huge", json!({})).await;
    let uri = result.content[1].as_resource_link().unwrap().uri.clone();

    let other = fleet.connect(client("other"), era.clone()).await;
    assert_eq!(other.peer().list_all_resources().await.unwrap(), []);
    let read = other.peer().read_resource(ReadResourceRequestParams::new(&uri)).await;
    let error = read.unwrap_err().to_string();
    assert!(error.contains("no such output"), "{error}");
    for uri in ["file:///etc/passwd", "rockbot://outputs/../x", "rockbot://outputs/out-1"] {
        let read = other.peer().read_resource(ReadResourceRequestParams::new(uri)).await;
        assert!(read.is_err(), "{uri}");
    }
    // Another connection of the same client reads it, whatever tools it may use.
    let limited = McpClient::new("owner", filter(&["tool_output"])).unwrap();
    let again = fleet.connect(limited, era).await;
    assert_eq!(content(&again.read(&format!("{uri}?count=6")).await.contents[0]).1, "line 0");
    let templates = again.peer().list_all_resource_templates().await.unwrap();
    assert_eq!(templates[0].uri_template, "rockbot://outputs/{handle}{?from,count}");
}
