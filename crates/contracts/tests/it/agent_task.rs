//! Golden JSON of messages between agents, and messages of older peers.

use rockbot_contracts::{
    AgentCard, AgentName, AgentSkill, AgentTaskCancelRequest, AgentTaskError, AgentTaskErrorCode,
    AgentTaskRequest, AgentTaskResult, AgentTaskState, AgentTaskStatusUpdate, DiscoveryRefresh,
    Envelope, Executed, Message, MessageId, TaskArtifact, TaskBudget, TaskMessage, TaskPart,
    json::Limits,
};
use serde_json::json;

use crate::fixtures::{check, task, usage};

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

fn decode<M: Message>(body: &str) -> M {
    Envelope::raw(M::TYPE, body.as_bytes().to_vec()).decode(Limits::default()).unwrap()
}

#[test]
fn task_messages_match_golden_json() {
    let id = MessageId::new("018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f").unwrap();
    let data = Some(json!({"quarter": "Q3"}));
    let request = AgentTaskRequest {
        task_id: task(),
        skill: "generate-report".to_owned(),
        message: TaskMessage::new(TaskMessage::USER, "Write the report.", data).with_id(id),
        lineage: vec![agent("assistant")],
        depth: 1,
        budget: Some(TaskBudget {
            model_calls: 40,
            tokens: 400_000,
            cost_micros: None,
            tool_calls: 100,
            delegations: 6,
        }),
    };
    check("agent-task-request.json", &request);
    check("agent-task-cancel-request.json", &AgentTaskCancelRequest { task_id: task() });
    let status = AgentTaskStatusUpdate {
        task_id: task(),
        state: AgentTaskState::InputRequired,
        sequence: 1,
        message: Some(TaskMessage::new(TaskMessage::AGENT, "Which quarter?", None)),
    };
    check("agent-task-status-update.json", &status);
    let result = AgentTaskResult {
        task_id: task(),
        state: AgentTaskState::Completed,
        artifacts: vec![TaskArtifact {
            name: "result".to_owned(),
            parts: vec![TaskPart::text("Revenue grew.")],
        }],
        message: None,
        usage: Some(usage().turn),
    };
    check("agent-task-result.json", &result);
    let error = AgentTaskError {
        task_id: task(),
        code: AgentTaskErrorCode::SkillNotSupported,
        message: "no skill \"sing\"; use generate-report".to_owned(),
        is_retryable: false,
        executed: Executed::No,
        usage: None,
    };
    check("agent-task-error.json", &error);
}

#[test]
fn discovery_messages_match_golden_json() {
    let card = AgentCard {
        agent_name: agent("reporter"),
        description: "Writes reports.".to_owned(),
        version: "0.1.0".to_owned(),
        skills: vec![AgentSkill {
            id: "generate-report".to_owned(),
            name: "Reports".to_owned(),
            description: "Writes a report on a quarter.".to_owned(),
            tags: vec!["finance".to_owned()],
            examples: vec!["Report on Q3".to_owned()],
        }],
        is_deregistering: false,
    };
    check("agent-card.json", &card);
    check("discovery-refresh.json", &DiscoveryRefresh {});
}

#[test]
fn messages_of_older_peers_are_read() {
    let result: AgentTaskResult = decode(
        r#"{"taskId":"t","contextId":"c","state":3,"artifacts":null,
            "message":{"role":"agent","parts":[{"kind":"text","text":"done"}]}}"#,
    );
    assert_eq!((result.state, result.text().as_str()), (AgentTaskState::Completed, "done"));
    let error: AgentTaskError =
        decode(r#"{"taskId":"t","code":"out_of_cheese","message":"no","contextId":null}"#);
    assert_eq!(error.code, AgentTaskErrorCode::ExecutionFailed);
    assert_eq!(error.executed, Executed::Unknown);
    let request: AgentTaskRequest = decode(
        r#"{"taskId":"t","skill":"s","message":{"role":"user","parts":[{"kind":"url","url":"x"}]}}"#,
    );
    assert_eq!((request.depth, request.budget, request.message.text().as_str()), (0, None, ""));
}
