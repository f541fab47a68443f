//! The fixture: the file tools on a root, with files outside it.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_toolkit::files::{self, FilesConfig};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolResult};
use serde_json::Value;
use tempfile::TempDir;

/// The content of a file that confined tools must neither read nor change.
pub(crate) const SECRET: &str = "the secret outside";

pub(crate) struct Sandbox {
    directory: TempDir,
    tools: Vec<Arc<dyn Tool>>,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(configure: impl FnOnce(&mut FilesConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("workplace")).unwrap();
        fs::create_dir_all(directory.path().join("outside/deep")).unwrap();
        fs::write(directory.path().join("outside/secret.txt"), SECRET).unwrap();
        let mut config = FilesConfig::new(directory.path().join("workplace"));
        configure(&mut config);
        let tools = files::tools(&config).unwrap();
        Self { directory, tools }
    }

    pub(crate) fn root(&self, path: &str) -> PathBuf {
        self.directory.path().join("workplace").join(path)
    }

    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.directory.path().join("outside").join(path)
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root(path)).unwrap()
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let tool = self.tools.iter().find(|tool| tool.registration().name == name);
        Arc::clone(tool.unwrap())
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.registration().name.as_str()).collect()
    }

    pub(crate) async fn call(
        &self,
        name: &str,
        arguments: Value,
    ) -> Result<ToolResult, ToolFailure> {
        self.tool(name).call(arguments, &context(name)).await
    }

    /// Calls a tool that must succeed, and returns its text.
    pub(crate) async fn call_text(&self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await.unwrap();
        assert!(!result.is_error, "{}", result.to_text());
        result.to_text().into_owned()
    }

    /// Calls a tool that must fail, and returns the message, which must not name a path of the host.
    pub(crate) async fn call_error(&self, name: &str, arguments: Value) -> String {
        let message = self.call(name, arguments).await.unwrap_err().to_string();
        let host = self.directory.path().to_str().unwrap();
        assert!(!message.contains(host), "the message names a path of the host: {message}");
        message
    }
}

pub(crate) fn context(name: &str) -> ToolContext {
    ToolContext::new(name, SessionId::generate(), AgentName::new("tester").unwrap())
}

/// Polls a condition that another process fulfills, for at most 10 s.
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let wait = async {
        while !condition() {
            ticks.tick().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), wait).await;
    assert!(waited.is_ok(), "did not happen within 10 s: {what}");
}
