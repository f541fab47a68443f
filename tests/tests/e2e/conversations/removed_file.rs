//! The SQLite file of the conversations is removed under a running agent.

use std::{fs, time::Duration};

use rockbot_contracts::{ReplyBody, SessionId, user::TurnOutcome};
use rustix::process::Signal;

use super::harness::{GATED, Replicas, assert_completed, scene};

const JOB: &str = "the job";
/// The store timeout of a turn, 60 s, and some time to answer.
const LIMIT: Duration = Duration::from_secs(90);

#[tokio::test]
async fn turn_is_suspended_when_file_of_store_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("conversations.db");
    let script = scene(JOB, &[GATED, "echo after >> lines"]);
    let replicas = Replicas::on_store(format!("sqlite:{}", file.display()), &script).await;
    let mut agent = replicas.start("agent-1").await;
    let mut user = replicas.user().await;
    let message = user.send(&SessionId::generate(), JOB).await;
    let _command = replicas.gated_command().await;

    for entry in fs::read_dir(folder.path()).expect("a folder") {
        fs::remove_file(entry.expect("a file").path()).expect("removed");
    }
    // The agent renews its lease while the command runs.
    agent.expect_log("database file removed or replaced").await;
    replicas.open_gate();
    let other = user.send(&SessionId::generate(), JOB).await;
    let answer = user.answer_within(LIMIT, &other).await;
    let ReplyBody::Answer { outcome, text, .. } = answer else { panic!("{answer:?}") };
    assert_ne!(outcome, TurnOutcome::Completed, "{text}");
    assert!(text.contains("store of conversations"), "{text}");
    user.suspended_within(LIMIT, &message).await;
    assert_eq!(replicas.lines(), ["gated"], "a call was sent without a record");

    // Another process creates a new file. The first one settles its messages before it ends.
    agent.send(Signal::TERM);
    agent.wait().await;
    let restarted = replicas.start("agent-1").await;
    let next = user.send(&SessionId::generate(), JOB).await;
    assert_completed(&user.answer(&next).await, "done");
    assert_eq!(replicas.lines(), ["gated", "gated", "after"]);
    replicas.stop(vec![restarted]).await;
}
