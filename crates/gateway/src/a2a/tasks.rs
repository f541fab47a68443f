//! The turns of tasks, each followed to its end.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::FutureExt;
use parking_lot::Mutex;
use rockbot_agent::AgentClient;
use rockbot_contracts::{MessageId, UserMessage};

use super::{
    caller::Caller,
    error::{A2aError, unless_not_found},
    records::{Record, Records},
    view::TaskView,
};
use crate::{
    open_counts::OpenCounts,
    turns::{Follower, Turns, WhenAbandoned},
};

/// Maximum number of running tasks of one identity in this process.
const MAX_RUNNING: usize = 256;
/// Maximum number of running tasks in this process: half of the replies that its client can wait for, which all faces
/// share.
const MAX_RUNNING_IN_ALL: usize = 512;

/// The running tasks that this process follows.
pub(super) struct Tasks {
    client: Arc<AgentClient>,
    turns: Turns,
    records: Records,
    /// Those whose end will be recorded.
    recorded: Arc<Mutex<HashSet<MessageId>>>,
    running: OpenCounts,
}

/// A task that was found at its agent.
pub(super) struct Found {
    pub(super) follower: Follower,
    /// Its answer is recorded, and will arrive at once.
    pub(super) is_answered: bool,
    /// This process did not follow it before: open requests of the agent are still to arrive.
    pub(super) is_new: bool,
}

impl Tasks {
    pub(super) fn new(client: Arc<AgentClient>, records: Records) -> Self {
        let turns = Turns::new(client.clone());
        Self { client, turns, records, recorded: Arc::default(), running: OpenCounts::default() }
    }

    /// Sends the message of a task, unless its turn is followed already, and follows the turn. The agent
    /// recognizes a message that it has.
    ///
    /// # Errors
    /// When the caller has too many running tasks, or the message is not sent.
    pub(super) async fn send(
        &self,
        caller: &Caller,
        task: &MessageId,
        record: &Record,
        message: UserMessage,
    ) -> Result<Follower, A2aError> {
        let follower = {
            let mut recorded = self.recorded.lock();
            let is_new = !recorded.contains(task);
            let permit = if is_new {
                let permit = self.running.admit(caller.subject(), MAX_RUNNING, MAX_RUNNING_IN_ALL);
                Some(permit.map_err(|_| A2aError::overloaded())?)
            } else {
                None
            };
            let follow = |message| {
                // The turn goes on without its clients, as they may ask for the task later.
                let cancels = Arc::new(|| async { false }.boxed());
                let when_abandoned = WhenAbandoned { linger: Duration::ZERO, cancels };
                self.turns.follow(&caller.agent, message, task, when_abandoned)
            };
            if let Some(permit) = permit {
                recorded.insert(task.clone());
                let view = TaskView::new(task.clone(), record.context.clone());
                let recorder = Recorder {
                    caller: caller.clone(),
                    task: task.clone(),
                    records: self.records.clone(),
                    recorded: self.recorded.clone(),
                };
                let follower = follow(message.clone());
                // It ends with the turns of this face.
                tokio::spawn(async move {
                    recorder.record(follower, view).await;
                    drop(permit);
                });
            }
            follow(message)
        };
        follower.sent().await?;
        Ok(follower)
    }

    /// Follows the turn of a task that was sent before, perhaps by another process. Returns `None` if the agent does
    /// not have its message.
    ///
    /// # Errors
    /// When the agent does not respond.
    pub(super) async fn find(
        &self,
        caller: &Caller,
        task: &MessageId,
        record: &Record,
    ) -> Result<Option<Found>, A2aError> {
        if let Some(follower) = self.turns.running(task, Duration::ZERO) {
            return Ok(Some(Found { follower, is_answered: false, is_new: false }));
        }
        let session = caller.session(&record.context);
        let found = self.client.recorded_message(&caller.agent, &session, task).await;
        let (message, is_answered) = match found {
            Ok(found) => found,
            Err(error) => return unless_not_found(error).map_or(Ok(None), Err),
        };
        let follower = self.send(caller, task, record, message).await?;
        Ok(Some(Found { follower, is_answered, is_new: true }))
    }
}

/// Records the end of a task.
struct Recorder {
    caller: Caller,
    task: MessageId,
    records: Records,
    recorded: Arc<Mutex<HashSet<MessageId>>>,
}

impl Recorder {
    async fn record(self, mut follower: Follower, mut view: TaskView) {
        while let Some(followed) = follower.next().await {
            if view.apply(followed).is_err() {
                return;
            }
        }
        if let Some(end) = view.end() {
            self.records.end(&self.caller, &self.task, end).await;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.recorded.lock().remove(&self.task);
    }
}
