//! Behavior of RabbitMQ from 4.2.6 on, emulated by a proxy in front of an older broker: it restricts passive
//! declares. From 4.3 on, a requeue by `nack` is not counted as a delivery.

use std::sync::Arc;

use rockbot_bus::{
    Bus, Publication, QueueReport, QueueState, Settlement, Subscription, report::QueueDepth,
};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{AgentName, QueueName, QueueSpec, identity::User, topology::tool_invoke};
use rockbot_testkit::{
    InspectionProxy,
    fixture::{TEST_TIMEOUT, next_delivery, text_message, within_timeout},
    inspection_proxy::InspectionRule as Rule,
};

use crate::identity::{SecuredBroker, assert_stranger_gets_the_remedy};

fn assistant() -> User {
    User::Agent(AgentName::new("assistant").expect("a name"))
}

/// Connects through a proxy.
async fn bus(broker: &SecuredBroker, user: &User, rule: Rule) -> (Arc<dyn Bus>, InspectionProxy) {
    let name = user.name("rockbot");
    let proxy = InspectionProxy::start(&broker.url(&name), "rockbot", user, rule).await;
    let config = RabbitConfig::new(proxy.url(), name);
    let bus = RabbitBus::start(&config).expect("a usable URL");
    bus.connected(TEST_TIMEOUT).await.expect("connected");
    (Arc::new(bus), proxy)
}

async fn queue_states(bus: &dyn Bus, queues: &[&QueueName]) -> Vec<QueueState> {
    let queues: Vec<_> = queues.iter().map(|name| (*name).clone()).collect();
    let report = bus.inspect(&queues).await.expect("a report");
    report.queues.iter().map(|QueueReport { state, .. }| *state).collect()
}

async fn call_is_dead_lettered(rule: Rule) {
    let broker = SecuredBroker::start().await;
    let (handler, _handler_proxy) = bus(&broker, &User::ToolHandler, rule).await;
    let (agent, _agent_proxy) = bus(&broker, &assistant(), rule).await;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
    let mut requests = handler.consume(work).await.expect("a handler may consume");
    let request = text_message("?").with_correlation_id("the-call");
    agent.publish(Publication::mandatory(tool_invoke(), request)).await.expect("published");
    let request = next_delivery(&mut requests).await;
    request.settle(Settlement::dead_letter("no")).await.expect("settled");

    let queue = QueueSpec::work(&tool_invoke()).name;
    let (operator, _operator_proxy) = bus(&broker, &User::Operator, rule).await;
    let dead_letters = Subscription::new(QueueSpec::dead_letters_of(&queue), 1);
    let mut dead_letters = operator.consume(dead_letters).await.expect("an operator may consume");
    let next = within_timeout("the dead letter", dead_letters.next()).await;
    let dead_letter = next.expect("a dead letter");
    assert_eq!(dead_letter.envelope().correlation_id.as_deref(), Some("the-call"));
}

#[tokio::test]
async fn fleet_works_if_inspection_requires_configure() {
    call_is_dead_lettered(Rule::MayDeclare).await;
}

#[tokio::test]
async fn fleet_works_if_inspection_requires_any_permission() {
    call_is_dead_lettered(Rule::AnyRight).await;
}

#[tokio::test]
async fn refused_inspection_differs_from_a_missing_queue() {
    let broker = SecuredBroker::start().await;
    let invoke = QueueSpec::work(&tool_invoke()).name;
    let inbox = QueueName::new("user.message.assistant").expect("a name");
    let (invoke_dlq, inbox_dlq) = (invoke.dead_letters(), inbox.dead_letters());
    // The definitions create dead-letter queues only.
    let (missing, refused) = (QueueState::Missing, QueueState::Refused);
    let empty = QueueState::Present(QueueDepth { ready: 0, consumers: 0 });
    for rule in [Rule::MayDeclare, Rule::AnyRight] {
        let with_right = |state| if rule == Rule::AnyRight { state } else { refused };
        for user in User::SERVICES.into_iter().chain([assistant()]) {
            let (bus, _proxy) = bus(&broker, &user, rule).await;
            let states = queue_states(&*bus, &[&invoke, &invoke_dlq, &inbox, &inbox_dlq]).await;
            let expected = match user {
                User::ToolHandler => [missing, with_right(empty), refused, refused],
                User::Agent(_) => [refused, refused, missing, with_right(empty)],
                User::Operator => [with_right(missing), empty, with_right(missing), empty],
                User::Gateway => [refused, refused, with_right(missing), refused],
                User::Cli => [with_right(missing), refused, with_right(missing), refused],
                _ => [refused; 4],
            };
            assert_eq!(*states, expected, "{user} under {rule:?}");
            bus.close().await;
        }
    }
}

#[tokio::test]
async fn refused_stranger_gets_the_remedy() {
    let broker = SecuredBroker::start().await;
    for rule in [Rule::MayDeclare, Rule::AnyRight] {
        let (bus, _proxy) = bus(&broker, &assistant(), rule).await;
        assert_stranger_gets_the_remedy(&*bus).await;
        bus.close().await;
    }
}

#[tokio::test]
async fn requeued_message_counts_as_delivered() {
    let broker = SecuredBroker::start().await;
    let (handler, proxy) = bus(&broker, &User::ToolHandler, Rule::AnyRight).await;
    let (agent, _agent_proxy) = bus(&broker, &assistant(), Rule::AnyRight).await;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
    let mut requests = handler.consume(work).await.expect("a handler may consume");
    agent.publish(Publication::mandatory(tool_invoke(), text_message("?"))).await.expect("sent");
    next_delivery(&mut requests).await.settle(Settlement::Retry).await.expect("settled");
    // A dropped delivery is requeued too.
    drop(next_delivery(&mut requests).await);
    let third = next_delivery(&mut requests).await;
    assert_eq!(third.attempt(), 3);
    third.settle(Settlement::Ack).await.expect("settled");
    assert_eq!(proxy.settlements(), (2, 0));
}
