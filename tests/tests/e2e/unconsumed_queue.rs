//! A handler whose queue is deleted, and which may not declare it again.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_testkit::vhost::Permissions;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::timeout;

use crate::{
    caller::Caller, fleet::ProcessGroup, http::wait_for_readiness, identity::SecuredFleet,
    process::Running,
};

/// The user of the handler.
const HANDLER: &str = "tool-handler";
/// Time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(55);
/// Time within which a call fails that no handler can receive.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Deletes the queue of the handler, which may not declare it from then on. Returns its permissions before.
async fn delete_queue(secured: &SecuredFleet) -> Permissions {
    let user = secured.name(HANDLER);
    let granted = secured.vhost.permissions(&user).await;
    let restricted = Permissions { configure: "^$".to_owned(), ..granted.clone() };
    secured.vhost.set_permissions(&user, &restricted).await;
    secured.vhost.delete_queue(&secured.name("tool.invoke")).await;
    granted
}

/// The consumer of a handler is not lost with its queue: it subscribes again until it can. Meanwhile the
/// process is not ready, and calls fail at once.
#[tokio::test]
async fn handler_without_its_queue_is_not_ready_and_consumes_it_again() {
    let secured = SecuredFleet::start().await;
    let mut command = secured.program("rockbot-tool-handler", HANDLER);
    command.env("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0");
    let mut handler = Running::start(command);
    let admin = handler.admin_address().await;
    handler.expect_log("ready").await;
    wait_for_readiness(&admin, 200).await;
    let caller = Caller::for_agent("assistant", secured.bus("agent.assistant").await, TIMEOUT);
    let running = tokio::spawn({
        let (caller, command) =
            (caller.clone(), "echo $$ > pid; until [ -e go ]; do sleep 0.05; done");
        async move { caller.call("bash", json!({"command": command})).await }
    });
    let _group = ProcessGroup::from_file(&secured.fleet, "pid").await;

    let granted = delete_queue(&secured).await;
    wait_for_readiness(&admin, 503).await;
    handler.expect_log("consumer failed to subscribe; retrying").await;
    let refused = timeout(AT_ONCE, caller.call("read_file", json!({"path": "notes.md"}))).await;
    let failure = refused.expect("an error at once").expect_err("the queue is gone");
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
    // The call in hand is finished and answered.
    secured.fleet.write("go", "");
    running.await.expect("no panic").expect("a result");
    assert!(handler.is_alive());

    secured.vhost.set_permissions(&secured.name(HANDLER), &granted).await;
    handler.expect_log("consumer resubscribed queue=\"tool.invoke\"").await;
    wait_for_readiness(&admin, 200).await;
    secured.fleet.write("notes.md", "# Notes");
    caller.call("read_file", json!({"path": "notes.md"})).await.expect("a result");
    handler.send(Signal::TERM);
    handler.wait().await.assert_code(0);
}

/// A process that cannot consume its queue ends in order all the same.
#[tokio::test]
async fn handler_without_its_queue_stops_in_order() {
    let secured = SecuredFleet::start().await;
    let mut handler = Running::start(secured.program("rockbot-tool-handler", HANDLER));
    handler.expect_log("ready").await;
    delete_queue(&secured).await;
    handler.expect_log("consumer failed to subscribe; retrying").await;
    handler.send(Signal::TERM);
    handler.wait().await.assert_code(0);
}
