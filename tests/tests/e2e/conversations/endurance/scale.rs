//! Many conversations in a store, and long ones.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use rockbot_contracts::{MessageId, SessionId, ToolCallId};
use rockbot_store::{Appended, LogPosition, Stores};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{load::TurnClient, print_times, size};
use crate::{
    conversations::harness::{Replicas, scene},
    process::memory_kib,
};

/// A message whose turn calls a command, and one whose turn does not.
const JOB: &str = "the job";
const CHAT: &str = "a word";
/// Conversations that are continued at a time.
const IN_FLIGHT: usize = 32;
/// Appends of a test at a time.
const APPENDS: usize = 32;
const MIB: usize = 1024 * 1024;

/// An agent with a recorded turn that other conversations are made of.
struct Archive {
    replicas: Replicas,
    agent: crate::process::Running,
    client: TurnClient,
    stores: Stores,
    turn: Vec<Value>,
}

impl Archive {
    async fn new() -> Self {
        let script = scene(JOB, &["echo some output"]) + &scene(CHAT, &[]);
        let replicas = Replicas::new(&script).await;
        let agent = replicas.start("agent-1").await;
        let client = TurnClient::connect(&replicas).await;
        let session = SessionId::generate();
        assert!(client.turn(session.clone(), JOB).await.is_completed());
        let stores = replicas.open_store().await;
        let turn = replicas.entries(&stores, &session).await;
        Self { replicas, agent, client, stores, turn }
    }

    /// Returns the entries of another turn, whose result has `padding` additional bytes.
    fn copy_of_turn(&self, padding: usize) -> Vec<Value> {
        let (message, call) = (MessageId::generate(), ToolCallId::generate());
        let change = |entry: &Value| {
            let mut entry = entry.clone();
            match entry["kind"].as_str() {
                Some("message") => entry["id"] = json!(message),
                Some("model") => entry["calls"][0]["call"] = json!(call),
                Some("result") => {
                    entry["call"] = json!(call);
                    entry["text"] = json!("x".repeat(padding) + entry["text"].as_str().unwrap());
                }
                _ => {}
            }
            entry
        };
        self.turn.iter().map(change).collect()
    }

    /// Stores a conversation of turns whose results have `padding` additional bytes.
    async fn store(&self, turns: usize, padding: usize) -> SessionId {
        let session = SessionId::generate();
        let name = self.replicas.log_name(&session);
        let mut next = LogPosition::START;
        for _ in 0..turns {
            let entries = self.copy_of_turn(padding).into_iter();
            let entries = entries.map(|entry| entry.to_string().into()).collect();
            let appended = self.stores.log.append(&name, next, entries, None).await;
            let Ok(Appended::Done { next: after }) = appended else { panic!("{appended:?}") };
            next = after;
        }
        session
    }

    async fn finish(self) {
        self.stores.close().await;
        self.replicas.stop(vec![self.agent]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenth_of_all_conversations_continues_in_a_minute() {
    let stored = size(1000, 10_000);
    let archive = Archive::new().await;
    let appends = stream::iter(0..stored).map(|_| archive.store(1, 0));
    let sessions: Vec<_> = appends.buffer_unordered(APPENDS).collect().await;
    let start = Instant::now();
    let continued: Vec<_> = sessions.into_iter().step_by(10).take(stored / 10).collect();
    let turns = archive.client.one_each(continued, IN_FLIGHT, CHAT).await;
    let time = start.elapsed();
    assert!(turns.iter().all(super::load::EndedTurn::is_completed), "{turns:#?}");
    println!("{} of {stored} conversations continued in {time:?}", turns.len());
    print_times("turns", turns.iter().map(|turn| turn.time).collect());
    assert!(time < Duration::from_secs(60), "{time:?}");
    archive.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_conversation_continues() {
    let archive = Archive::new().await;
    let turns = size(1000, 5000) / archive.turn.len();
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for _ in 0..size(1, 7) {
        for (turns, times) in [(1, &mut short), (turns, &mut long)] {
            let session = archive.store(turns, 0).await;
            let turn = archive.client.turn(session, CHAT).await;
            assert!(turn.is_completed(), "{turn:?}");
            times.push(turn.time);
        }
    }
    let entries = turns * archive.turn.len();
    print_times(&format!("turn of a conversation of {} entries", archive.turn.len()), short);
    print_times(&format!("turn of a conversation of {entries} entries"), long);
    archive.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_conversation_does_not_delay_others() {
    let archive = Archive::new().await;
    let large = archive.store(size(16, 112), MIB - 64 * 1024).await;
    let before = memory_kib(archive.agent.pid(), "VmRSS");
    let large = {
        let client = archive.client.clone();
        tokio::spawn(async move { client.turn(large, CHAT).await })
    };
    let mut others = Vec::new();
    while !large.is_finished() {
        let turn = archive.client.turn(SessionId::generate(), CHAT).await;
        assert!(turn.is_completed(), "{turn:?}");
        others.push(turn.time);
    }
    let large = large.await.expect("no panic");
    let after = memory_kib(archive.agent.pid(), "VmRSS");
    print_times("turns of other conversations", others);
    println!("turn of the large conversation: {large:?}");
    println!("resident memory: {before} KiB before, {after} KiB after");
    assert!(large.is_completed(), "{large:?}");
    archive.finish().await;
}
