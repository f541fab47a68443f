//! Messages with the id of an earlier one and another text.

use rockbot_agent::serve;
use rockbot_bus::{Consumer, Publication, Subscription};
use rockbot_contracts::{
    AgentReply, Envelope, InstanceId, MessageId, QueueSpec, ReplyBody, RoutingKey,
    topology::{user_message, user_response},
    user::TurnOutcome,
};

use crate::{
    harness::{AgentFixture, CannedModel, RecordingModel, message, settle},
    replica_harness::{Fleet, call_wait, next_answer, next_reply, reply_address, say, tester},
};

/// Publishes a message with a chosen id and reply address.
async fn publish(fleet: &Fleet, id: &MessageId, text: &str, reply_to: &RoutingKey) {
    let envelope = Envelope::from_payload(&message("s", text)).reply_to(reply_to.clone());
    let envelope = Envelope { message_id: id.clone(), ..envelope };
    fleet.bus.publish(Publication::mandatory(user_message(&tester()), envelope)).await.unwrap();
}

/// Consumes the replies at another address.
async fn other_client(fleet: &Fleet) -> (RoutingKey, Consumer) {
    let address = user_response(&InstanceId::new("other").unwrap());
    let queue = QueueSpec::reply(&address, vec![(&address).into()]);
    (address, fleet.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap())
}

async fn expect_rejection(replies: &mut Consumer) {
    loop {
        let AgentReply { body, is_final, .. } = next_reply(replies).await;
        if let ReplyBody::Answer { text, outcome, .. } = body {
            assert!(text.contains("another text") && text.contains("new id"), "{text}");
            assert!(is_final);
            assert_eq!(outcome, TurnOutcome::ModelFailed);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_text_under_the_id_of_a_running_turn_is_rejected() {
    let (fleet, id) = (Fleet::new(), MessageId::generate());
    let (mut replies, (other, mut others)) = (fleet.replies().await, other_client(&fleet).await);
    let replica = fleet.start("one", 4, [call_wait(), say("Done.")]).await;
    publish(&fleet, &id, "go", &reply_address()).await;
    replica.tool.wait_for_call().await;
    publish(&fleet, &id, "stop", &reply_address()).await;
    expect_rejection(&mut replies).await;
    publish(&fleet, &id, "stop", &other).await;
    expect_rejection(&mut others).await;

    replica.gate.add_permits(1);
    assert_eq!(next_answer(&mut replies).await, "Done.");
    settle().await;
    assert_eq!((replica.tool.calls(), replica.model.request_count()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn other_text_under_the_id_of_an_answered_message_is_rejected() {
    let fleet = Fleet::new();
    let replica = fleet.start("one", 4, [say("Done.")]).await;
    check_answered_message(&fleet).await;
    assert_eq!(replica.model.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn memory_conversation_rejects_other_text_under_an_answered_id() {
    let (fleet, model) = (Fleet::new(), RecordingModel::new(CannedModel::new([say("Done.")])));
    let agent = AgentFixture::new().agent(&model);
    let _inbox = serve(agent, fleet.bus.clone(), 4).await.unwrap();
    check_answered_message(&fleet).await;
    assert_eq!(model.request_count(), 1);
}

/// Sends a message to an agent that answers it once, and another text under its id.
async fn check_answered_message(fleet: &Fleet) {
    let id = MessageId::generate();
    let (mut replies, (other, mut others)) = (fleet.replies().await, other_client(fleet).await);
    publish(fleet, &id, "go", &reply_address()).await;
    assert_eq!(next_answer(&mut replies).await, "Done.");
    publish(fleet, &id, "stop", &reply_address()).await;
    expect_rejection(&mut replies).await;
    publish(fleet, &id, "stop", &other).await;
    expect_rejection(&mut others).await;
    // The first message keeps its answer.
    publish(fleet, &id, "go", &other).await;
    assert_eq!(next_answer(&mut others).await, "Done.");
}

#[tokio::test(start_paused = true)]
async fn other_text_that_reaches_another_process_is_rejected() {
    let (fleet, id) = (Fleet::new(), MessageId::generate());
    let mut replies = fleet.replies().await;
    // It takes no second message from the inbox.
    let first = fleet.start("one", 1, [call_wait(), say("Done.")]).await;
    publish(&fleet, &id, "go", &reply_address()).await;
    first.tool.wait_for_call().await;
    let second = fleet.start("two", 4, []).await;
    publish(&fleet, &id, "stop", &reply_address()).await;
    expect_rejection(&mut replies).await;
    first.gate.add_permits(1);
    assert_eq!(next_answer(&mut replies).await, "Done.");
    assert_eq!((first.tool.calls(), second.model.request_count()), (1, 0));
}
