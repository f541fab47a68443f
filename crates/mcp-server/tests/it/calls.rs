//! Calls of tools in both eras of the protocol.

use std::time::Duration;

use rmcp::{
    ClientLifecycleMode, ServiceError,
    model::{CallToolRequestParams, ClientRequest, GetPromptRequestParams, RequestMetaObject},
    service::PeerRequestOptions,
};
use rockbot_mcp_server::{HttpOptions, McpClient};
use rockbot_testkit::fixture::within_timeout;
use serde_json::json;

use crate::fixture::{Handler, Notified, client, error, filter, request, text};

#[tokio::test]
async fn tools_are_listed_and_called_in_both_eras() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    for session in fleet.connect_all(&http).await {
        let tools = session.peer().list_all_tools().await.unwrap();
        let echo = tools.iter().find(|tool| tool.name == "echo").unwrap();
        let annotations = echo.annotations.as_ref().unwrap();
        assert_eq!(annotations.read_only_hint, Some(true));
        assert_eq!(echo.meta.as_ref().unwrap().0["rockbot/source"], "files");
        let result = session.call("echo", json!({"text": "hello"})).await;
        assert_eq!((text(&result), result.is_error), ("hello", Some(false)));
        let meta = &result.meta.as_ref().unwrap().0;
        assert_eq!(meta["rockbot/executed"], "yes");
        assert_eq!(meta["rockbot/toolCallId"].as_str().map(str::len), Some(32));
    }
}

#[tokio::test]
async fn errors_say_whether_the_tool_ran() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;

    let failed = session.call("fail", json!({})).await;
    assert_eq!(error(&failed, "code"), "execution_failed");
    assert_eq!(error(&failed, "executed"), "yes");
    assert!(text(&failed).starts_with("the disk is full\n[code: execution_failed; executed: yes;"));
    assert!(!format!("{failed:?}").contains("db-7"), "{failed:?}");

    let invalid = session.call("echo", json!({"text": 7})).await;
    assert_eq!(error(&invalid, "code"), "invalid_arguments");
    assert_eq!(error(&invalid, "executed"), "no");

    let sad = session.call("sad", json!({})).await;
    assert_eq!(error(&sad, "executed"), "yes");
    assert_eq!(text(&sad), "exit code 1");
}

#[tokio::test]
async fn client_timeout_limits_the_call() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;
    let mut call = request("hang", json!({}));
    let mut meta = RequestMetaObject::new();
    meta.0.0.insert("rockbot/timeoutMs".to_owned(), json!(200));
    call.meta = Some(meta);
    let result = within_timeout("the result", session.peer().call_tool(call)).await.unwrap();
    assert_eq!(error(&result, "code"), "timeout");
    assert_eq!(error(&result, "executed"), "yes");
    handler.events.running(0).await;

    for (key, value) in [("rockbot/timeoutMs", json!(0)), ("rockbot/callId", json!(""))] {
        let mut call = request("echo", json!({}));
        let mut meta = RequestMetaObject::new();
        meta.0.0.insert(key.to_owned(), value);
        call.meta = Some(meta);
        assert_invalid(session.peer().call_tool(call).await);
    }
}

#[tokio::test]
async fn tools_outside_the_filter_do_not_exist() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let limited = McpClient::new("limited", filter(&["count", "f*"])).unwrap();
    let session = fleet.connect(limited, ClientLifecycleMode::Initialize).await;
    let names = session.tool_names().await;
    assert!(
        names.contains(&"echo".to_owned()) && !names.contains(&"count".to_owned()),
        "{names:?}"
    );
    for name in ["count", "fail", "missing", "COUNT", "co.unt"] {
        assert_invalid(session.peer().call_tool(request(name, json!({}))).await);
    }
    let indirect = request("rockbot_invoke_tool", json!({"tool_name": "count"}));
    assert_invalid(session.peer().call_tool(indirect).await);
}

fn assert_invalid<T: std::fmt::Debug>(response: Result<T, ServiceError>) {
    let Err(ServiceError::McpError(error)) = response else { panic!("{response:?}") };
    assert_eq!(error.code.0, -32602, "{error:?}");
}

#[tokio::test]
async fn progress_reaches_the_client_while_the_call_runs() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    for mut session in fleet.connect_all(&http).await {
        handler.events.released.send_replace(false);
        let peer = session.peer().clone();
        // The client gives every request a token.
        let call = async move { peer.call_tool(request("chatty", json!({}))).await };
        let call = tokio::spawn(call);
        for number in 1..=3 {
            assert_eq!(session.notified().await, Notified::Progress(format!("step {number}")));
        }
        handler.events.released.send_replace(true);
        let result = within_timeout("the result", call).await.unwrap().unwrap();
        assert_eq!(text(&result), "whole");
        assert_eq!(result.structured_content, None, "details are for the fleet");
    }
}

#[tokio::test]
async fn cancel_reaches_the_tool() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    for session in fleet.connect_all(&http).await {
        let call = CallToolRequestParams::new("hang");
        let call = ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(call));
        let options = PeerRequestOptions::no_options();
        let call = session.peer().send_request_with_option(call, options).await.unwrap();
        handler.events.running(1).await;
        call.cancel(Some("enough".to_owned())).await.unwrap();
        handler.events.running(0).await;
    }
}

#[tokio::test]
async fn calls_of_a_lost_client_are_cancelled() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;
    let peer = session.peer().clone();
    let call = tokio::spawn(async move { peer.call_tool(request("hang", json!({}))).await });
    handler.events.running(1).await;
    drop(session);
    handler.events.running(0).await;
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn stop_waits_for_calls_and_rejects_new_ones() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;
    let peer = session.peer().clone();
    let call = tokio::spawn(async move { peer.call_tool(request("wait", json!({}))).await });
    handler.events.running(1).await;
    let stopping = tokio::spawn({
        let fleet = fleet.fleet.clone();
        async move { fleet.stop(Duration::from_secs(60)).await }
    });
    let late = loop {
        let late = session.call("echo", json!({"text": "late"})).await;
        if late.is_error == Some(true) {
            break late;
        }
    };
    assert_eq!(error(&late, "code"), "unavailable");
    assert_eq!(error(&late, "executed"), "no");
    handler.events.released.send_replace(true);
    assert_eq!(text(&call.await.unwrap().unwrap()), "1");
    within_timeout("the stop", stopping).await.unwrap();
}

#[tokio::test]
async fn guides_are_prompts() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;
    let prompts = session.peer().list_all_prompts().await.unwrap();
    assert_eq!(prompts[0].name, "test-guide");
    assert_eq!(prompts[0].description.as_deref(), Some("about tests"));
    let prompt =
        session.peer().get_prompt(GetPromptRequestParams::new("test-guide")).await.unwrap();
    assert_eq!(prompt.messages[0].content.as_text().unwrap().text, "# Tests");
    assert_invalid(session.peer().get_prompt(GetPromptRequestParams::new("missing")).await);
}
