//! A provider with a file, and calls of its tools.

use std::{path::PathBuf, sync::Arc, sync::Mutex, time::Duration};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_rest::{RestOptions, RestProvider, RestSection};
use rockbot_tools::{ToolContext, ToolFailure, ToolProvider, ToolResult, ToolUpdate, UpdateSink};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A secret of the fixture's environment.
pub(crate) const SECRET: &str = "hunter2/hunter2&more";

/// A provider, and the folder of its file.
pub(crate) struct Fixture {
    pub(crate) provider: Arc<RestProvider>,
    pub(crate) folder: TempDir,
}

/// Updates that a call sent.
#[derive(Clone, Default)]
pub(crate) struct Updates(pub(crate) Arc<Mutex<Vec<ToolUpdate>>>);

impl Updates {
    fn sink(&self) -> UpdateSink {
        let updates = self.0.clone();
        Arc::new(move |update| updates.lock().unwrap().push(update))
    }

    /// Returns the number of retries that the call reported.
    pub(crate) fn retries(&self) -> usize {
        let updates = self.0.lock().unwrap();
        let is_retry = |update: &&ToolUpdate| matches!(update, ToolUpdate::Progress(line) if line.contains("retrying"));
        updates.iter().filter(is_retry).count()
    }
}

/// Permits the servers of the tests.
pub(crate) fn options(folder: &TempDir) -> RestOptions {
    let section = RestSection {
        allow_plain_http: true,
        allow_private: vec!["127.0.0.0/8".to_owned()],
        idle_timeout: Duration::from_secs(2),
        ..RestSection::default()
    };
    assert!(section.validate().is_empty());
    let variables = |name: &str| match name {
        "SECRET" => Some(SECRET.to_owned()),
        _ => None,
    };
    RestOptions { variables: Arc::new(variables), ..section.options(path(folder), [].into()) }
}

pub(crate) fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("rest.json")
}

impl Fixture {
    /// Creates a provider with this file.
    pub(crate) async fn new(file: &Value) -> Self {
        Self::with_options(file, |_| {}).await
    }

    /// Creates a provider with this file and other options.
    pub(crate) async fn with_options(file: &Value, change: impl FnOnce(&mut RestOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(path(&folder), file.to_string()).unwrap();
        let mut options = options(&folder);
        change(&mut options);
        let provider = RestProvider::new(options).unwrap();
        let _ = provider.warm_up().await;
        Self { provider, folder }
    }

    /// Creates a provider with one tool called `tool`.
    pub(crate) async fn with_tool(entry: Value) -> Self {
        let fixture = Self::new(&json!({"restTools": {"tool": entry}})).await;
        assert!(fixture.provider.status().is_ok(), "{:?}", fixture.provider.status());
        fixture
    }

    pub(crate) fn write(&self, file: &str) {
        // Replaced in one step, as editors and Kubernetes do.
        let new = self.folder.path().join("rest.json.new");
        std::fs::write(&new, file).unwrap();
        std::fs::rename(new, path(&self.folder)).unwrap();
    }

    pub(crate) async fn call(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let called = self.provider.execute(&context.tool_name, arguments, context);
        tokio::time::timeout(Duration::from_secs(30), called).await.expect("the call ends")
    }
}

pub(crate) fn context(tool: &str) -> (ToolContext, Updates) {
    let agent = AgentName::new("assistant").unwrap();
    let mut context = ToolContext::new(tool, SessionId::generate(), agent);
    let updates = Updates::default();
    context.updates = Some(updates.sink());
    (context, updates)
}

/// A kind of request, which decides whether it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Post,
    /// A `POST` whose entry has `"idempotent": true`.
    IdempotentPost,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Get, Self::Post, Self::IdempotentPost];

    pub(crate) fn method(self) -> &'static str {
        if self == Self::Get { "GET" } else { "POST" }
    }

    pub(crate) fn is_repeatable(self) -> bool {
        self != Self::Post
    }

    /// Returns an entry for a server.
    pub(crate) fn entry(self, url: &str) -> Value {
        let mut entry = json!({"description": "A test.", "method": self.method(), "url": url});
        if self != Self::Get {
            entry["body"] = json!({"a": 1});
        }
        if self == Self::IdempotentPost {
            entry["idempotent"] = json!(true);
        }
        entry
    }
}

/// Calls a tool without arguments.
pub(crate) async fn call_entry(entry: Value) -> (Result<ToolResult, ToolFailure>, Updates) {
    let fixture = Fixture::with_tool(entry).await;
    let (context, updates) = context("tool");
    (fixture.call(json!({}), &context).await, updates)
}
