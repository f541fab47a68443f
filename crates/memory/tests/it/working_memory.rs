//! Ownership, expiry, limits, search and tools of working memory.

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, ready};
use rockbot_contracts::{AgentName, SessionId, TaskId};
use rockbot_memory::{
    MemoryOwner, SaveOptions, WorkingMemory, WorkingMemoryError,
    working_memory::{GUIDE, MemorySearch, WorkingMemoryLimits, working_memory_tools},
};
use rockbot_store::{Clock, Expected, Key, ManualClock, MemoryStore, Store, StoreError};
use rockbot_store_sql::SqliteStore;
use rockbot_testkit::{InterceptedStore, StoreInterceptor};
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
    memory.save(owner, key, data, SaveOptions::default()).await.unwrap();
}

async fn keys(memory: &WorkingMemory, owner: &MemoryOwner, namespace: Option<&str>) -> Vec<String> {
    let entries = memory.list(owner, namespace).await.unwrap();
    entries.into_iter().map(|entry| entry.key).collect()
}

fn search(query: &str) -> MemorySearch {
    MemorySearch { query: query.to_owned(), category: None, tags: Vec::new(), limit: 5 }
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
async fn entry_is_private_to_its_owner() {
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
        let saved = memory.save(other, "session/one/notes", "", SaveOptions::default()).await;
        assert_eq!(saved.unwrap_err(), WorkingMemoryError::Foreign);
        assert!(memory.list(other, Some("session/one")).await.is_err());
        assert_eq!(memory.get(other, "plans/july").await.unwrap().as_deref(), Some("ours"));
    }
    assert_eq!(memory.get(&others[2], "session/one/notes").await.unwrap(), None);
    assert_eq!(memory.get(&others[2], "plans/july").await.unwrap(), None);
    assert_eq!(memory.get(&own, "session/one/notes").await.unwrap().as_deref(), Some("mine"));
}

#[tokio::test]
async fn namespace_matches_whole_segments() {
    let (memory, own) = (memory(), owner("assistant", "one"));
    for key in ["a/b/x", "a/bc", "a/b-c/x", "note", "session/one/a/b"] {
        save(&memory, &own, key, "").await;
    }
    assert_eq!(keys(&memory, &own, Some("a/b")).await, ["a/b/x"]);
    assert_eq!(keys(&memory, &own, Some("a/b/")).await, ["a/b/x"]);
    assert_eq!(keys(&memory, &own, Some("a")).await, ["a/b-c/x", "a/b/x", "a/bc"]);
    let own_keys = ["session/one/a/b", "session/one/note"];
    assert_eq!(keys(&memory, &own, Some("session/one")).await, own_keys);
    assert_eq!(keys(&memory, &own, None).await.len(), 5);
}

#[tokio::test]
async fn whiteboard_belongs_to_a_conversation_and_its_sub_agents() {
    let memory = memory();
    let root = owner("assistant", "one");
    let [child, sibling] = ["7", "8"].map(|task| owner("assistant", &format!("subagent-{task}")));
    for task in ["7", "8"] {
        let task = TaskId::new(task).unwrap();
        memory.open_whiteboard(&root.agent, &task, &root.session).await.unwrap();
        // A later claim changes nothing.
        let other = SessionId::new("two").unwrap();
        memory.open_whiteboard(&root.agent, &task, &other).await.unwrap();
    }
    save(&memory, &child, "subagent/7/table", "rows").await;
    save(&memory, &root, "subagent/7/question", "which?").await;
    for reader in [&root, &child, &sibling] {
        assert_eq!(memory.get(reader, "subagent/7/table").await.unwrap().unwrap(), "rows");
        assert_eq!(keys(&memory, reader, Some("subagent")).await.len(), 2);
        assert_eq!(keys(&memory, reader, None).await.len(), 2);
        let hits = memory.search(reader, search("rows")).await.unwrap();
        assert_eq!(hits[0].entry.key, "subagent/7/table");
    }
    let foreign = Some(WorkingMemoryError::Foreign);
    let by_sibling = memory.save(&sibling, "subagent/7/table", "x", SaveOptions::default()).await;
    assert_eq!(by_sibling.err(), foreign);
    assert_eq!(memory.delete(&sibling, "subagent/7/table").await.err(), foreign);
    let others = [
        owner("assistant", "two"),
        owner("assistant", "subagent-9"),
        owner("writer", "one"),
        owner("writer", "subagent-7"),
    ];
    for other in &others[..3] {
        assert_eq!(memory.get(other, "subagent/7/table").await.err(), foreign, "{other:?}");
        assert_eq!(memory.list(other, Some("subagent/7")).await.err(), foreign);
        let saved = memory.save(other, "subagent/7/x", "x", SaveOptions::default()).await;
        assert_eq!(saved.err(), foreign);
        assert!(keys(&memory, other, None).await.is_empty());
        assert!(memory.search(other, search("rows")).await.unwrap().is_empty());
    }
    // A sub-agent of the same id of another agent has a whiteboard of its own.
    assert_eq!(memory.get(&others[3], "subagent/7/table").await.unwrap(), None);
    memory.clear(&child).await.unwrap();
    assert_eq!(keys(&memory, &root, None).await.len(), 2);
    memory.clear(&root).await.unwrap();
    assert!(keys(&memory, &child, None).await.is_empty());
}

#[tokio::test]
async fn entry_expires_after_ttl() {
    let clock = ManualClock::new();
    let memory = WorkingMemory::new(Arc::new(MemoryStore::new(Clock::from(&clock))));
    let own = owner("assistant", "one");
    let short = SaveOptions::with_ttl(Duration::from_secs(60));
    memory.save(&own, "short", "x", short).await.unwrap();
    save(&memory, &own, "default", "x").await;
    clock.advance(Duration::from_secs(60));
    assert_eq!(memory.get(&own, "short").await.unwrap(), None);
    assert_eq!(keys(&memory, &own, None).await, ["session/one/default"]);
    clock.advance(Duration::from_secs(60 * 60));
    assert!(keys(&memory, &own, None).await.is_empty());
    let longest = SaveOptions::with_ttl(Duration::MAX);
    let entry = memory.save(&own, "long", "x", longest).await.unwrap();
    let ttl = entry.expires_at.unwrap().since(entry.saved_at);
    assert_eq!(ttl, memory.limits().max_ttl);
}

#[tokio::test]
async fn limits_reject_saves_without_eviction() {
    let limits =
        WorkingMemoryLimits { entry_bytes: 10, entries: 3, bytes: 25, ..Default::default() };
    let memory = WorkingMemory::with_limits(store(), limits);
    let own = owner("assistant", "one");
    let refused = memory.save(&own, "a", "01234567890", SaveOptions::default()).await.unwrap_err();
    assert_eq!(refused, WorkingMemoryError::TooLarge { bytes: 11, limit: 10 });
    save(&memory, &own, "a", "0123456789").await;
    save(&memory, &own, "b", "0123456789").await;
    let refused = memory.save(&own, "c", "012345", SaveOptions::default()).await.unwrap_err();
    assert!(refused.to_string().contains("exceed the 5 free bytes"), "{refused}");
    save(&memory, &own, "c", "01234").await;
    // A replaced entry does not count.
    save(&memory, &own, "b", "9876543210").await;
    let refused = memory.save(&own, "d", "", SaveOptions::default()).await.unwrap_err();
    assert!(refused.to_string().contains("3 entries, the limit is 3"), "{refused}");
    assert_eq!(keys(&memory, &own, None).await.len(), 3);
    save(&memory, &owner("assistant", "two"), "a", "0123456789").await;
    assert!(memory.delete(&own, "a").await.unwrap());
    save(&memory, &own, "d", "0123456789").await;
}

#[tokio::test]
async fn replaced_and_deleted_data_is_removed() {
    let (store, own) = (store(), owner("assistant", "one"));
    let memory = WorkingMemory::new(store.clone());
    for data in ["one", "two", "three"] {
        save(&memory, &own, "notes", data).await;
    }
    let count = |kind| {
        let (store, prefix) = (store.clone(), rockbot_store::Prefix::new([kind]).unwrap());
        async move { store.list(&prefix, None, 100).await.unwrap().len() }
    };
    assert_eq!((count("working-memory").await, count("working-memory-data").await), (1, 1));
    assert!(memory.delete(&own, "notes").await.unwrap());
    assert!(!memory.delete(&own, "notes").await.unwrap());
    assert_eq!((count("working-memory").await, count("working-memory-data").await), (0, 0));
}

#[tokio::test]
async fn concurrent_processes_lose_no_entries() {
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
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, Clock::System).await.unwrap());
    let memory = WorkingMemory::new(store);
    assert_eq!(keys(&memory, &own, None).await.len(), 41);
    assert_eq!(memory.get(&own, "own1-19").await.unwrap().as_deref(), Some("1 19"));
    assert!(memory.get(&own, "both").await.unwrap().is_some());
}

#[tokio::test]
async fn limits_hold_for_concurrent_saves() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("store.db"), Clock::System).await.unwrap();
    let limits = WorkingMemoryLimits { entries: 3, ..WorkingMemoryLimits::default() };
    let memory = WorkingMemory::with_limits(Arc::new(store), limits);
    let mut savers = tokio::task::JoinSet::new();
    for one in 0..12 {
        let memory = memory.clone();
        savers.spawn(async move {
            let own = owner("assistant", "one");
            memory.save(&own, &format!("key-{one}"), "data", SaveOptions::default()).await.is_ok()
        });
    }
    let saved = savers.join_all().await;
    assert_eq!(saved.into_iter().filter(|saved| *saved).count(), 3);
    assert_eq!(keys(&memory, &owner("assistant", "one"), None).await.len(), 3);
}

/// Data of working memory is not removed.
struct UnremovableData;

impl StoreInterceptor for UnremovableData {
    fn remove<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        if key.as_str().starts_with("working-memory-data/") {
            let reason = "a test".to_owned();
            return Box::pin(ready(Err(StoreError::Unavailable { reason })));
        }
        store.remove(key, expected)
    }
}

#[tokio::test]
async fn failed_removal_of_old_data_is_not_an_error() {
    let memory = WorkingMemory::new(InterceptedStore::wrap(store(), UnremovableData));
    let own = owner("assistant", "one");
    save(&memory, &own, "notes", "old").await;
    save(&memory, &own, "notes", "new").await;
    assert_eq!(memory.get(&own, "notes").await.unwrap().as_deref(), Some("new"));
    assert!(memory.delete(&own, "notes").await.unwrap());
    assert_eq!(memory.get(&own, "notes").await.unwrap(), None);
}

#[tokio::test]
async fn search_matches_data_within_category_and_tags() {
    let (memory, own) = (memory(), owner("assistant", "one"));
    let report = SaveOptions {
        category: Some("report".to_owned()),
        tags: vec!["q3".to_owned()],
        ..SaveOptions::default()
    };
    let text = format!("{} revenue grew by nine percent", "filler ".repeat(300));
    memory.save(&own, "finance", &text, report).await.unwrap();
    save(&memory, &own, "plans/revenue", "grow").await;
    let hits = memory.search(&own, search("revenue")).await.unwrap();
    assert_eq!(hits.len(), 2);
    assert_eq!((hits[0].entry.key.as_str(), hits[0].relevance), ("plans/revenue", 1.0));
    assert!(hits[1].excerpt.contains("revenue grew by nine"), "{}", hits[1].excerpt);
    let filtered = |category: Option<&str>, tag: &str| MemorySearch {
        category: category.map(str::to_owned),
        tags: vec![tag.to_owned()],
        ..search("revenue")
    };
    assert_eq!(memory.search(&own, filtered(Some("report"), "q3")).await.unwrap().len(), 1);
    assert!(memory.search(&own, filtered(None, "q4")).await.unwrap().is_empty());
    let hits = memory.search(&own, filtered(Some("report"), "q3")).await.unwrap();
    assert!(hits[0].excerpt.contains("revenue grew by nine"), "{}", hits[0].excerpt);
}

#[tokio::test]
async fn tools_save_get_list_search_and_delete() {
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
    let deleted = call(&memory, "delete_from_working_memory", json!({"key": "notes"})).await;
    assert_eq!(deleted.unwrap(), "Deleted.");
    for tool in ["get_from_working_memory", "delete_from_working_memory"] {
        let error = call(&memory, tool, json!({"key": "notes"})).await.unwrap_err();
        assert!(error.to_string().contains("list_working_memory"), "{error}");
    }
    let empty = call(&memory, "list_working_memory", json!({"namespace": "x"})).await;
    assert_eq!(empty.unwrap(), "No entries.");
}

#[tokio::test]
async fn arguments_cannot_set_the_owner() {
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
async fn inventory_lists_newest_first_within_limit() {
    let clock = ManualClock::new();
    let memory = WorkingMemory::new(Arc::new(MemoryStore::new(Clock::from(&clock))));
    let own = owner("assistant", "one");
    assert_eq!(memory.inventory(&own, 1000).await.unwrap(), None);
    for number in 0..50 {
        save(&memory, &own, &format!("plans/number-{number}"), "x").await;
        clock.advance(Duration::from_secs(1));
    }
    let inventory = memory.inventory(&own, 1000).await.unwrap().unwrap();
    assert!(inventory.len() <= 1000, "{}", inventory.len());
    assert_eq!(inventory.lines().nth(1), Some("- plans/number-49 (1 bytes)"));
    assert!(inventory.lines().last().unwrap().contains("more; list_working_memory"), "{inventory}");
}

#[test]
fn guide_is_short_and_names_existing_tools() {
    let tools = working_memory_tools(&memory());
    // The guide refers to save_memory, a tool of the agent.
    let problems = GUIDE.validate(tools.iter().map(|tool| tool.registration()));
    assert_eq!(problems, ["working-memory mentions unknown name save_memory"]);
}
