//! A responder: receives requests and replies to them.

use rockbot_bus::{Bus, Consumer, MemoryBus, Publication, Settlement, Subscription};
use rockbot_contracts::Envelope;
use rockbot_testkit::fixture::{next_delivery, text_message, work_queue};

/// Consumes the queue of requests.
pub(crate) async fn consume_requests(bus: &MemoryBus) -> Consumer {
    bus.consume(Subscription::new(work_queue("requests"), 10)).await.expect("a consumer")
}

/// Receives and acknowledges the next request.
pub(crate) async fn receive(requests: &mut Consumer) -> Envelope {
    let delivery = next_delivery(requests).await;
    let envelope = delivery.envelope().clone();
    delivery.settle(Settlement::Ack).await.expect("acked");
    envelope
}

pub(crate) async fn reply_to(bus: &MemoryBus, request: &Envelope) {
    let id = request.correlation_id.as_deref().expect("an id");
    let to = request.reply_to.clone().expect("a reply-to");
    let reply = Publication::mandatory(to, text_message("pong").with_correlation_id(id));
    bus.publish(reply).await.expect("published");
}
