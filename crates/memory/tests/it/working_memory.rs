//! What agents put aside: whose it is, for how long, and how much.

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, ready};
use rockbot_contracts::{AgentName, SessionId};
use rockbot_memory::{
    MemoryOwner, Saving, WorkingMemory, WorkingMemoryError,
    working_memory::{GUIDE, MemorySearch, WorkingMemoryLimits, working_memory_tools},
};
use rockbot_store::{
    Clock, Entry, Expected, Key, ManualClock, MemoryStore, Prefix, Store, StoreError, Timestamp,
    Write, Written,
};
use rockbot_store_sql::SqliteStore;
use rockbot_tools::{ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolRegistry};
use serde_json::{Value, json};

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Clock::System))
}

fn memory() -> WorkingMemory {
    WorkingMemory::new(store())
}

fn owner(agent: &str, session: &str) -> MemoryOwner {
    let (agent, session) = (AgentName::new(agent).unwrap(), SessionId::new(session).unwrap());
    MemoryOwner { agent, session }
}

async fn save(memory: &WorkingMemory, owner: &MemoryOwner, key: &str, data: &str) {
    memory.save(owner, key, data, Saving::default()).await.unwrap();
}

async fn keys(memory: &WorkingMemory, owner: &MemoryOwner, namespace: Option<&str>) -> Vec<String> {
    let entries = memory.list(owner, namespace).await.unwrap();
    entries.into_iter().map(|entry| entry.key).collect()
}

fn search(query: &str) -> MemorySearch {
    MemorySearch { query: query.to_owned(), category: None, tags: Vec::new(), most: 5 }
}

async fn call(memory: &WorkingMemory, tool: &str, arguments: Value) -> Result<String, ToolFailure> {
    let registry = Arc::new(ToolRegistry::new());
    for tool in working_memory_tools(memory) {
        registry.register(tool).unwrap();
    }
    let MemoryOwner { agent, session } = owner("assistant", "one");
    let context = ToolContext::new(tool, session, agent);
    let call = ToolCall { context, arguments: arguments.to_string().into() };
    ToolExecutor::new(registry).execute(call).await.map(|result| result.to_text().into_owned())
}

#[tokio::test]
async fn neither_another_conversation_nor_another_agent_reaches_an_entry() {
    let memory = memory();
    let own = owner("assistant", "one");
    save(&memory, &own, "notes", "mine").await;
    save(&memory, &own, "plans/july", "ours").await;
    let others = [owner("assistant", "two"), owner("assistant", "on"), owner("writer", "one")];
    for other in &others {
        assert_eq!(memory.get(other, "notes").await.unwrap(), None);
        assert!(!memory.delete(other, "notes").await.unwrap());
        assert!(memory.search(other, search("mine")).await.unwrap().is_empty());
        assert!(!keys(&memory, other, None).await.contains(&"session/one/notes".to_owned()));
    }
    for other in &others[..2] {
        let foreign = memory.get(other, "session/one/notes").await.unwrap_err();
        assert_eq!(foreign, WorkingMemoryError::Foreign);
        let saved = memory.save(other, "session/one/notes", "", Saving::default()).await;
        assert_eq!(saved.unwrap_err(), WorkingMemoryError::Foreign);
        assert!(memory.list(other, Some("session/one")).await.is_err());
        assert_eq!(memory.get(other, "plans/july").await.unwrap().as_deref(), Some("ours"));
    }
    assert_eq!(memory.get(&others[2], "session/one/notes").await.unwrap(), None);
    assert_eq!(memory.get(&others[2], "plans/july").await.unwrap(), None);
    assert_eq!(memory.get(&own, "session/one/notes").await.unwrap().as_deref(), Some("mine"));
}

#[tokio::test]
async fn a_namespace_holds_whole_parts_of_a_key() {
    let (memory, own) = (memory(), owner("assistant", "one"));
    for key in ["a/b/x", "a/bc", "a/b-c/x", "note", "session/one/a/b"] {
        save(&memory, &own, key, "").await;
    }
    assert_eq!(keys(&memory, &own, Some("a/b")).await, ["a/b/x"]);
    assert_eq!(keys(&memory, &own, Some("a/b/")).await, ["a/b/x"]);
    assert_eq!(keys(&memory, &own, Some("a")).await, ["a/b-c/x", "a/b/x", "a/bc"]);
    let own_ones = ["session/one/a/b", "session/one/note"];
    assert_eq!(keys(&memory, &own, Some("session/one")).await, own_ones);
    assert_eq!(keys(&memory, &own, None).await.len(), 5);
}

#[tokio::test]
async fn an_entry_is_gone_after_its_time() {
    let hand = ManualClock::new();
    let memory = WorkingMemory::new(Arc::new(MemoryStore::new(Clock::from(&hand))));
    let own = owner("assistant", "one");
    let short = Saving::for_a_time(Duration::from_secs(60));
    memory.save(&own, "short", "x", short).await.unwrap();
    save(&memory, &own, "usual", "x").await;
    hand.advance(Duration::from_secs(60));
    assert_eq!(memory.get(&own, "short").await.unwrap(), None);
    assert_eq!(keys(&memory, &own, None).await, ["session/one/usual"]);
    hand.advance(Duration::from_secs(60 * 60));
    assert!(keys(&memory, &own, None).await.is_empty());
    let for_ever = Saving::for_a_time(Duration::MAX);
    let entry = memory.save(&own, "long", "x", for_ever).await.unwrap();
    let kept = entry.expires_at.unwrap().since(entry.saved_at);
    assert_eq!(kept, memory.limits().max_ttl);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_in_words_and_nothing_is_dropped() {
    let limits =
        WorkingMemoryLimits { entry_bytes: 10, entries: 3, bytes: 25, ..Default::default() };
    let memory = WorkingMemory::with_limits(store(), limits);
    let own = owner("assistant", "one");
    let refused = memory.save(&own, "a", "01234567890", Saving::default()).await.unwrap_err();
    assert_eq!(refused, WorkingMemoryError::TooLarge { bytes: 11, limit: 10 });
    save(&memory, &own, "a", "0123456789").await;
    save(&memory, &own, "b", "0123456789").await;
    let refused = memory.save(&own, "c", "012345", Saving::default()).await.unwrap_err();
    assert!(refused.to_string().contains("more than the 5 that are free"), "{refused}");
    save(&memory, &own, "c", "01234").await;
    // What is replaced makes room for itself.
    save(&memory, &own, "b", "9876543210").await;
    let refused = memory.save(&own, "d", "", Saving::default()).await.unwrap_err();
    assert!(refused.to_string().contains("3 entries, at most 3"), "{refused}");
    assert_eq!(keys(&memory, &own, None).await.len(), 3);
    save(&memory, &owner("assistant", "two"), "a", "0123456789").await;
    assert!(memory.delete(&own, "a").await.unwrap());
    save(&memory, &own, "d", "0123456789").await;
}

#[tokio::test]
async fn replaced_and_deleted_data_leaves_nothing_behind() {
    let (store, own) = (store(), owner("assistant", "one"));
    let memory = WorkingMemory::new(store.clone());
    for data in ["one", "two", "three"] {
        save(&memory, &own, "notes", data).await;
    }
    let kept = |kind| {
        let (store, prefix) = (store.clone(), rockbot_store::Prefix::new([kind]).unwrap());
        async move { store.list(&prefix, None, 100).await.unwrap().len() }
    };
    assert_eq!((kept("working-memory").await, kept("working-memory-data").await), (1, 1));
    assert!(memory.delete(&own, "notes").await.unwrap());
    assert!(!memory.delete(&own, "notes").await.unwrap());
    assert_eq!((kept("working-memory").await, kept("working-memory-data").await), (0, 0));
}

#[tokio::test]
async fn processes_that_save_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let own = owner("assistant", "one");
    let mut savers = tokio::task::JoinSet::new();
    for process in 0..2 {
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&path, Clock::System).await.unwrap());
        let (memory, own) = (WorkingMemory::new(store), own.clone());
        savers.spawn(async move {
            for one in 0..20 {
                let data = format!("{process} {one}");
                save(&memory, &own, &format!("own{process}-{one}"), &data).await;
                save(&memory, &own, "both", &data).await;
            }
        });
    }
    while let Some(saved) = savers.join_next().await {
        saved.unwrap();
    }
    let again: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, Clock::System).await.unwrap());
    let memory = WorkingMemory::new(again);
    assert_eq!(keys(&memory, &own, None).await.len(), 41);
    assert_eq!(memory.get(&own, "own1-19").await.unwrap().as_deref(), Some("1 19"));
    assert!(memory.get(&own, "both").await.unwrap().is_some());
}

#[tokio::test]
async fn limits_hold_for_calls_that_come_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("store.db"), Clock::System).await.unwrap();
    let limits = WorkingMemoryLimits { entries: 3, ..WorkingMemoryLimits::default() };
    let memory = WorkingMemory::with_limits(Arc::new(store), limits);
    let mut savers = tokio::task::JoinSet::new();
    for one in 0..12 {
        let memory = memory.clone();
        savers.spawn(async move {
            let own = owner("assistant", "one");
            memory.save(&own, &format!("key-{one}"), "data", Saving::default()).await.is_ok()
        });
    }
    let saved = savers.join_all().await;
    assert_eq!(saved.into_iter().filter(|saved| *saved).count(), 3);
    assert_eq!(keys(&memory, &owner("assistant", "one"), None).await.len(), 3);
}

/// A store that removes no data of working memory.
struct KeepsData(MemoryStore);

impl Store for KeepsData {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.0.get(key)
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        self.0.write(write)
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        if key.as_str().starts_with("working-memory-data/") {
            let reason = "a test".to_owned();
            return Box::pin(ready(Err(StoreError::Unavailable { reason })));
        }
        self.0.remove(key, expected)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
        self.0.list(prefix, after, limit)
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.0.sweep(limit)
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.0.now()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

#[tokio::test]
async fn what_was_done_is_told_as_done_though_old_data_stays() {
    let memory = WorkingMemory::new(Arc::new(KeepsData(MemoryStore::new(Clock::System))));
    let own = owner("assistant", "one");
    save(&memory, &own, "notes", "old").await;
    save(&memory, &own, "notes", "new").await;
    assert_eq!(memory.get(&own, "notes").await.unwrap().as_deref(), Some("new"));
    assert!(memory.delete(&own, "notes").await.unwrap());
    assert_eq!(memory.get(&own, "notes").await.unwrap(), None);
}

#[tokio::test]
async fn a_search_finds_words_of_the_data_and_keeps_to_category_and_tags() {
    let (memory, own) = (memory(), owner("assistant", "one"));
    let report = Saving {
        category: Some("report".to_owned()),
        tags: vec!["q3".to_owned()],
        ..Saving::default()
    };
    let text = format!("{} revenue grew by nine percent", "filler ".repeat(300));
    memory.save(&own, "finance", &text, report).await.unwrap();
    save(&memory, &own, "plans/revenue", "grow").await;
    let hits = memory.search(&own, search("revenue")).await.unwrap();
    assert_eq!(hits.len(), 2);
    assert_eq!((hits[0].entry.key.as_str(), hits[0].relevance), ("plans/revenue", 1.0));
    assert!(hits[1].excerpt.contains("revenue grew by nine"), "{}", hits[1].excerpt);
    let only = |category: Option<&str>, tag: &str| MemorySearch {
        category: category.map(str::to_owned),
        tags: vec![tag.to_owned()],
        ..search("revenue")
    };
    assert_eq!(memory.search(&own, only(Some("report"), "q3")).await.unwrap().len(), 1);
    assert!(memory.search(&own, only(None, "q4")).await.unwrap().is_empty());
    let narrow = memory.search(&own, only(Some("report"), "q3")).await.unwrap();
    assert!(narrow[0].excerpt.contains("revenue grew by nine"), "{}", narrow[0].excerpt);
}

#[tokio::test]
async fn the_tools_save_get_list_search_and_delete() {
    let memory = memory();
    let arguments = json!({"key": "notes", "data": "a bus", "category": "draft", "tags": ["x"]});
    let saved = call(&memory, "save_to_working_memory", arguments).await.unwrap();
    assert_eq!(saved, "Saved: session/one/notes (5 bytes, category draft, tags x)");
    let read = call(&memory, "get_from_working_memory", json!({"key": "notes"})).await;
    assert_eq!(read.unwrap(), "a bus");
    let listed = call(&memory, "list_working_memory", json!({})).await.unwrap();
    assert_eq!(listed, "- session/one/notes (5 bytes, category draft, tags x)");
    let found = call(&memory, "search_working_memory", json!({"query": "bus"})).await.unwrap();
    assert!(found.contains("relevance 1.00\n  a bus"), "{found}");
    let gone = call(&memory, "delete_from_working_memory", json!({"key": "notes"})).await;
    assert_eq!(gone.unwrap(), "Deleted.");
    for tool in ["get_from_working_memory", "delete_from_working_memory"] {
        let missed = call(&memory, tool, json!({"key": "notes"})).await.unwrap_err();
        assert!(missed.to_string().contains("list_working_memory"), "{missed}");
    }
    let empty = call(&memory, "list_working_memory", json!({"namespace": "x"})).await;
    assert_eq!(empty.unwrap(), "There is nothing.");
}

#[tokio::test]
async fn identity_never_comes_from_arguments() {
    let memory = memory();
    save(&memory, &owner("assistant", "two"), "notes", "secret").await;
    let foreign = json!({"key": "session/two/notes"});
    let refused = call(&memory, "get_from_working_memory", foreign).await.unwrap_err();
    assert_eq!(refused.code(), rockbot_contracts::ToolErrorCode::NotPermitted);
    for name in ["session_id", "agent", "owner"] {
        let arguments = json!({"key": "notes", name: "two"});
        let refused = call(&memory, "get_from_working_memory", arguments).await.unwrap_err();
        assert_eq!(refused.code(), rockbot_contracts::ToolErrorCode::InvalidArguments);
    }
}

#[tokio::test]
async fn the_inventory_tells_the_newest_first_within_its_bound() {
    let hand = ManualClock::new();
    let memory = WorkingMemory::new(Arc::new(MemoryStore::new(Clock::from(&hand))));
    let own = owner("assistant", "one");
    assert_eq!(memory.inventory(&own, 1000).await.unwrap(), None);
    for at in 0..50 {
        save(&memory, &own, &format!("plans/number-{at}"), "x").await;
        hand.advance(Duration::from_secs(1));
    }
    let told = memory.inventory(&own, 1000).await.unwrap().unwrap();
    assert!(told.len() <= 1000, "{}", told.len());
    assert_eq!(told.lines().nth(1), Some("- plans/number-49 (1 bytes)"));
    assert!(told.lines().last().unwrap().contains("more; list_working_memory"), "{told}");
}

#[test]
fn the_guide_is_short_and_mentions_what_exists() {
    let tools = working_memory_tools(&memory());
    // The guide sends what must last to the tools of long-term memory, which are the agent's.
    let problems = GUIDE.problems(tools.iter().map(|tool| tool.registration()));
    assert_eq!(problems, ["working-memory mentions save_memory: there is none"]);
}
