//! Deletion of both exchanges with all of their bindings.

use std::time::Duration;

use lapin::{
    ExchangeKind,
    options::{ExchangeDeclareOptions, ExchangeDeleteOptions},
    types::FieldTable,
};
use rockbot_bus::PublishError;
use rockbot_testkit::fixture::test_broker_url;
use tokio::time::{interval, timeout};

use crate::test_process::{BACK_WITHIN, PUBLISH_TIMEOUT, TestProcess};

fn exchanges(process: &TestProcess) -> [(String, ExchangeKind); 2] {
    let namespace = &process.namespace;
    [(namespace.clone(), ExchangeKind::Topic), (format!("{namespace}.dlx"), ExchangeKind::Direct)]
}

async fn delete_exchanges(process: &TestProcess) {
    let operator = process.operator().await;
    for (name, _) in exchanges(process) {
        let delete = operator.exchange_delete(name.into(), ExchangeDeleteOptions::default());
        delete.await.expect("deleted");
    }
}

/// Fails if an exchange is missing. The broker ignores the kind of a passive declaration.
async fn assert_exchanges_exist(process: &TestProcess) {
    let operator = process.operator().await;
    let passive = ExchangeDeclareOptions { passive: true, ..Default::default() };
    for (name, kind) in exchanges(process) {
        let none = FieldTable::default();
        let found = operator.exchange_declare(name.as_str().into(), kind, passive, none).await;
        assert!(found.is_ok(), "{name} was not declared again: {found:?}");
    }
}

#[tokio::test]
async fn publish_declares_deleted_exchanges_again() {
    let local = TestProcess::connect(&test_broker_url()).await;
    let remote = local.join(&test_broker_url()).await;
    let mut recorder = remote.start_recorder("jobs").await;
    local.publish_until_confirmed("jobs", "before").await;
    recorder.receives("before").await;
    delete_exchanges(&local).await;
    let published = local.publish("jobs", "after", PUBLISH_TIMEOUT).await;
    published.expect("sent again to the new exchange");
    recorder.receives("after").await;
    assert_exchanges_exist(&local).await;
}

#[tokio::test]
async fn consumers_rebind_without_a_cancel_notification() {
    let local = TestProcess::connect(&test_broker_url()).await;
    let remote = local.join(&test_broker_url()).await;
    let mut recorder = remote.start_recorder("jobs").await;
    delete_exchanges(&local).await;
    // Until the queue is bound again, a publish is unroutable at once.
    let published = timeout(BACK_WITHIN, async {
        let mut retry = interval(Duration::from_millis(20));
        loop {
            retry.tick().await;
            match local.publish("jobs", "after", PUBLISH_TIMEOUT).await {
                Ok(()) => break,
                Err(PublishError::Unroutable { .. } | PublishError::Disconnected { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    published.await.expect("bound again in time");
    recorder.receives("after").await;
    assert_exchanges_exist(&local).await;
}
