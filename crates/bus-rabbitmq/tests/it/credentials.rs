//! Wrong passwords and closed connections.

use std::time::Duration;

use rockbot_bus::{Bus, ConsumeError};
use rockbot_testkit::fixture::{fresh_namespace, test_broker_url, within_timeout};

use crate::{
    management,
    test_process::{BACK_WITHIN, SHORT, TestProcess, start},
};

/// Returns the test broker's URL for a user with the password `right`.
fn url_of(user: &str) -> String {
    let url = test_broker_url();
    let (_, address) = url.rsplit_once('@').expect("a URL with a user");
    format!("amqp://{user}:right@{address}")
}

async fn set_password(user: &str, password: &str) {
    let body = format!(r#"{{"password":"{password}","tags":""}}"#);
    management::request("PUT", &format!("users/{user}"), &body).await;
}

async fn permit(user: &str) {
    let all = r#"{"configure":".*","write":".*","read":".*"}"#;
    management::request("PUT", &format!("permissions/%2f/{user}"), all).await;
}

#[tokio::test]
async fn wrong_password_is_reported_until_corrected() {
    let user = fresh_namespace();
    set_password(&user, "wrong").await;
    permit(&user).await;
    let bus = start(&url_of(&user), &fresh_namespace());
    match bus.connected(SHORT * 3).await {
        Err(ConsumeError::Disconnected { reason }) => {
            assert!(reason.contains("check the user, the password"), "{reason}");
            assert!(!reason.contains("right@"), "no password in an error: {reason}");
        }
        other => panic!("{other:?}"),
    }
    set_password(&user, "right").await;
    bus.connected(BACK_WITHIN).await.expect("connected by a retry");
    assert!(bus.is_ready());
    management::request("DELETE", &format!("users/{user}"), "").await;
}

#[tokio::test]
async fn connection_closed_by_operator_reconnects() {
    let user = fresh_namespace();
    set_password(&user, "right").await;
    permit(&user).await;
    let process = TestProcess::connect(&url_of(&user)).await;
    let mut recorder = process.start_recorder("jobs").await;
    process.publish_until_confirmed("jobs", "before").await;
    set_password(&user, "wrong").await;
    let connections = format!("connections/username/{user}");
    // Only a listed connection is closed, and the broker lists it some time after it was opened.
    within_timeout("the connection is listed", async {
        // Not faster: a busy management API falls behind.
        let mut retry = tokio::time::interval(Duration::from_millis(250));
        while management::request("GET", &connections, "").await == "[]" {
            retry.tick().await;
        }
    })
    .await;
    management::request("DELETE", &connections, "").await;
    process.wait_until_interrupted().await;
    let error = process.publish("jobs", "lost", SHORT).await.expect_err("no connection");
    assert!(!error.to_string().is_empty());
    set_password(&user, "right").await;
    process.wait_until_ready("the password was corrected").await;
    process.publish_until_confirmed("jobs", "after").await;
    recorder.received(&["before".to_owned(), "after".to_owned()]).await;
    management::request("DELETE", &format!("users/{user}"), "").await;
}
