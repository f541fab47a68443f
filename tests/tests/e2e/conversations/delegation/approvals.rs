//! Approvals of calls in agents that sub-agents call.

use rockbot_contracts::ApprovalDecision;

use super::{SUMMARY, hands_on_one_line, team::Team};

const RULES: (&str, &str) = ("ROCKBOT_APPROVAL__RULES", r#"[{tool="bash",policy="ask"}]"#);

#[tokio::test]
async fn user_of_the_conversation_approves_a_call_two_levels_below() {
    let mut team = Team::start_with(hands_on_one_line, &[RULES]).await;
    team.ask("parts: a").await;
    let (decision, asking) = team.approval(ApprovalDecision::Allow).await;
    assert_eq!(asking, "helper");
    assert_eq!(decision.session_id, team.session);
    assert!(team.replicas.lines().is_empty());
    team.client.answer_approval(&team.replicas.agent, &decision).await.expect("sent");
    assert_eq!(team.follow_up().await.1, SUMMARY);
    assert_eq!(team.replicas.lines(), ["ran"]);
    team.stop().await;
}

#[tokio::test]
async fn call_without_a_decision_of_the_user_does_not_run() {
    let expiry = ("ROCKBOT_APPROVAL__EXPIRY", "1s");
    let mut team = Team::start_with(hands_on_one_line, &[RULES, expiry]).await;
    team.ask("parts: a").await;
    assert_eq!(team.follow_up().await.1, SUMMARY);
    assert!(team.replicas.lines().is_empty());
    let denied = team.model.asked();
    let denied = denied.iter().flat_map(|asked| &asked.results);
    assert!(
        denied.clone().any(|text| text.contains("not permitted")),
        "{:#?}",
        denied.collect::<Vec<_>>()
    );
    team.stop().await;
}
