//! Golden JSON of script messages.

use rockbot_contracts::{
    SessionId, ToolCallId,
    script::{ScriptInvokeRequest, ScriptInvokeResponse, ScriptLimit},
};

use crate::fixtures::check;

#[test]
fn script_messages_match_golden_json() {
    let tool_call_id = ToolCallId::new("018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f").unwrap();
    let plain = ScriptInvokeRequest {
        tool_call_id: tool_call_id.clone(),
        script: "print(1)".to_owned(),
        input_data: None,
        timeout_seconds: 30,
        pip_packages: Vec::new(),
        session_id: None,
    };
    check("script-invoke-request.json", &plain);
    check(
        "script-invoke-request-rich.json",
        &ScriptInvokeRequest {
            input_data: Some("a,b\n1,2\n".to_owned()),
            pip_packages: vec!["pandas==2.2.3".to_owned()],
            session_id: Some(SessionId::new("session-1").unwrap()),
            ..plain
        },
    );
    let ended = ScriptInvokeResponse {
        tool_call_id,
        output: "1\n".to_owned(),
        stderr: String::new(),
        exit_code: 0,
        elapsed_ms: 12,
        ended_by: None,
        isolation: None,
        isolation_gaps: Vec::new(),
    };
    check("script-invoke-response.json", &ended);
    check(
        "script-invoke-response-ended.json",
        &ScriptInvokeResponse {
            stderr: "Killed".to_owned(),
            exit_code: 137,
            ended_by: Some(ScriptLimit::Memory),
            isolation: Some("pod (gvisor)".to_owned()),
            isolation_gaps: vec!["the network".to_owned()],
            ..ended
        },
    );
}
