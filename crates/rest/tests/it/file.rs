//! The file of REST tools, and its changes.

use std::{sync::Arc, time::Duration};

use rockbot_tools::{Tool, ToolProvider};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use crate::fixture::{Fixture, options, path};

fn tool(description: &str) -> Value {
    json!({"description": description, "url": "http://127.0.0.1:1/"})
}

async fn changed(changes: &mut watch::Receiver<u64>) {
    timeout(Duration::from_secs(2), changes.changed()).await.expect("within two seconds").unwrap();
}

fn get(fixture: &Fixture, name: &str) -> Arc<dyn Tool> {
    fixture.provider.get(name).unwrap()
}

#[tokio::test]
async fn file_change_replaces_only_its_tools() {
    let fixture =
        Fixture::new(&json!({"restTools": {"a": tool("one"), "b": tool("two"), "c": tool("x")}}))
            .await;
    let mut changes = fixture.provider.changes().unwrap();
    let (a, b) = (get(&fixture, "a"), get(&fixture, "b"));
    fixture.write(&json!({"restTools": {"a": tool("one"), "b": tool("2")}}).to_string());
    while fixture.provider.get("b").unwrap().registration().description != "2" {
        changed(&mut changes).await;
    }
    assert!(Arc::ptr_eq(&a, &get(&fixture, "a")));
    assert!(!Arc::ptr_eq(&b, &get(&fixture, "b")));
    assert!(!fixture.provider.has("c"));
}

#[tokio::test]
async fn unusable_file_changes_nothing() {
    let fixture = Fixture::new(&json!({"restTools": {"a": tool("one")}})).await;
    let a = get(&fixture, "a");
    fixture.write("{");
    assert!(fixture.provider.warm_up().await.is_err());
    assert!(Arc::ptr_eq(&a, &get(&fixture, "a")));
    let status = fixture.provider.status();
    assert!(!status.is_ok() && status.problems[0].contains("not JSON"), "{status:?}");
    fixture.write(&json!({"restTools": {"a": tool("one")}}).to_string());
    fixture.provider.warm_up().await.unwrap();
    assert!(Arc::ptr_eq(&a, &get(&fixture, "a")) && fixture.provider.status().is_ok());
}

#[tokio::test]
async fn invalid_entry_is_left_out_alone() {
    let mut disabled = tool("off");
    disabled["disabled"] = json!(true);
    let mut queued = tool("queued");
    queued["queue"] = json!("none");
    let fixture = Fixture::new(&json!({"restTools": {
        "good": tool("good"), "bad": {"description": "x", "url": "https://${parameters.host}/"},
        "odd": 7, "unset": {"description": "x", "url": "http://127.0.0.1:1/${NONE}"},
        "plain": tool("x"), "off": disabled, "queued": queued, "far": {"description": "x", "url": "http://10.0.0.1/"},
    }}))
    .await;
    let names: Vec<_> =
        fixture.provider.list().iter().map(|tool| tool.registration().name.clone()).collect();
    assert_eq!(names, ["good", "plain"]);
    let status = fixture.provider.status();
    let problems: Vec<_> = status
        .entries
        .iter()
        .filter(|entry| !entry.problems.is_empty())
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(problems, ["bad", "far", "odd", "queued", "unset"]);
    assert!(fixture.provider.warm_up().await.is_err());
}

#[tokio::test]
async fn tools_over_the_limit_are_not_offered() {
    let folder = tempfile::tempdir().unwrap();
    let file = json!({"restTools": {"a": tool("a"), "b": tool("b"), "c": tool("c")}});
    std::fs::write(path(&folder), file.to_string()).unwrap();
    let mut options = options(&folder);
    options.max_tools = 2;
    let provider = rockbot_rest::RestProvider::new(options).unwrap();
    let error = provider.warm_up().await.unwrap_err().to_string();
    assert!(error.contains("c: ") && error.contains("rest.max_tools is 2"), "{error}");
    assert_eq!(provider.list().len(), 2);
}

#[tokio::test]
async fn missing_file_is_an_error_until_it_appears() {
    let folder = tempfile::tempdir().unwrap();
    let provider = rockbot_rest::RestProvider::new(options(&folder)).unwrap();
    let mut changes = provider.changes().unwrap();
    assert!(provider.warm_up().await.is_err());
    std::fs::write(path(&folder), json!({"restTools": {"a": tool("a")}}).to_string()).unwrap();
    changed(&mut changes).await;
    assert!(provider.has("a"));
}

#[tokio::test]
async fn example_file_is_valid() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rest.json");
    let options = rockbot_rest::RestSection::default().options(config, [].into());
    let provider = rockbot_rest::RestProvider::new(options).unwrap();
    provider.warm_up().await.unwrap();
    let status = provider.status();
    assert!(status.entries.iter().all(|entry| entry.warnings.is_empty()), "{status:?}");
    assert!(provider.has("crate_info"));
}
