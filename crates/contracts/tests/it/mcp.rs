//! Golden JSON of messages about MCP servers, and their tolerance of older and newer peers.

use rockbot_contracts::{
    InstanceId, ToolHints, ToolSource,
    mcp::{
        McpManageError, McpManageErrorCode, McpMetadataRefreshRequest, McpRegisterServerRequest,
        McpRejectedTool, McpServerDetails, McpServerDetailsRequest, McpServerRegistered,
        McpServerSummary, McpServerUnregistered, McpServersIndexed, McpToolDefinition,
        McpUnregisterServerRequest,
    },
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::fixtures::check;

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn server() -> McpServerSummary {
    McpServerSummary {
        name: "GitHub".to_owned(),
        display_name: "GitHub MCP Server".to_owned(),
        summary: "Issues, pull requests and files of repositories.".to_owned(),
        tool_count: 2,
        tool_names: vec!["create_issue".to_owned(), "get_file".to_owned()],
        rejected_tools: Vec::new(),
        has_instructions: false,
        exposure: None,
        fingerprint: "00c0ffee00c0ffee".to_owned(),
    }
}

fn tool() -> McpToolDefinition {
    McpToolDefinition {
        name: "create_issue".to_owned(),
        model_name: "GitHub__create_issue".to_owned(),
        title: Some("Create an issue".to_owned()),
        description: "Creates an issue.".to_owned(),
        parameters: json!({"type": "object", "properties": {"title": {"type": "string"}}}),
        hints: ToolHints::default(),
        timeout_ms: Some(30_000),
    }
}

#[test]
fn index_messages_match_golden_json() {
    let instance = InstanceId::new("bridge-0").unwrap();
    check(
        "mcp-servers-indexed-complete.json",
        &McpServersIndexed {
            instance: instance.clone(),
            servers: vec![server()],
            removed: Vec::new(),
            is_complete: true,
            since: None,
            fingerprint: "1111111111111111".to_owned(),
        },
    );
    check(
        "mcp-servers-indexed-delta.json",
        &McpServersIndexed {
            instance,
            servers: Vec::new(),
            removed: vec!["time".to_owned()],
            is_complete: false,
            since: Some("1111111111111111".to_owned()),
            fingerprint: "2222222222222222".to_owned(),
        },
    );
    check("mcp-metadata-refresh-request.json", &McpMetadataRefreshRequest::default());
    let server_name = Some("GitHub".to_owned());
    check("mcp-metadata-refresh-request-one.json", &McpMetadataRefreshRequest { server_name });
}

#[test]
fn details_messages_match_golden_json() {
    let server_name = || "GitHub".to_owned();
    check(
        "mcp-server-details-request.json",
        &McpServerDetailsRequest { server_name: server_name(), tool_name: None, after: None },
    );
    let tool_name = Some("create_issue".to_owned());
    check(
        "mcp-server-details-request-one.json",
        &McpServerDetailsRequest { server_name: server_name(), tool_name, after: None },
    );
    let after = Some("create_issue".to_owned());
    check(
        "mcp-server-details-request-part.json",
        &McpServerDetailsRequest { server_name: server_name(), tool_name: None, after },
    );
    let rejected = McpRejectedTool {
        name: "merge".to_owned(),
        reason: "its schema nests deeper than 64 levels with its references".to_owned(),
    };
    check(
        "mcp-server-details.json",
        &McpServerDetails {
            server: McpServerSummary { rejected_tools: vec![rejected], ..server() },
            instructions: Some("Ask for one repository at a time.".to_owned()),
            protocol_version: Some("2025-11-25".to_owned()),
            tools: vec![tool()],
            next: Some("create_issue".to_owned()),
        },
    );
}

#[test]
fn registration_messages_match_golden_json() {
    let server_name = || "time".to_owned();
    check(
        "mcp-register-server-request-command.json",
        &McpRegisterServerRequest {
            server_name: server_name(),
            command: Some("mcp-server-time".to_owned()),
            arguments: vec!["--local-timezone=UTC".to_owned()],
            url: None,
        },
    );
    check(
        "mcp-register-server-request-url.json",
        &McpRegisterServerRequest {
            server_name: server_name(),
            command: None,
            arguments: Vec::new(),
            url: Some("https://time.example/mcp".to_owned()),
        },
    );
    check("mcp-server-registered.json", &McpServerRegistered { server: server() });
    check(
        "mcp-unregister-server-request.json",
        &McpUnregisterServerRequest { server_name: server_name() },
    );
    check("mcp-server-unregistered.json", &McpServerUnregistered { server_name: server_name() });
    check(
        "mcp-manage-error.json",
        &McpManageError {
            server_name: server_name(),
            code: McpManageErrorCode::NotPermitted,
            message: "servers can't be added while agents run".to_owned(),
        },
    );
}

#[test]
fn unknown_fields_are_ignored_and_missing_ones_default() {
    let bare = r#"{"name":"s","fingerprint":"f"}"#;
    let nulls = r#"{"name":"s","displayName":null,"summary":null,"toolCount":null,"toolNames":null,
        "fingerprint":"f","future":[1]}"#;
    assert_eq!(read::<McpServerSummary>(bare), read::<McpServerSummary>(nulls));
    let bare = r#"{"instance":"i","fingerprint":"f"}"#;
    let nulls = r#"{"instance":"i","fingerprint":"f","servers":null,"removed":null,
        "isComplete":null,"since":null,"future":{}}"#;
    assert_eq!(read::<McpServersIndexed>(bare), read::<McpServersIndexed>(nulls));
    let bare = r#"{"name":"s","fingerprint":"f"}"#;
    let nulls = r#"{"name":"s","fingerprint":"f","instructions":null,"protocolVersion":null,
        "tools":null,"future":1}"#;
    assert_eq!(read::<McpServerDetails>(bare), read::<McpServerDetails>(nulls));
    let bare = r#"{"name":"t","modelName":"s__t","parameters":{}}"#;
    let nulls = r#"{"name":"t","modelName":"s__t","parameters":{},"title":null,"description":null,
        "hints":null,"timeoutMs":null,"future":1}"#;
    assert_eq!(read::<McpToolDefinition>(bare), read::<McpToolDefinition>(nulls));
    let bare = r#"{"serverName":"s"}"#;
    let nulls = r#"{"serverName":"s","command":null,"arguments":null,"url":null,"toolName":null}"#;
    assert_eq!(read::<McpRegisterServerRequest>(bare), read::<McpRegisterServerRequest>(nulls));
    assert_eq!(read::<McpServerDetailsRequest>(bare), read::<McpServerDetailsRequest>(nulls));
    assert_eq!(
        read::<McpMetadataRefreshRequest>("{}"),
        read::<McpMetadataRefreshRequest>(r#"{"serverName":null,"future":1}"#)
    );
    for text in [r#"{"serverName":"s","future":1}"#, bare] {
        assert_eq!(read::<McpUnregisterServerRequest>(text).server_name, "s");
        assert_eq!(read::<McpServerUnregistered>(text).server_name, "s");
    }
    let registered: McpServerRegistered = read(r#"{"name":"s","fingerprint":"f","future":1}"#);
    assert_eq!(registered.server.tool_count, 0);
}

#[test]
fn unknown_error_code_is_other() {
    let error: McpManageError = read(r#"{"serverName":"s","code":"on_fire","message":"m"}"#);
    assert_eq!(error.code, McpManageErrorCode::Other);
}

#[test]
fn registration_has_the_model_name_and_unchanged_schema() {
    let registration = tool().registration("GitHub");
    assert_eq!(registration.name, "GitHub__create_issue");
    assert_eq!(registration.parameters, tool().parameters);
    assert_eq!(registration.source, ToolSource::Mcp("GitHub".to_owned()));
}
