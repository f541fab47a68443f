//! Golden JSON of requests about conversations, and their tolerance.

use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, Executed, InstanceId, MessageId,
    SessionId, TaskState, TaskSummary, ToolErrorCode, ToolHints, ToolSource, UserFeedback,
    conversation::{
        AgentOverview, AgentTool, ConversationErrorCode, ConversationState, ConversationSummary,
        FeedbackRating, HistoryBody, HistoryCall, HistoryItem,
    },
    user::TurnOutcome,
};

use crate::fixtures::{call, check, session, task, usage};

fn message() -> MessageId {
    MessageId::new("message-1").unwrap()
}

#[test]
fn requests_match_golden_json() {
    let (session_id, message_id) = (session(), message());
    let after = Some(SessionId::new("session-0").unwrap());
    let requests = [
        ("list", ConversationRequest::List { after, limit: 50 }),
        ("summary", ConversationRequest::Summary { session_id: None }),
        ("history", ConversationRequest::History { session_id: session(), from: 17, limit: 100 }),
        ("message", ConversationRequest::Message { session_id: session(), message_id }),
        ("delete", ConversationRequest::Delete { session_id }),
        ("agent", ConversationRequest::Agent {}),
        ("tasks", ConversationRequest::Tasks {}),
        ("task", ConversationRequest::Task { task_id: task() }),
        ("cancel-task", ConversationRequest::CancelTask { task_id: task() }),
    ];
    for (action, request) in requests {
        check(&format!("conversation-request-{action}.json"), &request);
    }
    check(
        "user-feedback.json",
        &UserFeedback {
            session_id: session(),
            message_id: message(),
            rating: FeedbackRating::Negative,
            comment: "It read the wrong file.".to_owned(),
        },
    );
}

#[test]
fn responses_match_golden_json() {
    let open = ConversationSummary {
        session_id: session(),
        title: "Tidy up this folder".to_owned(),
        created_ms: 1_700_000_000_000,
        last_active_ms: 1_700_000_060_000,
        state: ConversationState::Open,
        turns: 2,
        usage: usage().turn,
        open_message: Some(message()),
    };
    let idle =
        ConversationSummary { state: ConversationState::Idle, open_message: None, ..open.clone() };
    let responses = [
        (
            "conversations",
            ConversationResponse::Conversations {
                conversations: vec![open],
                next: Some(session()),
            },
        ),
        ("summary", ConversationResponse::Summary { conversation: idle }),
        ("history", ConversationResponse::History { items: history(), next: Some(13) }),
        (
            "message",
            ConversationResponse::Message {
                text: "Tidy up this folder".to_owned(),
                is_answered: true,
            },
        ),
        ("agent", ConversationResponse::Agent { agent: overview() }),
        ("deleted", ConversationResponse::Deleted {}),
        ("tasks", ConversationResponse::Tasks { tasks: vec![open_task()] }),
        ("task", ConversationResponse::Task { task: ended_task(), result: "Cheaper.".to_owned() }),
        ("feedback-recorded", ConversationResponse::FeedbackRecorded {}),
        (
            "failed",
            ConversationResponse::Failed {
                code: ConversationErrorCode::NotFound,
                message: "the agent has no conversation session-2".to_owned(),
            },
        ),
    ];
    for (kind, response) in responses {
        check(&format!("conversation-response-{kind}.json"), &response);
    }
}

fn overview() -> AgentOverview {
    AgentOverview {
        name: AgentName::new("assistant").unwrap(),
        description: "Helps with files and questions.".to_owned(),
        model: "a-model".to_owned(),
        tools: vec![AgentTool {
            name: "read_file".to_owned(),
            source: ToolSource::Files,
            summary: "Reads a text file.".to_owned(),
            hints: ToolHints::READ_ONLY,
            is_announced: true,
        }],
        more_tools: 3,
        foreign_processes: 1,
    }
}

fn open_task() -> TaskSummary {
    TaskSummary {
        task_id: task(),
        session_id: session(),
        task_session_id: SessionId::new("subagent-3fa94c01d2be").unwrap(),
        description: "Read the third proposal".to_owned(),
        agent: None,
        state: TaskState::Running,
        created_ms: 1_700_000_000_000,
        ended_ms: None,
        deadline_ms: 1_700_000_600_000,
        usage: None,
        last_report: "2 of 3 read".to_owned(),
        is_folded: false,
    }
}

fn ended_task() -> TaskSummary {
    TaskSummary {
        state: TaskState::Completed,
        ended_ms: Some(1_700_000_060_000),
        usage: Some(usage().turn),
        is_folded: true,
        ..open_task()
    }
}

fn history() -> Vec<HistoryItem> {
    let tool_name = Some("bash".to_owned());
    let bodies = [
        HistoryBody::Message {
            message_id: Some(message()),
            text: "Tidy up this folder".to_owned(),
        },
        HistoryBody::Model {
            text: "Let me look.".to_owned(),
            calls: vec![HistoryCall {
                tool_call_id: call(),
                tool_name: "bash".to_owned(),
                arguments: r#"{"command":"ls"}"#.to_owned(),
            }],
        },
        HistoryBody::ApprovalAsked { tool_call_id: call(), tool_name: tool_name.clone() },
        HistoryBody::Decided { decision: "allow".to_owned() },
        HistoryBody::Resumed { on: InstanceId::new("agent-1").unwrap(), attempt: 2 },
        HistoryBody::Result {
            tool_call_id: call(),
            tool_name,
            text: "no reply".to_owned(),
            error: Some(ToolErrorCode::OutcomeUnknown),
            executed: Some(Executed::Unknown),
        },
        HistoryBody::Steered { message_id: None, text: "Only the names.".to_owned() },
        HistoryBody::Cancelled {},
        HistoryBody::Answer {
            text: "Three files.".to_owned(),
            outcome: TurnOutcome::Completed,
            usage: Some(usage()),
        },
        HistoryBody::Summary { text: "The user asked for the files.".to_owned() },
        HistoryBody::Feedback {
            message_id: message(),
            rating: FeedbackRating::Positive,
            comment: String::new(),
        },
        HistoryBody::PutDown { on: InstanceId::new("agent-0").unwrap() },
    ];
    let item = |(number, body)| HistoryItem {
        number,
        at_ms: (number == 1).then_some(1_700_000_000_000),
        body,
    };
    (1..).zip(bodies).map(item).collect()
}

#[test]
fn newer_kinds_are_read_as_other() {
    let item: HistoryItem =
        serde_json::from_str(r#"{"number":3,"kind":"painted","color":"red"}"#).unwrap();
    assert_eq!(item.body, HistoryBody::Other);
    let failed: ConversationResponse =
        serde_json::from_str(r#"{"kind":"failed","code":"too_late","message":"m"}"#).unwrap();
    let code = ConversationErrorCode::Other;
    assert_eq!(failed, ConversationResponse::Failed { code, message: "m".to_owned() });
}
