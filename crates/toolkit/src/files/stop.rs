//! File work off the runtime's threads, and how it learns that nobody waits any more.

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

/// Asked by long work between two steps.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    dropped: Arc<AtomicBool>,
    cancellation: CancellationToken,
    deadline: Instant,
    after: Duration,
}

impl Stop {
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

    /// Fails when the work should end. `executed` is whether it has changed or shown anything;
    /// all work that asks may be run again.
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

/// Runs file work on a thread that may block.
///
/// # Cancellation
/// Dropping the future, cancelling the context and its deadline make [`Stop::check`] fail.
pub(super) async fn off_runtime<W>(
    context: &ToolContext,
    work: W,
) -> Result<ToolResult, ToolFailure>
where
    W: FnOnce(&Stop) -> Result<ToolResult, ToolFailure> + Send + 'static,
{
    let stop = Stop::new(context);
    let _guard = StopOnDrop(Arc::clone(&stop.dropped));
    tokio::task::spawn_blocking(move || work(&stop)).await.unwrap_or_else(|error| {
        Err(ToolFailure::caused("the tool broke down; try another way", error))
    })
}

/// A reader that fails once the work should end.
#[derive(Debug)]
pub(super) struct StoppableReader<'a, R> {
    inner: R,
    stop: &'a Stop,
}

impl<'a, R> StoppableReader<'a, R> {
    pub(super) fn new(inner: R, stop: &'a Stop) -> Self {
        Self { inner, stop }
    }
}

impl<R: Read> Read for StoppableReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_due() {
            // Not `Interrupted`: readers retry that one.
            return Err(io::Error::other("nobody waits any more"));
        }
        self.inner.read(buffer)
    }
}
