//! Tolerance of unknown fields, missing optional fields, null, and newer codes.

use rockbot_contracts::{
    AgentReply, DecodeError, Envelope, Executed, HandlerLoad, HandlerPool, PoolName, ReplyBody,
    ToolCatalog, ToolError, ToolErrorCode, ToolHints, ToolInvokeRequest, ToolInvokeResponse,
    ToolSource, json::Limits,
};
use serde::de::DeserializeOwned;

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn unknown_fields_are_ignored() {
    let request: ToolInvokeRequest = read(
        r#"{"toolCallId":"a","toolName":"t","arguments":"{}","sessionId":"s","future":{"x":[1]}}"#,
    );
    assert_eq!(request.tool_name, "t");
}

#[test]
fn call_without_session_is_a_session_of_its_own() {
    for session in ["", r#","sessionId":null"#] {
        let text = format!(r#"{{"toolCallId":"a","toolName":"t","arguments":"{{}}"{session}}}"#);
        let request: ToolInvokeRequest = read(&text);
        assert_eq!(request.session_id.as_str(), "a");
    }
}

#[test]
fn invalid_utf8_is_rejected_even_in_unknown_fields() {
    let decoded = |byte| {
        let known = br#"{"toolCallId":"a","toolName":"t","arguments":"{}","sessionId":"s","x":""#;
        let body = [known, &[byte][..], br#""}"#].concat();
        Envelope::raw("ToolInvokeRequest", body).decode::<ToolInvokeRequest>(Limits::default())
    };
    assert_eq!(decoded(b'a').expect("text").tool_name, "t");
    let error = decoded(0xff).expect_err("no text");
    assert!(matches!(error, DecodeError::Malformed { .. }), "{error}");
}

#[test]
fn null_equals_a_missing_field() {
    let bare = r#"{"toolCallId":"a","toolName":"t","content":"c"}"#;
    let nulls = r#"{"toolCallId":"a","toolName":"t","content":"c","isError":null,"blocks":null,
        "details":null,"childLoopId":null,"elapsedMs":null}"#;
    assert_eq!(read::<ToolInvokeResponse>(bare), read::<ToolInvokeResponse>(nulls));
    let catalog: ToolCatalog = read(
        r#"{"handler":"h","instance":"i","fingerprint":"f","removed":null,"tools":[
            {"name":"t","description":"d","parameters":{},"source":"mcp:x","hints":null}]}"#,
    );
    assert_eq!(catalog.tools[0].hints, ToolHints::default());
    assert_eq!(catalog.tools[0].source, ToolSource::Mcp("x".to_owned()));
}

#[test]
fn catalog_names_its_pool_by_key() {
    let pool = |key: &str| {
        let text = format!(r#"{{"handler":"h","instance":"i","fingerprint":"f"{key}}}"#);
        read::<ToolCatalog>(&text).pool()
    };
    for absent in ["", r#","invokeKey":null,"instructions":null,"guides":null"#] {
        assert_eq!(pool(absent), Some(HandlerPool::Unnamed));
    }
    assert_eq!(pool(r#","invokeKey":"tool.invoke""#), Some(HandlerPool::Unnamed));
    let web = HandlerPool::Named(PoolName::new("web").unwrap());
    assert_eq!(pool(r#","invokeKey":"tool.invoke.pool.web""#), Some(web));
    for other in ["tool.invoke.mcp", "user.message.assistant", "tool.invoke.pool.a.b"] {
        assert_eq!(pool(&format!(r#","invokeKey":"{other}""#)), None, "{other}");
    }
}

#[test]
fn catalog_without_version_and_load_is_accepted() {
    let catalog: ToolCatalog = read(r#"{"handler":"h","instance":"i","fingerprint":"f"}"#);
    assert_eq!((catalog.version, catalog.load), (None, None));
    let catalog: ToolCatalog = read(
        r#"{"handler":"h","instance":"i","fingerprint":"f","version":null,
            "load":{"running":2,"waiting":null,"future":1}}"#,
    );
    let load = HandlerLoad { running: 2, waiting: 0, oldest_ms: None, capacity: None };
    assert_eq!(catalog.load, Some(load));
}

#[test]
fn unreadable_stages_do_not_make_a_reply_unreadable() {
    for stages in ["null", "7", r#"{"runMs":12.5}"#, r#"{"queueMs":"soon","startMs":1,"runMs":2}"#]
    {
        let response: ToolInvokeResponse = read(&format!(
            r#"{{"toolCallId":"a","toolName":"t","content":"c","stages":{stages}}}"#
        ));
        assert_eq!((response.tool_name.as_str(), response.stages), ("t", None), "{stages}");
        let error: ToolError = read(&format!(
            r#"{{"toolCallId":"a","toolName":"t","code":"timeout","message":"m","executed":"no",
                "stages":{stages}}}"#
        ));
        assert_eq!((error.executed, error.stages), (Executed::No, None), "{stages}");
        let reply: AgentReply = read(&format!(
            r#"{{"sessionId":"s","inReplyTo":"m","agent":"a","sequence":1,"isFinal":false,
                "kind":"tool_finished","toolCallId":"a","toolName":"t","elapsedUs":1,"bytes":0,
                "executed":"yes","stages":{stages}}}"#
        ));
        assert!(
            matches!(reply.body, ReplyBody::ToolFinished { stages: None, .. }),
            "{stages}: {reply:?}"
        );
    }
}

#[test]
fn error_without_execution_state_is_unknown() {
    let error: ToolError =
        read(r#"{"toolCallId":"a","toolName":"t","code":"timeout","message":"m"}"#);
    assert_eq!(error.executed, Executed::Unknown);
    assert!(!error.is_retryable);
}

#[test]
fn unknown_error_code_is_preserved() {
    let error: ToolError = read(
        r#"{"toolCallId":"a","toolName":"t","code":"on_fire","message":"m","executed":"maybe"}"#,
    );
    assert_eq!(error.code, ToolErrorCode::Other("on_fire".into()));
    assert_eq!(error.executed, Executed::Unknown);
    assert!(serde_json::to_string(&error).unwrap().contains("on_fire"));
}
