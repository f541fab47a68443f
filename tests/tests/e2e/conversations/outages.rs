//! The store of the conversations does not respond for a while.

use std::time::Duration;

use rockbot_contracts::SessionId;
use rockbot_testkit::postgres::PrivatePostgres;
use tokio::{task::spawn_blocking, time::timeout};

use super::harness::{GATED, Replicas, assert_completed, scene};

const JOB: &str = "the job";
/// Time without a store: longer than a lease, shorter than the patience of a turn.
const OUTAGE: Duration = Duration::from_secs(5);

/// Runs a blocking operation on a server.
async fn on_server(
    mut server: PrivatePostgres,
    operation: impl FnOnce(&mut PrivatePostgres) -> anyhow::Result<()> + Send + 'static,
) -> PrivatePostgres {
    let operation = spawn_blocking(move || operation(&mut server).map(|()| server));
    operation.await.expect("no panic").expect("done")
}

/// Runs a turn during which the store is unavailable, from the middle of its call.
async fn check_outage(
    begin: fn(&mut PrivatePostgres) -> anyhow::Result<()>,
    end: fn(&mut PrivatePostgres) -> anyhow::Result<()>,
) {
    let server = spawn_blocking(PrivatePostgres::start).await.expect("no panic");
    let server = server.expect("a server");
    let script = scene(JOB, &[GATED, "echo after >> lines"]);
    let replicas = Replicas::on_store(server.url(), &script).await;
    let agents = vec![replicas.start("agent-1").await, replicas.start("agent-2").await];
    let mut user = replicas.user().await;
    let message = user.send(&SessionId::generate(), JOB).await;
    let _command = replicas.gated_command().await;

    let server = on_server(server, begin).await;
    replicas.open_gate();
    let early = timeout(OUTAGE, user.answer(&message)).await;
    assert!(early.is_err(), "answered without a record: {early:?}");
    assert_eq!(replicas.lines(), ["gated"], "a call was sent without a record");
    let _server = on_server(server, end).await;
    assert_completed(&user.answer(&message).await, "done");
    assert_eq!(replicas.lines(), ["gated", "after"]);
    user.assert_calls_succeeded();
    replicas.finish(agents, user).await;
}

#[tokio::test]
async fn turn_waits_for_stalled_store() {
    check_outage(PrivatePostgres::pause, PrivatePostgres::resume).await;
}

#[tokio::test]
async fn turn_waits_for_crashed_store() {
    check_outage(PrivatePostgres::crash, PrivatePostgres::restart).await;
}
