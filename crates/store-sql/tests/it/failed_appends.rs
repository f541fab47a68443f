//! Appends that the database refuses, next to others.

use std::sync::Arc;

use rockbot_store::{Appended, LogPosition, StoreError, Stores};
use rockbot_testkit::{fixture::within_timeout, store_fixture::log_name};
use tokio::task::JoinSet;

/// Appends to many logs at once. The database must refuse entries with the value `bad`.
pub(crate) async fn check_failed_appends(stores: &Stores) {
    let mut tasks = JoinSet::new();
    for number in 0..60 {
        let log = Arc::clone(&stores.log);
        let second = if number % 10 == 0 { "bad" } else { "good" };
        tasks.spawn(async move {
            let name = log_name(&number.to_string());
            let outcome = log
                .append(&name, LogPosition::START, vec!["first".into(), second.into()], None)
                .await;
            (second, outcome, log.state(&name).await.expect("read"))
        });
    }
    for (kind, outcome, state) in within_timeout("the appends", tasks.join_all()).await {
        if kind == "bad" {
            assert!(matches!(outcome, Err(StoreError::Unusable { .. })), "{outcome:?}");
            assert_eq!(state, None);
        } else {
            assert_eq!(outcome.map(Appended::number), Ok(Ok(3)));
        }
    }
}
