//! The store of the conversations does not respond for a while.

use std::time::Duration;

use rockbot_contracts::{ReplyBody, SessionId, user::TurnOutcome};
use rockbot_testkit::postgres::PrivatePostgres;
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    endurance::size,
    harness::{GATED, Replicas, assert_completed, scene},
};

const JOB: &str = "the job";
/// Time without a store that is longer than the store timeout of a turn, which is 60 s.
const LONG_OUTAGE: Duration = Duration::from_secs(90);

/// Returns a time without a store: longer than a lease, shorter than the store timeout of a turn.
pub(super) fn short_outage() -> Duration {
    Duration::from_secs(size(5, 20))
}

/// Runs a blocking operation on a server.
pub(super) async fn on_server(
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
    let early = timeout(short_outage(), user.answer(&message)).await;
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

#[tokio::test]
async fn turn_is_suspended_while_store_is_away_for_too_long() {
    let server = spawn_blocking(PrivatePostgres::start).await.expect("no panic");
    let server = server.expect("a server");
    let script = scene(JOB, &[GATED, "echo after >> lines"]);
    let replicas = Replicas::on_store(server.url(), &script).await;
    let agents = vec![replicas.start("agent-1").await, replicas.start("agent-2").await];
    let (mut user, session) = (replicas.user().await, SessionId::generate());
    let message = user.send(&session, JOB).await;
    let _command = replicas.gated_command().await;

    let server = on_server(server, PrivatePostgres::crash).await;
    let start = Instant::now();
    replicas.open_gate();
    let other = user.send(&SessionId::generate(), JOB).await;
    // A message that is not recorded gets an error, and a recorded one no final reply.
    let answer = user.answer_within(LONG_OUTAGE, &other).await;
    let ReplyBody::Answer { outcome, text, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(outcome, TurnOutcome::Overloaded, "{text}");
    assert!(text.contains("store of conversations"), "{text}");
    user.suspended_within(LONG_OUTAGE, &message).await;
    assert_eq!(replicas.lines(), ["gated"], "a call was sent without a record");
    user.expect_no_reply(LONG_OUTAGE.saturating_sub(start.elapsed())).await;
    let _server = on_server(server, PrivatePostgres::restart).await;

    assert_completed(&user.answer(&message).await, "done");
    assert_eq!(replicas.lines(), ["gated", "after"]);
    let next = user.send(&session, JOB).await;
    assert_completed(&user.answer(&next).await, "done");
    replicas.finish(agents, user).await;
}
