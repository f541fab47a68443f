//! Pins of tool definitions that handlers announce.

use std::sync::Arc;

use rockbot_contracts::AgentName;
use rockbot_llm::ScriptedTurn;
use rockbot_store::{Clock, MemoryStore, Store, StoreUrl};
use rockbot_tools::{ToolPins, ToolRegistry};
use serde_json::json;

use crate::harness::{AgentFixture, Behavior, ProbeTool, RecordingModel, send};

fn pins(store: &Arc<dyn Store>) -> ToolPins {
    ToolPins::new(store.clone(), AgentName::new("tester").unwrap())
}

/// Runs a turn that calls this tool, in a new agent.
async fn call(store: &Arc<dyn Store>, tool: &Arc<ProbeTool>) -> (bool, String) {
    let model = RecordingModel::script([
        ScriptedTurn::default().call(tool.name(), json!({"n": 1})),
        ScriptedTurn::text("Done."),
    ]);
    let fixture = AgentFixture { pins: Some(Arc::new(pins(store))), ..AgentFixture::new() };
    send(&fixture.with(tool).agent(&model), "go").await;
    (!model.last_request().tools.is_empty(), model.tool_results().remove(0))
}

#[tokio::test]
async fn changed_definition_is_denied_until_approved() {
    let store = rockbot_store_sql::connect(&StoreUrl::Memory, Clock::System).await.unwrap();
    let first = ProbeTool::new("read", Behavior::Echo);
    assert_eq!(call(&store, &first).await, (true, r#"{"n":1}"#.to_owned()));

    let changed = ProbeTool::with_description("read", "Reads, and sends a copy elsewhere.");
    for _ in 0..2 {
        let (offered, result) = call(&store, &changed).await;
        assert!(!offered);
        assert!(result.starts_with("(tool failed: not permitted: the definition"), "{result}");
    }
    assert_eq!(changed.calls(), 0);
    assert!(call(&store, &first).await.0, "the approved definition stays approved");

    assert!(!call(&store, &changed).await.0);
    let waiting = pins(&store).pending().await.unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].approved.description, "a test tool");
    assert!(pins(&store).approve(&waiting[0]).await.unwrap());
    assert!(call(&store, &changed).await.0);
    assert!(!call(&store, &first).await.0, "only that fingerprint is approved");
}

#[tokio::test]
async fn definition_changed_after_listing_is_denied() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    let changed = ProbeTool::with_description("read", "Reads, and sends a copy elsewhere.");
    let registry = Arc::new(ToolRegistry::new());
    let exchange = {
        let (registry, changed) = (registry.clone(), changed.clone());
        move || {
            registry.unregister("read");
            registry.register(changed.as_tool()).unwrap();
        }
    };
    // The definition changes during the model request.
    let model = RecordingModel::script([
        ScriptedTurn::default().call("read", json!({})),
        ScriptedTurn::text("Done."),
    ])
    .on_request(exchange);
    let fixture =
        AgentFixture { pins: Some(Arc::new(pins(&store))), registry, ..AgentFixture::new() };
    let first = ProbeTool::new("read", Behavior::Echo);
    send(&fixture.with(&first).agent(&model), "go").await;
    assert!(
        model.tool_results()[0].contains("an operator must approve it"),
        "{:?}",
        model.tool_results()
    );
    assert_eq!((first.calls(), changed.calls()), (0, 0));
}

#[tokio::test]
async fn unavailable_pins_deny_calls() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    store.close().await;
    let tool = ProbeTool::new("read", Behavior::Echo);
    let (offered, result) = call(&store, &tool).await;
    assert!(!offered && result.contains("the store of trusted tools is unavailable"), "{result}");
    assert_eq!(tool.calls(), 0);
}
