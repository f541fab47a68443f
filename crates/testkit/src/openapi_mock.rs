//! A server that answers as an OpenAPI document says, and rejects requests that do not conform to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::broker::free_port;
use crate::mcp_servers::RunningHttpPeer;

const VARIABLE: &str = "ROCKBOT_TEST_OPENAPI_PEERS";

/// A mock of a document on 127.0.0.1. Dropping it kills its process group.
#[derive(Debug)]
pub struct OpenApiMock(RunningHttpPeer);

impl OpenApiMock {
    /// Starts a mock and returns when it listens. Blocks for about two seconds.
    ///
    /// # Panics
    /// When it is not installed, exits, or does not listen within a minute.
    #[must_use]
    pub fn start(document: &Path) -> Self {
        let port = free_port().expect("a free port");
        let mut command = Command::new(installed("run-prism"));
        command.args(["mock", "--host", "127.0.0.1", "--port", &port.to_string()]).arg(document);
        Self(RunningHttpPeer::run(command, format!("http://127.0.0.1:{port}"), port))
    }

    /// Returns the URL that the paths of the document follow.
    #[must_use]
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// Returns the end of the server's output.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.0.log_tail()
    }
}

/// Returns the path of an example document, such as `3.0/json/petstore.json`.
///
/// # Panics
/// When the documents are not installed.
#[must_use]
pub fn example_document(name: &str) -> PathBuf {
    installed("documents").join(name)
}

fn installed(name: &str) -> PathBuf {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).expect(
        "this test needs a mock server for OpenAPI documents: run `cargo xtask test`, or `cargo xtask \
         openapi-peers` and set ROCKBOT_TEST_OPENAPI_PEERS as it says",
    );
    let path = PathBuf::from(folder).join(name);
    assert!(path.exists(), "{VARIABLE} has no {name}: run `cargo xtask openapi-peers`");
    path
}
