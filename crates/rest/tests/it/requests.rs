//! Requests as servers receive them.

use std::sync::Arc;

use rockbot_contracts::ContentBlock;
use rockbot_tools::{ToolExecutor, ToolProvider, ToolRegistry, layers::ToolCall};
use serde_json::json;

use crate::{
    fixture::{Fixture, context},
    server::{Act, Server, json as json_act, response},
};

#[tokio::test]
async fn request_has_method_path_query_headers_and_body() {
    let server = Server::start([json_act("{\"data\": {\"items\": [1, 2, 3]}}")]).await;
    let entry = json!({
        "description": "Search.", "method": "post",
        "url": format!("{}/v1/${{parameters.city}}/find?fixed=1", server.url),
        "query": {"q": "${parameters.q}", "none": "${parameters.none}"},
        "headers": {"X-Trace": "n ${parameters.q}", "Authorization": "Bearer ${SECRET}"},
        "body": {"q": "${parameters.q}", "limit": "${parameters.limit}"},
        "parametersSchema": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string"}, "q": {"type": "string"}, "limit": {"type": "integer"},
            "none": {"type": "string"}}},
        "select": "/data/items",
    });
    let fixture = Fixture::with_tool(entry).await;
    let (context, _) = context("tool");
    let arguments = json!({"city": "São Paulo/x", "q": "a b", "limit": 5});
    let result = fixture.call(arguments, &context).await.unwrap();
    assert_eq!(result.to_text(), "3 items\n[1,2,3]");
    assert_eq!(result.details.unwrap()["status"], 200);
    let received = server.received().remove(0);
    assert_eq!(received.method, "POST");
    assert_eq!(received.target, "/v1/S%C3%A3o%20Paulo%2Fx/find?fixed=1&q=a+b");
    assert_eq!(received.headers["x-trace"], "n a b");
    assert!(received.headers["authorization"].starts_with("Bearer "));
    assert_eq!(received.headers["content-type"], "application/json");
    assert!(received.headers["accept"].starts_with("application/json"));
    assert!(received.headers["user-agent"].starts_with("rockbot/"));
    let body: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body, json!({"q": "a b", "limit": 5}));
}

#[tokio::test]
async fn multipart_body_arrives_in_parts() {
    let server = Server::start([json_act("{}")]).await;
    let entry = json!({
        "description": "Upload.", "method": "POST", "url": server.url, "bodyType": "multipart",
        "body": {"title": "A file", "file": "${parameters.file}"},
        "parametersSchema": {"properties": {"file": {"type": "object"}}},
    });
    let fixture = Fixture::with_tool(entry).await;
    let (context, _) = context("tool");
    let file = json!({"base64": "aGVsbG8=", "filename": "a.txt", "contentType": "text/plain"});
    fixture.call(json!({"file": file}), &context).await.unwrap();
    let received = server.received().remove(0);
    assert!(received.headers["content-type"].starts_with("multipart/form-data; boundary="));
    let body = received.text();
    assert!(body.contains("name=\"title\"\r\n\r\nA file\r\n"), "{body}");
    assert!(
        body.contains(
            "name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
        ),
        "{body}"
    );
}

#[tokio::test]
async fn image_and_next_page_reach_the_model() {
    let image = Act::Send(response("200 OK", "content-type: image/png\r\n", "PNG"));
    let headers = "content-type: application/json\r\nlink: </?page=2>; rel=\"next\"\r\n";
    let server = Server::start([image, Act::Send(response("200 OK", headers, "[1]"))]).await;
    let entry = json!({"description": "A list.", "url": server.url});
    let fixture = Fixture::with_tool(entry).await;
    let (context, _) = context("tool");
    let result = fixture.call(json!({}), &context).await.unwrap();
    assert!(matches!(result.content.as_slice(), [ContentBlock::Image { .. }]));
    let result = fixture.call(json!({}), &context).await.unwrap();
    assert_eq!(result.to_text(), "1 item\n[1]\nnext page: page=2");
}

#[tokio::test]
async fn compressed_response_is_unpacked() {
    // "{\"a\":1}", compressed.
    let packed: &[u8] = &[
        31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 86, 74, 84, 178, 50, 172, 5, 0, 175, 172, 27, 86, 7,
        0, 0, 0,
    ];
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        packed.len()
    );
    let server = Server::start([Act::Send([head.as_bytes(), packed].concat())]).await;
    let fixture = Fixture::with_tool(json!({"description": "Packed.", "url": server.url})).await;
    let (context, _) = context("tool");
    let result = fixture.call(json!({}), &context).await.unwrap();
    assert_eq!(result.to_text(), "{\"a\":1}");
    assert_eq!(server.received()[0].headers["accept-encoding"], "gzip");
}

#[tokio::test]
async fn tools_run_through_the_layers() {
    let server = Server::start([json_act("{\"n\":1}")]).await;
    let entry = json!({
        "description": "Cached.", "url": format!("{}/${{parameters.id}}", server.url), "cache": "10m",
        "parametersSchema": {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
    });
    let fixture = Fixture::with_tool(entry).await;
    let registry = Arc::new(ToolRegistry::new());
    for tool in fixture.provider.list() {
        registry.register(tool).unwrap();
    }
    let layers = rockbot_tools::LayerOptions {
        cache: Some(rockbot_tools::ResultCache::new(1024 * 1024)),
        ..rockbot_tools::LayerOptions::default()
    };
    let executor = ToolExecutor::with_layers(registry, layers);
    let call = async |arguments: &str| {
        let (context, _) = context("tool");
        executor.execute(ToolCall { context, arguments: arguments.into() }).await
    };
    for _ in 0..3 {
        assert_eq!(call("{\"id\":1}").await.unwrap().to_text(), "{\"n\":1}");
    }
    assert_eq!(server.received().len(), 1, "a cached result sends no request");
    for invalid in ["{}", "{\"id\":\"x\"}", "{\"id\":1,\"b\":2}"] {
        assert!(call(invalid).await.is_err(), "{invalid}");
    }
    assert_eq!(server.received().len(), 1);
}
