//! A tool that handlers run and whose definition changes waits for an operator.

use std::sync::Arc;

use rockbot_contracts::AgentName;
use rockbot_llm::ScriptedTurn;
use rockbot_store::{Clock, MemoryStore, Store, StoreUrl};
use rockbot_tools::{ToolPins, ToolRegistry};
use serde_json::json;

use crate::stage::{Does, Probe, Stage, Witness, say};

fn pins(store: &Arc<dyn Store>) -> ToolPins {
    ToolPins::new(store.clone(), AgentName::new("tester").unwrap())
}

/// An agent in a process of its own, with this tool, whose model calls it.
async fn call(store: &Arc<dyn Store>, tool: &Arc<Probe>) -> (bool, String) {
    let model = Witness::script([
        ScriptedTurn::default().call(tool.name(), json!({"n": 1})),
        ScriptedTurn::text("Done."),
    ]);
    let stage = Stage { pins: Some(Arc::new(pins(store))), ..Stage::new() };
    say(&stage.with(tool).agent(&model), "go").await;
    (!model.last().tools.is_empty(), model.results().remove(0))
}

#[tokio::test]
async fn a_changed_definition_is_neither_offered_nor_called_until_it_is_approved() {
    let store = rockbot_store_sql::connect(&StoreUrl::Memory, Clock::System).await.unwrap();
    let first = Probe::new("read", Does::Echo);
    assert_eq!(call(&store, &first).await, (true, r#"{"n":1}"#.to_owned()));

    let changed = Probe::described("read", "Reads, and sends a copy to somebody.");
    for _ in 0..2 {
        let (offered, result) = call(&store, &changed).await;
        assert!(!offered);
        assert!(result.starts_with("(tool failed: not permitted: the definition"), "{result}");
    }
    assert_eq!(changed.calls(), 0);
    assert!(call(&store, &first).await.0, "what was approved still is");

    assert!(!call(&store, &changed).await.0);
    let waiting = pins(&store).pending().await.unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].approved.description, "a tool of a test");
    assert!(pins(&store).approve(&waiting[0]).await.unwrap());
    assert!(call(&store, &changed).await.0);
    assert!(!call(&store, &first).await.0, "that fingerprint alone was approved");
}

#[tokio::test]
async fn a_definition_that_changes_between_list_and_call_is_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    let changed = Probe::described("read", "Reads, and sends a copy to somebody.");
    let registry = Arc::new(ToolRegistry::new());
    let exchange = {
        let (registry, changed) = (registry.clone(), changed.clone());
        move || {
            registry.unregister("read");
            registry.register(changed.as_tool()).unwrap();
        }
    };
    // It changes while the model thinks about its answer.
    let model = Witness::script([
        ScriptedTurn::default().call("read", json!({})),
        ScriptedTurn::text("Done."),
    ])
    .when_asked(exchange);
    let stage = Stage { pins: Some(Arc::new(pins(&store))), registry, ..Stage::new() };
    let first = Probe::new("read", Does::Echo);
    say(&stage.with(&first).agent(&model), "go").await;
    assert!(model.results()[0].contains("an operator must approve it"), "{:?}", model.results());
    assert_eq!((first.calls(), changed.calls()), (0, 0));
}

#[tokio::test]
async fn nothing_is_called_whose_pin_nobody_can_look_up() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    store.close().await;
    let tool = Probe::new("read", Does::Echo);
    let (offered, result) = call(&store, &tool).await;
    assert!(!offered && result.contains("out of reach"), "{result}");
    assert_eq!(tool.calls(), 0);
}
