//! Decisions on approval requests, as clients name them.

use rockbot_contracts::ApprovalDecision;

/// Parses a decision. On the bus, an unknown one is a denial; here it is a mistake of the client.
pub(crate) fn parse_decision(text: &str) -> Option<ApprovalDecision> {
    match text {
        "allow" => Some(ApprovalDecision::Allow),
        "allow_in_session" => Some(ApprovalDecision::AllowInSession),
        "deny" => Some(ApprovalDecision::Deny),
        _ => None,
    }
}
