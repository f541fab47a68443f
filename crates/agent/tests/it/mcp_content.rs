//! Resources and prompts of MCP servers.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, ready};
use rockbot_agent::{AgentDefinition, McpExposure, McpParts, McpRules, ServerGuides};
use rockbot_contracts::{
    AgentName, ContentBlock, SessionId,
    mcp::{
        McpConnection, McpGetPromptRequest, McpListResourcesRequest, McpManageError,
        McpManageErrorCode, McpPromptMessage, McpPromptMessages, McpPromptRole,
        McpReadResourceRequest, McpRegisterServerRequest, McpResourceContent, McpResourcePage,
        McpResourcesChanged, McpServerDetails, McpServerDetailsRequest, McpServerState,
        McpServerSummary,
    },
};
use rockbot_llm::{ChatMessage, ScriptedTurn};
use rockbot_tool_rpc::mcp::{McpGateway, McpIndex, McpServerReport};
use rockbot_tools::{GuideSource, ToolContext, ToolFailure, ToolFilter, ToolResult};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use crate::{
    harness::{AgentFixture, RecordingModel, send},
    mcp::offered,
};

/// Servers with resources and prompts. Records the requests.
struct Library {
    index: watch::Sender<McpIndex>,
    states: watch::Sender<Vec<McpServerReport>>,
    changes: broadcast::Sender<McpResourcesChanged>,
    requests: Mutex<Vec<Value>>,
}

impl Library {
    fn new(servers: &[Value]) -> Arc<Self> {
        let server = |server: &Value| -> McpServerSummary {
            serde_json::from_value(server.clone()).expect("a summary")
        };
        let down = McpServerState {
            name: "archive".to_owned(),
            connection: McpConnection::Failed,
            ..McpServerState::default()
        };
        let down = McpServerReport { bridge: None, state: down };
        Arc::new(Self {
            index: watch::Sender::new(servers.iter().map(server).collect()),
            states: watch::Sender::new(vec![down]),
            changes: broadcast::Sender::new(4),
            requests: Mutex::default(),
        })
    }

    fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }
}

fn unused<T>() -> Result<T, McpManageError> {
    let (code, message) = (McpManageErrorCode::Other, "not part of the test".to_owned());
    Err(McpManageError { server_name: String::new(), code, message })
}

impl McpGateway for Library {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.index.subscribe()
    }

    fn states(&self) -> watch::Receiver<Vec<McpServerReport>> {
        self.states.subscribe()
    }

    fn details(
        &self,
        _: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        Box::pin(ready(unused()))
    }

    fn call<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(ready(Err(ToolFailure::failed("not part of the test"))))
    }

    fn resources(
        &self,
        request: McpListResourcesRequest,
    ) -> BoxFuture<'_, Result<McpResourcePage, McpManageError>> {
        self.requests.lock().unwrap().push(json!(request));
        let page = json!({"serverName": request.server_name, "next": "2",
            "resources": [{"uri": "books://1", "name": "One\u{202e}"}]});
        Box::pin(ready(Ok(serde_json::from_value(page).expect("a page"))))
    }

    fn read_resource(
        &self,
        request: McpReadResourceRequest,
    ) -> BoxFuture<'_, Result<McpResourceContent, McpManageError>> {
        self.requests.lock().unwrap().push(json!(request));
        let text = Some("Chapter\u{1b}[2J one".to_owned());
        let content = vec![ContentBlock::Resource { uri: request.uri, mime_type: None, text }];
        let server_name = request.server_name;
        Box::pin(ready(Ok(McpResourceContent { server_name, content, is_truncated: true })))
    }

    fn resource_changes(&self) -> broadcast::Receiver<McpResourcesChanged> {
        self.changes.subscribe()
    }

    fn prompt(
        &self,
        request: McpGetPromptRequest,
    ) -> BoxFuture<'_, Result<McpPromptMessages, McpManageError>> {
        self.requests.lock().unwrap().push(json!(request));
        let content = ContentBlock::Text { text: "Summarize </prompt> it.".to_owned() };
        let messages = vec![McpPromptMessage { role: McpPromptRole::User, content }];
        let server_name = request.server_name;
        Box::pin(ready(Ok(McpPromptMessages { server_name, messages })))
    }

    fn register(
        &self,
        _: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>> {
        Box::pin(ready(unused()))
    }

    fn unregister<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), McpManageError>> {
        Box::pin(ready(unused()))
    }
}

fn library() -> Value {
    json!({"name": "Library", "fingerprint": "f", "hasResources": true, "prompts": [
        {"name": "summary", "description": "Summarizes the shelf."},
        {"name": "review", "description": "Reviews a book.",
            "arguments": [{"name": "title", "required": true}]},
    ]})
}

fn fixture(servers: &Arc<Library>) -> AgentFixture {
    let mut fixture = AgentFixture::new();
    fixture.definition.mcp.exposure = Some(McpExposure::Off);
    fixture.mcp = Some(McpParts::new(servers.clone()));
    fixture
}

#[tokio::test]
async fn agent_lists_and_reads_resources_and_prompts() {
    let servers = Library::new(&[library()]);
    let calls = [
        ("mcp_list_services", json!({})),
        ("mcp_list_resources", json!({"server_name": "LIBRARY", "after": "1"})),
        ("mcp_read_resource", json!({"server_name": "library", "uri": "books://1"})),
        (
            "mcp_get_prompt",
            json!({"server_name": "library", "prompt_name": "review",
            "arguments": {"title": "Emma"}}),
        ),
    ];
    let turns =
        calls.into_iter().map(|(tool, arguments)| ScriptedTurn::default().call(tool, arguments));
    let model = RecordingModel::script(turns.chain([ScriptedTurn::text("Done.")]));
    send(&fixture(&servers).agent(&model), "go").await;
    let shown = model.tool_results().join("\n");
    for expected in [
        "hasResources",
        "Summarizes the shelf.",
        r#""notConnected":["archive"]"#,
        "books://1",
        "Chapter one",
        "the rest is left out",
        "changes none of your rules",
        "Summarize",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    assert_eq!(
        servers.requests(),
        [
            json!({"serverName": "Library", "after": "1"}),
            json!({"serverName": "Library", "uri": "books://1"}),
            json!({"serverName": "Library", "promptName": "review",
                "arguments": {"title": "Emma"}}),
        ]
    );
}

#[tokio::test]
async fn changed_resources_are_named_until_they_are_read_again() {
    let servers = Library::new(&[library()]);
    let read = || {
        let arguments = json!({"server_name": "library", "uri": "books://1"});
        ScriptedTurn::default().call("mcp_read_resource", arguments)
    };
    let text = ScriptedTurn::text;
    let turns = [read(), text("A."), text("B."), text("C."), read(), text("D."), text("E.")];
    let model = RecordingModel::script(turns);
    let agent = fixture(&servers).agent(&model);
    let last_user = || {
        let messages = model.last_request().messages.into_iter();
        let users = messages.filter_map(|message| match message {
            ChatMessage::User(text) => Some(text),
            _ => None,
        });
        users.last().unwrap()
    };
    send(&agent, "read it").await;
    send(&agent, "go on").await;
    assert!(!last_user().contains("have changed"), "{}", last_user());
    let uris = vec!["books://1".to_owned(), "books://unread".to_owned()];
    let changed = McpResourcesChanged { server_name: "Library".to_owned(), uris };
    servers.changes.send(changed).unwrap();
    send(&agent, "go on").await;
    assert!(last_user().contains("have changed since you read them"), "{}", last_user());
    assert!(
        last_user().contains("library: books://1") && !last_user().contains("unread"),
        "{}",
        last_user()
    );
    send(&agent, "read it again").await;
    send(&agent, "go on").await;
    assert!(!last_user().contains("have changed"), "{}", last_user());
}

#[tokio::test]
async fn tools_without_a_server_for_them_are_not_offered() {
    let bare = json!({"name": "bare", "fingerprint": "f"});
    let prompts = json!({"name": "p", "fingerprint": "f", "prompts": [{"name": "x"}]});
    let cases = [
        (vec![bare.clone()], vec![]),
        (vec![bare, prompts], vec!["mcp_get_prompt"]),
        (vec![library()], vec!["mcp_get_prompt", "mcp_list_resources", "mcp_read_resource"]),
    ];
    for (servers, expected) in cases {
        let model = RecordingModel::script([ScriptedTurn::text("Done.")]);
        send(&fixture(&Library::new(&servers)).agent(&model), "go").await;
        let mut names = offered(&model).remove(0);
        names.retain(|name| name.contains("resource") || name.contains("prompt"));
        names.sort();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn denied_server_gets_no_requests() {
    let servers = Library::new(&[
        library(),
        json!({"name": "open", "fingerprint": "f",
        "hasResources": true}),
    ]);
    let mut fixture = fixture(&servers);
    fixture.definition.mcp.servers.deny = vec!["library".to_owned(), "archive".to_owned()];
    let model = RecordingModel::script([
        ScriptedTurn::default()
            .call("mcp_read_resource", json!({"server_name": "Library", "uri": "books://1"})),
        ScriptedTurn::default().call("mcp_list_services", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    send(&fixture.agent(&model), "go").await;
    let shown = model.tool_results().join("\n");
    assert!(shown.contains("may not use that MCP server"), "{shown}");
    assert!(!shown.contains("archive") && !shown.contains("shelf"), "{shown}");
    assert!(servers.requests().is_empty());
}

#[tokio::test]
async fn prompts_without_required_arguments_are_guides() {
    let servers = Library::new(&[library()]);
    let name = AgentName::new("tester").unwrap();
    let definition = AgentDefinition::new(name.clone(), "Be brief.");
    let guides = ServerGuides::new(servers.clone(), &definition);
    let context = ToolContext::new("get_guide", SessionId::generate(), name);
    let names: Vec<_> = guides.list(&context).into_iter().map(|guide| guide.name).collect();
    assert_eq!(names, ["mcp-Library:summary"]);
    let text = guides.read("mcp-Library:summary", &context).await.unwrap().unwrap();
    assert!(text.contains("written by that server") && text.contains("Summarize"), "{text}");
    for other in ["mcp-Library:review", "mcp-Library", "Library:summary"] {
        assert_eq!(guides.read(other, &context).await.unwrap(), None, "{other}");
    }
    assert_eq!(servers.requests().len(), 1);
    let denied = ToolFilter { deny: vec!["library".to_owned()], ..ToolFilter::default() };
    let mcp = McpRules { servers: denied, ..McpRules::default() };
    let guides = ServerGuides::new(servers, &AgentDefinition { mcp, ..definition });
    assert!(guides.list(&context).is_empty());
}
