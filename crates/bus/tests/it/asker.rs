//! The other end of an asker: hears questions, and answers them.

use rockbot_bus::{Bus, Consumer, MemoryBus, Publication, Settlement, Subscription};
use rockbot_contracts::Envelope;
use rockbot_testkit::fixture::{next_delivery, text_message, work_queue};

/// Where the questions arrive.
pub(crate) async fn questions(bus: &MemoryBus) -> Consumer {
    bus.consume(Subscription::new(work_queue("questions"), 10)).await.expect("consuming")
}

/// The next question, which is then gone.
pub(crate) async fn heard(questions: &mut Consumer) -> Envelope {
    let delivery = next_delivery(questions).await;
    let envelope = delivery.envelope().clone();
    delivery.settle(Settlement::Ack).await.expect("acked");
    envelope
}

pub(crate) async fn answer(bus: &MemoryBus, question: &Envelope) {
    let id = question.correlation_id.as_deref().expect("an id");
    let to = question.reply_to.clone().expect("a reply-to");
    let answer = Publication::mandatory(to, text_message("because").with_correlation_id(id));
    bus.publish(answer).await.expect("heard");
}
