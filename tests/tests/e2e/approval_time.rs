//! The time that a person takes to approve a call is not time of the call.

use std::time::{Duration, Instant};

use rockbot_agent::AgentClient;
use rockbot_contracts::{
    AgentName, ApprovalAnswer, ApprovalDecision, Executed, InstanceId, ReplyBody, SessionId,
    UserMessage, user::TurnOutcome,
};
use rockbot_testkit::fixture::within_timeout;

use crate::{
    agent_settings::{self, READS},
    fleet::Fleet,
    process::Running,
};

/// Time limit of the calls of the agent.
const LIMIT: Duration = Duration::from_secs(3);
/// A command that takes longer.
const WAIT: &str = "command=sleep 4";

/// Starts an agent whose calls need approval, and waits until it knows the tools of the handler.
async fn start_agent(fleet: &Fleet) -> Running {
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    let limit = LIMIT.as_secs();
    let definition = format!("system_prompt = 'Be brief.'\ntool_timeout = '{limit}s'\n");
    fleet.write("agents/assistant.toml", &definition);
    let mut agent = agent_settings::agent(fleet, READS);
    agent
        .env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"))
        .env("ROCKBOT_APPROVAL__POLICY", "ask");
    let mut agent = Running::start(agent);
    agent.expect_log("handler announced its tools").await;
    agent.expect_log("ready").await;
    agent
}

#[tokio::test]
async fn call_runs_after_an_approval_that_takes_longer_than_its_limit() {
    let fleet = agent_settings::fleet();
    let _handler = fleet.handler("handler-1").await;
    let _agent = start_agent(&fleet).await;
    let bus = fleet.bus(|_| {}).await;
    let client = AgentClient::connect(bus, &InstanceId::generate()).await.expect("a queue");
    let (assistant, session) =
        (AgentName::new("assistant").expect("a name"), SessionId::generate());
    let message = UserMessage::new(session.clone(), "Read my notes.");
    let mut replies = client.send(&assistant, &message).await.expect("sent");

    let (mut asked, mut finished) = (None, None);
    let (text, outcome) = within_timeout("the answer", async {
        loop {
            match replies.next().await.expect("a reply").expect("a reply").body {
                ReplyBody::ApprovalAsked { approval_id, call_hash, .. } => {
                    let since = Instant::now();
                    fleet.run(&["tools", "call", "bash", WAIT]).await.assert_code(0);
                    let answer = ApprovalAnswer {
                        session_id: session.clone(),
                        approval_id,
                        call_hash,
                        decision: ApprovalDecision::Allow,
                        reason: None,
                    };
                    client.answer_approval(&assistant, &answer).await.expect("sent");
                    asked = Some(since.elapsed());
                }
                ReplyBody::ToolFinished { elapsed_us, error, executed, ran_on, .. } => {
                    finished = Some((Duration::from_micros(elapsed_us), error, executed, ran_on));
                }
                ReplyBody::Answer { text, outcome, .. } => return (text, outcome),
                _ => {}
            }
        }
    })
    .await;

    assert!(asked.expect("an approval request") > LIMIT);
    let (elapsed, error, executed, ran_on) = finished.expect("the end of the call");
    assert_eq!((error, executed), (None, Executed::Yes));
    assert_eq!(ran_on.as_deref(), Some("tool-handler/handler-1"));
    assert!(elapsed < LIMIT, "{elapsed:?} with the approval");
    assert_eq!(outcome, TurnOutcome::Completed);
    assert!(text.contains("The bus carries each call."), "{text}");
}
