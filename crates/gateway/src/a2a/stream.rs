//! Streams of a task: its present state, and its events until its end.

use std::collections::VecDeque;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use tokio::time::timeout;

use super::{binding::Binding, error::A2aError, followed_task::FollowedTask};
use crate::{
    event_stream::{KEEP_ALIVE, KEEP_ALIVE_INTERVAL, response},
    open_counts::OpenPermit,
};

/// A stream of a task.
pub(super) struct TaskStream {
    task: FollowedTask,
    binding: Binding,
    ready: VecDeque<Bytes>,
    is_done: bool,
    _open: OpenPermit,
}

impl TaskStream {
    /// Creates a stream that begins with the task as it is.
    ///
    /// # Errors
    /// When no final reply will come.
    pub(super) fn new(
        mut task: FollowedTask,
        binding: Binding,
        open: OpenPermit,
    ) -> Result<Self, A2aError> {
        task.catch_up()?;
        let is_done = task.view.state().is_terminal();
        let first = json!({"task": task.view.to_json()});
        let ready = VecDeque::from([binding.result(&first)]);
        Ok(Self { task, binding, ready, is_done, _open: open })
    }

    /// Returns the next event, or a comment after a while without one.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_done {
                return None;
            }
            match timeout(KEEP_ALIVE_INTERVAL, self.task.next()).await {
                Ok(Some(Ok(events))) => {
                    self.is_done = self.task.view.state().is_terminal();
                    self.ready.extend(events.iter().map(|result| self.binding.result(result)));
                }
                Ok(Some(Err(error))) => {
                    self.is_done = true;
                    self.ready.push_back(self.binding.error(&error));
                }
                Ok(None) => self.is_done = true,
                Err(_) => return Some(Bytes::from_static(KEEP_ALIVE)),
            }
        }
    }
}

impl IntoResponse for TaskStream {
    fn into_response(self) -> Response {
        response(stream::unfold(self, async |mut stream| {
            let event = stream.next().await?;
            Some((event, stream))
        }))
    }
}
