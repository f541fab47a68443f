//! Blocking file operations and their cancellation.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rockbot_tools::{Executed, ToolContext, ToolFailure, ToolResult};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The stop condition that long operations check between two steps.
#[derive(Debug, Clone)]
pub(super) struct StopCondition {
    dropped: Arc<AtomicBool>,
    cancellation: CancellationToken,
    deadline: Instant,
    after: Duration,
}

impl StopCondition {
    fn new(context: &ToolContext) -> Self {
        Self {
            dropped: Arc::default(),
            cancellation: context.cancellation.clone(),
            deadline: context.deadline,
            after: context.remaining(),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.deadline
    }

    fn is_cancelled(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || self.cancellation.is_cancelled()
    }

    /// Fails if the operation should stop. `executed` is reported in the error; operations that call this
    /// can be repeated.
    pub(super) fn check(&self, executed: Executed) -> Result<(), ToolFailure> {
        if self.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed });
        }
        if Instant::now() >= self.deadline {
            let after = self.after;
            return Err(ToolFailure::TimedOut { after, executed, repeatable: true });
        }
        Ok(())
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a file operation on a blocking thread.
///
/// # Cancellation
/// Dropping the future, cancelling the context and its deadline make [`StopCondition::check`] fail.
pub(super) async fn run_blocking<F>(
    context: &ToolContext,
    operation: F,
) -> Result<ToolResult, ToolFailure>
where
    F: FnOnce(&StopCondition) -> Result<ToolResult, ToolFailure> + Send + 'static,
{
    let stop = StopCondition::new(context);
    let _guard = StopOnDrop(Arc::clone(&stop.dropped));
    tokio::task::spawn_blocking(move || operation(&stop)).await.unwrap_or_else(|error| {
        Err(ToolFailure::failed_with_source(
            "the tool failed unexpectedly; try another approach",
            error,
        ))
    })
}

/// A reader that fails when the operation should stop.
#[derive(Debug)]
pub(super) struct StoppableReader<'a, R> {
    inner: R,
    stop: &'a StopCondition,
}

impl<'a, R> StoppableReader<'a, R> {
    pub(super) fn new(inner: R, stop: &'a StopCondition) -> Self {
        Self { inner, stop }
    }
}

impl<R: Read> Read for StoppableReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_due() {
            // Not `Interrupted`, which readers retry.
            return Err(io::Error::other("the operation was stopped"));
        }
        self.inner.read(buffer)
    }
}
