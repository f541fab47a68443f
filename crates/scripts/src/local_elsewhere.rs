//! Scripts on this machine, where there are none: what isolates them is Linux's.

#[path = "local/options.rs"]
mod options;

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use rockbot_tools::{ToolContext, ToolFailure};

pub use self::options::{LocalOptions, Means, PackageOptions, Sandbox};
use crate::runner::{Isolation, Script, ScriptOutcome, ScriptRunner};

/// There is none on this system.
#[derive(Debug)]
pub struct LocalRunner(Infallible);

/// Why scripts can't be run on this machine; for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing here isolates scripts.
    #[error(
        "scripts are isolated by means of Linux; run them with Docker: scripts.runner = \"docker\""
    )]
    NotLinux,
}

impl LocalRunner {
    /// Does not start.
    ///
    /// # Errors
    /// Always.
    #[expect(clippy::unused_async, reason = "as on Linux")]
    pub async fn start(_options: LocalOptions) -> Result<Self, StartError> {
        Err(StartError::NotLinux)
    }

    /// What keeps the scripts of this runner from everything else.
    #[must_use]
    pub fn isolation(&self) -> &Isolation {
        match self.0 {}
    }

    /// Ends all scripts.
    #[expect(clippy::unused_async, reason = "as on Linux")]
    pub async fn close(&self) {
        match self.0 {}
    }
}

impl ScriptRunner for LocalRunner {
    fn run<'a>(
        &'a self,
        _script: &'a Script,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        match self.0 {}
    }
}
