//! Streams of a task: its present state, and its events until its end.

use std::collections::VecDeque;

use axum::response::Response;
use serde_json::{Value, json};

use super::{binding::Binding, error::A2aError, followed_task::FollowedTask};
use crate::{
    event_stream::{self, EventSource, ReadyEvents},
    open_counts::OpenPermit,
};

/// A stream of a task.
pub(super) struct TaskStream {
    task: FollowedTask,
    binding: Binding,
    _open: OpenPermit,
}

impl TaskStream {
    /// Returns a stream that begins with the task as it is.
    ///
    /// # Errors
    /// When no final reply will come.
    pub(super) fn response(
        mut task: FollowedTask,
        binding: Binding,
        open: OpenPermit,
    ) -> Result<Response, A2aError> {
        task.catch_up()?;
        let is_last = task.view.state().is_terminal();
        let queue = VecDeque::from([binding.result(&json!({"task": task.view.to_json()}))]);
        let stream = Self { task, binding, _open: open };
        Ok(event_stream::stream_response(stream, ReadyEvents { queue, is_last }))
    }
}

impl EventSource for TaskStream {
    /// `None` after the final reply.
    type Update = Option<Result<Vec<Value>, A2aError>>;

    async fn next(&mut self) -> Self::Update {
        self.task.next().await
    }

    async fn events(&mut self, update: Self::Update) -> ReadyEvents {
        match update {
            Some(Ok(events)) => ReadyEvents {
                queue: events.iter().map(|result| self.binding.result(result)).collect(),
                is_last: self.task.view.state().is_terminal(),
            },
            Some(Err(error)) => {
                ReadyEvents { queue: VecDeque::from([self.binding.error(&error)]), is_last: true }
            }
            None => ReadyEvents { queue: VecDeque::new(), is_last: true },
        }
    }
}
