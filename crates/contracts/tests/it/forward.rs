//! Golden JSON of the messages between the processes of one agent.

use rockbot_contracts::{
    Envelope, ForwardOutcome, ForwardReceipt, ForwardedMessage, InstanceId, Message, SessionId,
    UserMessage, json::Limits,
};

use crate::fixtures::check;

#[test]
fn forwarded_messages_match_golden_json() {
    check(
        "forwarded-message.json",
        &ForwardedMessage {
            from: InstanceId::new("agent-0").unwrap(),
            sender: Some("rockbot.cli".to_owned()),
            message: UserMessage::new(SessionId::new("session-1").unwrap(), "Only the names."),
        },
    );
    check("forward-receipt.json", &ForwardReceipt { outcome: ForwardOutcome::Returned });
}

#[test]
fn unknown_outcome_returns_the_message() {
    let envelope =
        Envelope::raw(ForwardReceipt::TYPE, br#"{"outcome":"postponed","more":1}"#.to_vec());
    let receipt: ForwardReceipt = envelope.decode(Limits::default()).unwrap();
    assert_eq!(receipt.outcome, ForwardOutcome::Returned);
}
