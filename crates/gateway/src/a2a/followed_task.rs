//! A task whose replies are read.

use futures_util::FutureExt;
use serde_json::Value;

use super::{error::A2aError, view::TaskView};
use crate::turns::Follower;

/// A task, and the replies that it still gets.
pub(super) struct FollowedTask {
    pub(super) view: TaskView,
    /// `None` if no reply will come.
    follower: Option<Follower>,
}

impl FollowedTask {
    pub(super) fn new(view: TaskView, follower: Follower) -> Self {
        Self { view, follower: Some(follower) }
    }

    /// Creates a task that gets no replies.
    pub(super) fn without_replies(view: TaskView) -> Self {
        Self { view, follower: None }
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
