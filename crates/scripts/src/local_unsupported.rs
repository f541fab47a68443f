//! The local runner on systems other than Linux, where it does not start.

#[path = "local/options.rs"]
mod options;

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use rockbot_tools::{ToolContext, ToolFailure};

pub use self::options::{LocalOptions, Mechanisms, PackageOptions, Sandbox};
use crate::runner::{Isolation, Script, ScriptOutcome, ScriptRunner};

/// A runner that can't exist on this system.
#[derive(Debug)]
pub struct LocalRunner(Infallible);

/// An error that keeps the local runner from starting; for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox needs Linux.
    #[error(
        "local scripts are unavailable: the sandbox needs Linux; set scripts.runner to \"docker\""
    )]
    NotLinux,
}

impl LocalRunner {
    /// Fails: the sandbox needs Linux.
    ///
    /// # Errors
    /// Always.
    #[expect(clippy::unused_async, reason = "as on Linux")]
    pub async fn start(_options: LocalOptions) -> Result<Self, StartError> {
        Err(StartError::NotLinux)
    }

    /// Returns the isolation of this runner's scripts.
    #[must_use]
    pub fn isolation(&self) -> &Isolation {
        match self.0 {}
    }

    /// Stops all scripts.
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
