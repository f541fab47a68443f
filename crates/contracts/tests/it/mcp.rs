//! Golden JSON of messages about MCP servers, and their tolerance of older and newer peers.

use rockbot_contracts::{
    ContentBlock, InputBody, InputId, InputRequest, InstanceId, ToolHints, ToolSource,
    mcp::{
        McpConnection, McpGetPromptRequest, McpInputAnswer, McpInputAnswered, McpInputAsked,
        McpListResourcesRequest, McpManageError, McpManageErrorCode, McpMetadataRefreshRequest,
        McpPrompt, McpPromptArgument, McpPromptMessage, McpPromptMessages, McpPromptRole,
        McpReadResourceRequest, McpRegisterServerRequest, McpRejectedTool, McpRenamedTool,
        McpResource, McpResourceContent, McpResourcePage, McpResourcesChanged, McpServerDetails,
        McpServerDetailsRequest, McpServerRegistered, McpServerState, McpServerSummary,
        McpServerUnregistered, McpServersIndexed, McpToolDefinition, McpUnregisterServerRequest,
    },
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::fixtures::{call, check, input_response};

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
        renamed_tools: Vec::new(),
        renamed_left_out: 0,
        has_instructions: false,
        has_resources: false,
        prompts: Vec::new(),
        prompts_left_out: 0,
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
        output_schema: None,
        hints: ToolHints::default(),
        timeout_ms: Some(30_000),
    }
}

fn prompt() -> McpPrompt {
    McpPrompt {
        name: "review".to_owned(),
        description: "Reviews a pull request.".to_owned(),
        arguments: vec![McpPromptArgument {
            name: "number".to_owned(),
            description: "Number of the pull request.".to_owned(),
            required: true,
        }],
    }
}

fn states() -> Vec<McpServerState> {
    let connected = McpServerState {
        name: "GitHub".to_owned(),
        connection: McpConnection::Connected,
        reason: None,
        since_ms: 1_700_000_000_000,
        restarts: 1,
        transport: "http".to_owned(),
        protocol_version: Some("2025-11-25".to_owned()),
        required: true,
        tools_offered: 2,
        tools_left_out: 1,
    };
    let failed = McpServerState {
        name: "time".to_owned(),
        connection: McpConnection::Failed,
        reason: Some("cannot start its program".to_owned()),
        since_ms: 1_700_000_000_500,
        transport: "stdio".to_owned(),
        ..McpServerState::default()
    };
    vec![connected, failed]
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
            states: Some(states()),
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
            states: None,
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
    let renamed = McpRenamedTool {
        name: "list.issues".to_owned(),
        model_name: "GitHub__list_issues_00c0ffee".to_owned(),
    };
    check(
        "mcp-server-details.json",
        &McpServerDetails {
            server: McpServerSummary {
                rejected_tools: vec![rejected],
                renamed_tools: vec![renamed],
                renamed_left_out: 2,
                has_resources: true,
                prompts: vec![prompt()],
                ..server()
            },
            instructions: Some("Ask for one repository at a time.".to_owned()),
            protocol_version: Some("2025-11-25".to_owned()),
            tools: vec![McpToolDefinition {
                output_schema: Some(json!({"type": "object", "required": ["url"]})),
                ..tool()
            }],
            next: Some("create_issue".to_owned()),
        },
    );
}

#[test]
fn resource_messages_match_golden_json() {
    let server_name = || "GitHub".to_owned();
    check(
        "mcp-list-resources-request.json",
        &McpListResourcesRequest {
            server_name: server_name(),
            templates: true,
            after: Some("page-2".to_owned()),
        },
    );
    check(
        "mcp-resource-page.json",
        &McpResourcePage {
            server_name: server_name(),
            resources: vec![McpResource {
                uri: "repo://rockbot/README.md".to_owned(),
                name: "README.md".to_owned(),
                description: "What the project is.".to_owned(),
                mime_type: Some("text/markdown".to_owned()),
                size: Some(2048),
            }],
            left_out: 0,
            next: Some("page-3".to_owned()),
        },
    );
    let uri = "repo://rockbot/README.md".to_owned();
    check(
        "mcp-read-resource-request.json",
        &McpReadResourceRequest { server_name: server_name(), uri: uri.clone() },
    );
    let text = ContentBlock::Resource {
        uri,
        mime_type: Some("text/markdown".to_owned()),
        text: Some("# RockBot".to_owned()),
    };
    check(
        "mcp-resource-content.json",
        &McpResourceContent { server_name: server_name(), content: vec![text], is_truncated: true },
    );
}

#[test]
fn prompt_messages_match_golden_json() {
    let server_name = || "GitHub".to_owned();
    check(
        "mcp-get-prompt-request.json",
        &McpGetPromptRequest {
            server_name: server_name(),
            prompt_name: "review".to_owned(),
            arguments: [("number".to_owned(), "7".to_owned())].into(),
        },
    );
    let message = |role, text: &str| McpPromptMessage {
        role,
        content: ContentBlock::Text { text: text.to_owned() },
    };
    let messages = vec![
        message(McpPromptRole::User, "Review pull request 7."),
        message(McpPromptRole::Assistant, "I begin with its tests."),
    ];
    let messages = McpPromptMessages { server_name: server_name(), messages };
    check("mcp-prompt-messages.json", &messages);
    assert_eq!(messages.to_text(), "Review pull request 7.\n\nAssistant: I begin with its tests.");
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
fn newer_states_and_roles_are_read() {
    let state: McpServerState = read(r#"{"name":"s","connection":"hibernating","future":1}"#);
    assert_eq!(state.connection, McpConnection::Unknown);
    assert!(!state.connection.is_usable());
    let nulls = r#"{"name":"s","connection":null,"reason":null,"sinceMs":null,"restarts":null,
        "transport":null,"protocolVersion":null,"required":null,"toolsOffered":null,
        "toolsLeftOut":null}"#;
    assert_eq!(read::<McpServerState>(nulls), read::<McpServerState>(r#"{"name":"s"}"#));
    let message = r#"{"role":"narrator","content":{"type":"text","text":"t"}}"#;
    assert_eq!(read::<McpPromptMessage>(message).role, McpPromptRole::User);
    let page: McpResourcePage = read(r#"{"serverName":"s","resources":[{"uri":"a:b"}]}"#);
    assert_eq!((page.resources[0].uri.as_str(), page.next), ("a:b", None));
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

#[test]
fn input_and_change_messages_match_golden_json() {
    let input_id = InputId::new("input-1").unwrap();
    check(
        "mcp-input-asked.json",
        &McpInputAsked {
            tool_call_id: call(),
            input_id: input_id.clone(),
            bridge: InstanceId::new("bridge-0").unwrap(),
            expires_in_ms: 58_000,
            request: InputRequest {
                server: "paint".to_owned(),
                message: "Log in to the shop.".to_owned(),
                body: InputBody::Url { url: "https://auth.example.com/login".to_owned() },
            },
        },
    );
    let uris = vec!["file:///notes.md".to_owned()];
    let server_name = "GitHub".to_owned();
    check("mcp-resources-changed.json", &McpResourcesChanged { server_name, uris });
    let response = input_response();
    check("mcp-input-answer.json", &McpInputAnswer { input_id: input_id.clone(), response });
    check("mcp-input-answered.json", &McpInputAnswered { input_id, accepted: true });
}
