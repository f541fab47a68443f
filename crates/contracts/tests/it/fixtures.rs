//! Golden JSON of every message type.

use std::{fmt::Debug, path::Path};

use rockbot_contracts::{
    AgentName, AgentReply, ApprovalAnswer, ApprovalDecision, ApprovalId, ApprovalOutcome,
    CallStages, ContentBlock, Envelope, Executed, HandlerLoad, HandlerPool, InputAction,
    InputAnswer, InputBody, InputId, InputOutcome, InputRequest, InputResponse, InstanceId,
    Message, MessageId, PoolName, ProviderInstructions, ReplyBody, ScriptIsolation, SessionId,
    Spending, TaskId, TaskState, ToolCallId, ToolCancel, ToolCatalog, ToolCatalogRefresh,
    ToolError, ToolErrorCode, ToolGuide, ToolHints, ToolInvokeRequest, ToolInvokeResponse,
    ToolProgress, ToolRegistration, ToolSource, TurnUsage, UserMessage,
    input::{InputField, InputKind, InputOption},
    json::Limits,
    user::{ReplyDetail, TurnOutcome},
};
use serde_json::{Value, json};

/// Checks that the record serializes to the JSON in the file, and that the file deserializes to it.
pub(crate) fn check<M: Message + PartialEq + Debug>(file: &str, record: &M) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(file);
    let written = serde_json::to_value(record).unwrap();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; expected content:\n{written:#}", path.display())
    });
    let golden: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written, golden, "the wire format of {} changed: {file}", M::TYPE);
    let envelope = Envelope::raw(M::TYPE, text.into_bytes());
    assert_eq!(&envelope.decode::<M>(Limits::default()).unwrap(), record, "{file}");
}

pub(crate) fn call() -> ToolCallId {
    ToolCallId::new("018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f").unwrap()
}

pub(crate) fn session() -> SessionId {
    SessionId::new("session-1").unwrap()
}

#[test]
fn tool_messages_match_golden_json() {
    check(
        "tool-invoke-request.json",
        &ToolInvokeRequest {
            tool_call_id: call(),
            tool_name: "read_file".to_owned(),
            arguments: r#"{"path":"README.md"}"#.to_owned(),
            session_id: session(),
        },
    );
    let plain = ToolInvokeResponse {
        tool_call_id: call(),
        tool_name: "read_file".to_owned(),
        content: "# RockBot\n".to_owned(),
        is_error: false,
        blocks: Vec::new(),
        details: None,
        child_loop_id: None,
        elapsed_ms: None,
        stages: None,
    };
    check("tool-invoke-response.json", &plain);
    check(
        "tool-invoke-response-rich.json",
        &ToolInvokeResponse {
            is_error: true,
            blocks: vec![
                ContentBlock::Text { text: "caption".to_owned() },
                ContentBlock::Image { data: "aGk=".to_owned(), mime_type: "image/png".to_owned() },
                ContentBlock::Audio { data: "aGk=".to_owned(), mime_type: "audio/wav".to_owned() },
                ContentBlock::Resource {
                    uri: "file:///notes.md".to_owned(),
                    mime_type: Some("text/markdown".to_owned()),
                    text: Some("notes".to_owned()),
                },
            ],
            details: Some(json!({"exitCode": 1})),
            child_loop_id: Some("loop-7".to_owned()),
            elapsed_ms: Some(12),
            stages: Some(CallStages { queue_ms: Some(3), start_ms: 1, run_ms: 12 }),
            ..plain
        },
    );
    check(
        "tool-error.json",
        &ToolError {
            tool_call_id: call(),
            tool_name: "bash".to_owned(),
            code: ToolErrorCode::Timeout,
            message: "timeout".to_owned(),
            is_retryable: false,
            executed: Executed::Yes,
            stages: None,
        },
    );
    check(
        "tool-error-stages.json",
        &ToolError {
            tool_call_id: call(),
            tool_name: "bash".to_owned(),
            code: ToolErrorCode::ExecutionFailed,
            message: "no such command".to_owned(),
            is_retryable: false,
            executed: Executed::Yes,
            stages: Some(CallStages { queue_ms: None, start_ms: 0, run_ms: 7 }),
        },
    );
    check(
        "tool-progress.json",
        &ToolProgress {
            tool_call_id: call(),
            tool_name: "bash".to_owned(),
            sequence: 3,
            text: Some("compiling".to_owned()),
            partial: None,
        },
    );
    check(
        "tool-cancel.json",
        &ToolCancel {
            tool_call_id: call(),
            reason: "the user asked for something else".to_owned(),
        },
    );
}

#[test]
fn catalog_messages_match_golden_json() {
    let tools = vec![ToolRegistration {
        name: "read_file".to_owned(),
        label: Some("Read a file".to_owned()),
        description: "Reads a text file.".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        source: ToolSource::Files,
        hints: ToolHints::READ_ONLY,
        timeout_ms: Some(30_000),
    }];
    let catalog = ToolCatalog {
        handler: "tool-handler".to_owned(),
        instance: InstanceId::new("handler-0").unwrap(),
        fingerprint: ToolCatalog::fingerprint_of(&tools),
        tools,
        removed: vec!["old_tool".to_owned()],
        version: Some("0.1.0".to_owned()),
        load: Some(HandlerLoad { running: 3, waiting: 12, oldest_ms: Some(4_200), capacity: None }),
        invoke_key: None,
        instructions: Vec::new(),
        guides: Vec::new(),
        script_isolation: None,
    };
    check("tool-catalog.json", &catalog);
    check(
        "tool-catalog-pool.json",
        &ToolCatalog {
            invoke_key: Some(HandlerPool::Named(PoolName::new("web").unwrap()).invoke_key()),
            instructions: vec![ProviderInstructions {
                source: ToolSource::Web,
                text: "Search before you browse.".to_owned(),
            }],
            guides: vec![ToolGuide {
                source: ToolSource::Web,
                name: "web".to_owned(),
                summary: "Searching and reading the web".to_owned(),
                markdown: "# The web\n\nSearch before you browse.".to_owned(),
            }],
            script_isolation: Some(ScriptIsolation {
                mechanism: "Landlock, seccomp; kernel memory is not limited".to_owned(),
                gaps: vec!["each other".to_owned()],
            }),
            ..catalog.clone()
        },
    );
    let capacity = Some(64);
    let load = HandlerLoad { running: 64, waiting: 37, oldest_ms: Some(12_000), capacity };
    let busy = ToolCatalog { load: Some(load), tools: Vec::new(), ..catalog };
    check("tool-catalog-capacity.json", &busy);
    check("tool-catalog-refresh.json", &ToolCatalogRefresh {});
}

#[test]
fn approval_messages_match_golden_json() {
    let answer = |decision| ApprovalAnswer {
        session_id: session(),
        approval_id: ApprovalId::new("approval-1").unwrap(),
        call_hash: "5e2f".to_owned(),
        decision,
        reason: None,
    };
    check("approval-answer.json", &answer(ApprovalDecision::AllowInSession));
    let reason = Some("Read it first.".to_owned());
    let denied = ApprovalAnswer { reason, ..answer(ApprovalDecision::Deny) };
    check("approval-answer-reason.json", &denied);
    let unknown = json!({"sessionId": "session-1", "approvalId": "approval-1", "callHash": "5e2f",
        "decision": "of_a_newer_peer"});
    let decoded: ApprovalAnswer = serde_json::from_value(unknown).unwrap();
    assert_eq!(decoded, answer(ApprovalDecision::Deny), "an unknown decision denies");
}

/// Returns a request with a field of every kind.
pub(crate) fn input_request() -> InputRequest {
    let option =
        |value: &str, title: &str| InputOption { value: value.to_owned(), title: title.to_owned() };
    let field = |name: &str, kind| InputField {
        name: name.to_owned(),
        title: String::new(),
        description: String::new(),
        required: false,
        default: None,
        kind,
    };
    let mail = InputKind::Text {
        min_length: Some(3),
        max_length: Some(80),
        format: Some("email".to_owned()),
    };
    let age = InputKind::Number { integer: true, minimum: Some(1.0), maximum: Some(150.0) };
    let options = vec![option("r", "Red"), option("g", "")];
    let fields = vec![
        InputField {
            title: "Mail".to_owned(),
            description: "Where to write to.".to_owned(),
            required: true,
            default: Some(json!("a@b.example")),
            ..field("mail", mail)
        },
        field("age", age),
        field("sure", InputKind::Boolean),
        field("color", InputKind::Choice { options: options.clone() }),
        field("colors", InputKind::Choices { options, min_items: Some(1), max_items: Some(2) }),
    ];
    InputRequest {
        server: "paint".to_owned(),
        message: "What do you like?".to_owned(),
        body: InputBody::Form { fields },
    }
}

pub(crate) fn input_response() -> InputResponse {
    let content = json!({"mail": "c@d.example", "colors": ["r"]});
    serde_json::from_value(json!({"action": "accept", "content": content})).unwrap()
}

#[test]
fn input_messages_match_golden_json() {
    let answer = |response| InputAnswer {
        session_id: session(),
        input_id: InputId::new("input-1").unwrap(),
        response,
    };
    check("input-answer.json", &answer(input_response()));
    check("input-answer-decline.json", &answer(InputAction::Decline.into()));
    assert_eq!(input_request().check(&input_response()), Ok(()));
    let unknown = json!({"sessionId": "session-1", "inputId": "input-1",
        "action": "of_a_newer_peer"});
    let decoded: InputAnswer = serde_json::from_value(unknown).unwrap();
    assert_eq!(decoded, answer(InputAction::Cancel.into()), "an unknown action cancels");
    let newer = json!({"server": "s", "mode": "of_a_newer_peer", "extra": 1});
    let decoded: InputRequest = serde_json::from_value(newer).unwrap();
    assert_eq!(decoded.body, InputBody::Other);
}

#[test]
fn user_messages_match_golden_json() {
    check("user-message.json", &UserMessage::new(session(), "What is in this folder?"));
    let data = "aGk=".to_owned();
    let media = vec![ContentBlock::Image { data, mime_type: "image/png".to_owned() }];
    check(
        "user-message-media.json",
        &UserMessage { media, ..UserMessage::new(session(), "Describe it.") },
    );
    let after = Some(MessageId::new("message-1").unwrap());
    check(
        "user-message-after.json",
        &UserMessage { after, ..UserMessage::new(session(), "And in its parent?") },
    );
    let detail = ReplyDetail::Full;
    let detailed = UserMessage { detail, ..UserMessage::new(session(), "Show all of it.") };
    check("user-message-detail.json", &detailed);
    let asking =
        UserMessage { accepts_input: true, ..UserMessage::new(session(), "Ask me if you must.") };
    check("user-message-input.json", &asking);
    let reply = |sequence, is_final, body| AgentReply {
        session_id: session(),
        in_reply_to: MessageId::new("message-1").unwrap(),
        agent: AgentName::new("assistant").unwrap(),
        sequence,
        is_final,
        body,
    };
    let name = "bash".to_owned();
    let bodies = [
        ("text-delta", ReplyBody::TextDelta { text: "Let me ".to_owned() }),
        (
            "tool-started",
            ReplyBody::ToolStarted {
                tool_call_id: call(),
                tool_name: name.clone(),
                arguments: "{\"command\":\"ls\"}".to_owned(),
                arguments_left_out: 0,
            },
        ),
        (
            "tool-progressed",
            ReplyBody::ToolProgressed { tool_call_id: call(), text: "half way".to_owned() },
        ),
        (
            "tool-finished",
            ReplyBody::ToolFinished {
                tool_call_id: call(),
                tool_name: name.clone(),
                ran_on: Some("tool-handler/handler-0".to_owned()),
                elapsed_us: 1234,
                bytes: 56,
                error: Some(ToolErrorCode::ExecutionFailed),
                executed: Executed::Yes,
                child_loop_id: Some("loop-7".to_owned()),
                stages: None,
                result: None,
                result_left_out: 0,
            },
        ),
        ("steered", ReplyBody::Steered {}),
        (
            "answer",
            ReplyBody::Answer {
                text: "Three files.".to_owned(),
                outcome: TurnOutcome::Completed,
                usage: None,
            },
        ),
        (
            "answer-usage",
            ReplyBody::Answer {
                text: "Three files.".to_owned(),
                outcome: TurnOutcome::Completed,
                usage: Some(usage()),
            },
        ),
        (
            "approval-asked",
            ReplyBody::ApprovalAsked {
                approval_id: ApprovalId::new("approval-1").unwrap(),
                asking_agent: AgentName::new("librarian").unwrap(),
                tool_call_id: call(),
                tool_name: "bash".to_owned(),
                tool_source: "files".to_owned(),
                arguments: "{\"command\":\"ls\"}".to_owned(),
                arguments_left_out: 0,
                call_hash: "5e2f".to_owned(),
                expires_in_ms: 120_000,
                hints: None,
                rule: None,
            },
        ),
        ("resumed", ReplyBody::Resumed { on: InstanceId::new("agent-1").unwrap(), attempt: 2 }),
        (
            "delegation-progressed",
            ReplyBody::DelegationProgressed { task_id: task(), text: "2 of 3 read".to_owned() },
        ),
        (
            "delegation-ended",
            ReplyBody::DelegationEnded {
                task_id: task(),
                state: TaskState::Completed,
                preview: "The third one is cheaper.".to_owned(),
            },
        ),
        (
            "follow-up",
            ReplyBody::FollowUp {
                task_ids: vec![task()],
                text: "Take the third one.".to_owned(),
                outcome: TurnOutcome::Completed,
                usage: None,
            },
        ),
        (
            "task-status",
            ReplyBody::TaskStatus {
                status: "in-progress".to_owned(),
                done: "2 of 3 read".to_owned(),
                pending: "the third proposal".to_owned(),
                now: "reading it".to_owned(),
            },
        ),
        ("handed-off", ReplyBody::HandedOff { to: "librarian".to_owned() }),
        (
            "tool-started-cut",
            ReplyBody::ToolStarted {
                tool_call_id: call(),
                tool_name: name.clone(),
                arguments: "{\"command\":".to_owned(),
                arguments_left_out: 5,
            },
        ),
        (
            "tool-finished-result",
            ReplyBody::ToolFinished {
                tool_call_id: call(),
                tool_name: name.clone(),
                ran_on: None,
                elapsed_us: 1234,
                bytes: 56,
                error: None,
                executed: Executed::Yes,
                child_loop_id: None,
                stages: Some(CallStages { queue_ms: Some(3), start_ms: 1, run_ms: 12 }),
                result: Some("notes.md".to_owned()),
                result_left_out: 48,
            },
        ),
        (
            "approval-asked-rule",
            ReplyBody::ApprovalAsked {
                approval_id: ApprovalId::new("approval-1").unwrap(),
                asking_agent: AgentName::new("librarian").unwrap(),
                tool_call_id: call(),
                tool_name: "bash".to_owned(),
                tool_source: "files".to_owned(),
                arguments: "{}".to_owned(),
                arguments_left_out: 0,
                call_hash: "5e2f".to_owned(),
                expires_in_ms: 120_000,
                hints: Some(ToolHints::default()),
                rule: Some("rule 2: tool = \"bash\"".to_owned()),
            },
        ),
        (
            "approval-closed",
            ReplyBody::ApprovalClosed {
                approval_id: ApprovalId::new("approval-1").unwrap(),
                decision: ApprovalOutcome::Expired,
            },
        ),
        (
            "input-asked",
            ReplyBody::InputAsked {
                input_id: InputId::new("input-1").unwrap(),
                asking_agent: AgentName::new("librarian").unwrap(),
                tool_call_id: call(),
                request: input_request(),
                expires_in_ms: 120_000,
            },
        ),
        (
            "input-closed",
            ReplyBody::InputClosed {
                input_id: InputId::new("input-1").unwrap(),
                outcome: InputOutcome::Expired,
            },
        ),
    ];
    for (sequence, (kind, body)) in (1..).zip(bodies) {
        let is_final = matches!(body, ReplyBody::Answer { .. });
        check(&format!("agent-reply-{kind}.json"), &reply(sequence, is_final, body));
    }
}

pub(crate) fn task() -> TaskId {
    TaskId::new("3fa94c01d2be").unwrap()
}

pub(crate) fn usage() -> TurnUsage {
    let children = Spending { model_calls: 1, unpriced_calls: 1, ..Spending::default() };
    let turn = Spending {
        model_calls: 3,
        prompt_tokens: 1200,
        completion_tokens: 80,
        unmetered_calls: 1,
        tool_calls: 2,
        tool_bytes_in: 64,
        tool_bytes_out: 512,
        cost_micros: 2300,
        unpriced_calls: 1,
    };
    let session = Spending { model_calls: 5, ..turn };
    TurnUsage { turn, children, session }
}
