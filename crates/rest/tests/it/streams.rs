//! Streams: partial results, and streams that fail.

use std::{sync::Arc, time::Duration};

use rockbot_rest::RestProvider;
use rockbot_tools::{ToolProvider, ToolUpdate};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::{
    fixture::{Fixture, Kind, SECRET, call_entry, context},
    server::{Act, Server, json as json_act, open_head, response},
};

fn streaming(url: &str, stream: Value) -> Value {
    let mut entry = Kind::Get.entry(url);
    entry["stream"] = stream;
    entry
}

fn tokens() -> Value {
    json!({
        "mode": "json-stream", "linePrefix": "data:", "discriminatorField": "type",
        "doneValue": "done", "answerField": "answer", "tokenValue": "token",
        "tokenField": "content",
    })
}

/// Calls a tool whose server sends this stream. Returns whether it is an error, and the text.
async fn streamed(stream: Value, body: &str) -> (bool, String) {
    let kind = if stream["mode"] == "sse" { "text/event-stream" } else { "text/plain" };
    let bytes = [open_head(kind), body.as_bytes().to_vec()].concat();
    let server = Server::start([Act::Send(bytes)]).await;
    let result = call_entry(streaming(&server.url, stream)).await.0.unwrap();
    (result.is_error, result.to_text().into_owned())
}

#[tokio::test]
async fn first_token_is_reported_at_once() {
    for (stream, first, second) in [
        (
            tokens(),
            "data: {\"type\":\"token\",\"content\":\"Hel\"}\n".to_owned(),
            "data: {\"type\":\"done\",\"answer\":\"Hello\"}\n".to_owned(),
        ),
        (
            json!({"mode": "sse", "tokenField": "/delta/text"}),
            "data: {\"delta\":{\"text\":\"Hel\"}}\n\n".to_owned(),
            "data: {\"delta\":{\"text\":\"lo\"}}\n\ndata: [DONE]\n\n".to_owned(),
        ),
        (
            json!({"mode": "ndjson", "tokenField": "t"}),
            "{\"t\":\"Hel\"}\n".to_owned(),
            "{\"t\":\"lo\"}".to_owned(),
        ),
    ] {
        let go_on = Arc::new(Notify::new());
        let first = [open_head("text/event-stream"), first.into_bytes()].concat();
        let act = Act::InTwo(first, go_on.clone(), second.into_bytes());
        let server = Server::start([act]).await;
        let fixture = Fixture::with_tool(streaming(&server.url, stream)).await;
        let (mut context, _) = context("tool");
        let (sender, mut updates) = mpsc::channel(16);
        context.updates = Some(Arc::new(move |update| {
            let _ = sender.try_send(update);
        }));
        // The server sends the rest only after the partial result has arrived.
        let observe = async {
            let update = tokio::time::timeout(Duration::from_millis(200), updates.recv()).await;
            go_on.notify_one();
            update
        };
        let (result, update) = tokio::join!(fixture.call(json!({}), &context), observe);
        let Ok(Some(ToolUpdate::Partial(partial))) = update else { panic!("{update:?}") };
        assert_eq!(partial.to_text(), "Hel");
        assert_eq!(result.unwrap().to_text(), "Hello");
    }
}

#[tokio::test]
async fn failing_streams_report_what_came() {
    let token = "data: {\"type\":\"token\",\"content\":\"part\"}\n";
    let garbage = streamed(tokens(), &format!("{token}data: oops\n")).await;
    assert!(garbage.0 && garbage.1.contains("message 2 of the stream is not JSON"), "{garbage:?}");
    let cut = streamed(tokens(), token).await;
    assert!(cut.0 && cut.1.contains("ended before its last message"), "{cut:?}");
    let long = format!("{token}data: \"{}\"\n", "x".repeat(2 * 1024 * 1024));
    let long = streamed(tokens(), &long).await;
    assert!(long.0 && long.1.contains("exceeds 1 MiB"), "{long:?}");
    for failed in [garbage, cut, long] {
        assert!(failed.1.ends_with("received before:\npart"), "{failed:?}");
    }
}

#[tokio::test]
async fn silent_stream_ends_with_what_came() {
    let first = [open_head("text/plain"), b"{\"t\":\"part\"}\n".to_vec()].concat();
    let never = Arc::new(Notify::new());
    let server = Server::start([Act::InTwo(first, never, Vec::new())]).await;
    let stream = json!({"mode": "ndjson", "tokenField": "t"});
    let result = call_entry(streaming(&server.url, stream)).await.0.unwrap();
    let text = result.to_text();
    assert!(result.is_error && text.contains("silent") && text.ends_with("part"), "{text}");
    assert_eq!(server.received().len(), 1);
}

/// Every mode can go on forever without a text: comments, other kinds of messages, blank lines.
#[tokio::test]
async fn stream_without_end_is_read_to_a_limit() {
    for (stream, line) in [
        (json!({"mode": "sse", "tokenField": "t"}), ": ping\n\n"),
        (json!({"mode": "sse", "tokenField": "t"}), "data: {}\n\n"),
        (json!({"mode": "json-stream", "linePrefix": "data:", "tokenField": "t"}), "other\n"),
        (json!({"mode": "ndjson", "tokenField": "t"}), "\n"),
    ] {
        let server = Server::start([Act::Repeat(open_head("text/event-stream"), line)]).await;
        let mut entry = streaming(&server.url, stream);
        entry["maxResponseBytes"] = json!(10_000);
        let result = call_entry(entry).await.0.unwrap();
        assert!(result.is_error && result.to_text().contains("too long"), "{result:?}");
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn stream_that_fails_before_its_first_message_is_retried() {
    let broken = Act::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 50\r\n\r\n"
            .to_vec(),
    );
    let whole =
        Act::Send([open_head("text/event-stream"), b"data: {\"t\":\"ok\"}\n\n".to_vec()].concat());
    let server = Server::start([broken, whole]).await;
    let stream = json!({"mode": "sse", "tokenField": "t"});
    let result = call_entry(streaming(&server.url, stream)).await.0.unwrap();
    assert_eq!(result.to_text(), "ok");
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn whole_document_instead_of_events_is_a_result() {
    let server = Server::start([json_act("{ \"error\": \"no stream\" }")]).await;
    let stream = json!({"mode": "sse", "tokenField": "t"});
    let result = call_entry(streaming(&server.url, stream.clone())).await.0.unwrap();
    assert_eq!(result.to_text(), "{\"error\":\"no stream\"}");
    let refused = Act::Send(response("400 Bad Request", "", "bad"));
    let server = Server::start([refused]).await;
    let result = call_entry(streaming(&server.url, stream)).await.0.unwrap();
    assert!(result.is_error && result.to_text().contains("bad"));
}

#[tokio::test]
async fn secret_is_in_no_partial_result() {
    let half = SECRET.len() / 2;
    let token = |text: &str| format!("{}\n", json!({"t": text}));
    let go_on = Arc::new(Notify::new());
    let first = token(&format!("key {}", &SECRET[..half]));
    let first = [open_head("text/plain"), first.into_bytes()].concat();
    let act = Act::InTwo(first, go_on.clone(), token(&SECRET[half..]).into_bytes());
    let server = Server::start([act]).await;
    let mut entry = streaming(&server.url, json!({"mode": "ndjson", "tokenField": "t"}));
    entry["headers"] = json!({"X-Key": "${SECRET}"});
    let fixture = Fixture::with_tool(entry).await;
    let provider: &RestProvider = &fixture.provider;
    assert_eq!(provider.list().len(), 1);
    let (mut context, _) = context("tool");
    let (sender, mut updates) = mpsc::channel(16);
    context.updates = Some(Arc::new(move |update| {
        let _ = sender.try_send(update);
    }));
    let observe = async {
        let update = updates.recv().await;
        go_on.notify_one();
        update
    };
    let (result, update) = tokio::join!(fixture.call(json!({}), &context), observe);
    let Some(ToolUpdate::Partial(partial)) = update else { panic!("{update:?}") };
    assert_eq!(partial.to_text(), "key ");
    assert_eq!(result.unwrap().to_text(), "key [secret]");
}
