//! A task whose replies are read.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use tokio::time::timeout;

use super::{error::A2aError, view::TaskView};
use crate::turns::Follower;

/// Time in which an agent repeats its open requests to a process that begins to follow a turn. It sends nothing if none
/// is open.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of tasks that are waited for at a time: as many as a list has unfinished ones.
const MAX_WAITING: usize = 256;

/// A task, and the replies that it still gets.
pub(super) struct FollowedTask {
    pub(super) view: TaskView,
    /// `None` if no reply will come.
    follower: Option<Follower>,
    /// Set until the agent had time to repeat its open requests.
    lacks_requests: bool,
}

impl FollowedTask {
    pub(super) fn new(view: TaskView, follower: Follower) -> Self {
        Self { view, follower: Some(follower), lacks_requests: false }
    }

    /// Sets whether the agent had no time to repeat its open requests, because this process did not follow the task
    /// before.
    pub(super) fn with_lacking_requests(self, lacks_requests: bool) -> Self {
        Self { lacks_requests, ..self }
    }

    /// Creates a task that gets no replies.
    pub(super) fn without_replies(view: TaskView) -> Self {
        Self { view, follower: None, lacks_requests: false }
    }

    /// Returns whether the task runs, and its agent had no time to repeat its open requests.
    pub(super) fn lacks_requests(&self) -> bool {
        self.lacks_requests && !self.view.state().is_terminal()
    }

    /// Returns whether replies may come.
    pub(super) fn is_followed(&self) -> bool {
        self.follower.is_some()
    }

    /// Waits for the next reply, and returns its events; `None` after the final one.
    ///
    /// # Errors
    /// When no final reply will come.
    ///
    /// # Cancellation
    /// Cancel-safe: nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Result<Vec<Value>, A2aError>> {
        let Some(followed) = self.follower.as_mut()?.next().await else {
            self.follower = None;
            return None;
        };
        Some(self.view.apply(followed))
    }

    /// Applies the replies that have arrived.
    ///
    /// # Errors
    /// When no final reply will come.
    pub(super) fn catch_up(&mut self) -> Result<(), A2aError> {
        while let Some(Some(events)) = self.next().now_or_never() {
            events?;
        }
        Ok(())
    }

    /// Applies replies until the task is as expected, or has ended.
    ///
    /// # Errors
    /// When no final reply will come.
    ///
    /// # Cancellation
    /// Cancel-safe: nothing is lost.
    pub(super) async fn until(
        &mut self,
        is_reached: impl Fn(&TaskView) -> bool,
    ) -> Result<(), A2aError> {
        // A state that has passed is not one to stop at.
        self.catch_up()?;
        while !is_reached(&self.view) {
            let Some(events) = self.next().await else { break };
            events?;
        }
        Ok(())
    }
}

/// Waits until agents have repeated the open requests of tasks that this process did not follow before: up to
/// [`REPEAT_TIMEOUT`] for all of them.
pub(super) async fn await_requests(tasks: &mut [&mut FollowedTask]) {
    for task in tasks.iter_mut() {
        task.lacks_requests = false;
    }
    let waiting = stream::iter(tasks).for_each_concurrent(MAX_WAITING, async |task| {
        // A task that gets no final reply stays as it is.
        let _ = task.until(TaskView::is_interrupted).await;
    });
    // Those that wait for nothing have no reply to wait for.
    let _ = timeout(REPEAT_TIMEOUT, waiting).await;
}
