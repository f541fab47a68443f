//! The ends of remote tasks: cancels, time limits and responses.

use std::time::Duration;

use rockbot_bus::PublishError;
use rockbot_contracts::{AgentTaskErrorCode, Executed};
use rockbot_store::DocumentError;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::{
    super::{
        change::Change,
        record::{End, Phase, Record},
        rpc::CallError,
        verdict::Verdict,
    },
    Next, RETRY, Runner, left,
};
use crate::clock::now_ms;

/// Time after the limit of a task in which its end is still sent.
const KEEP_SENDING_MS: u64 = 3600 * 1000;
/// Attempts to cancel a task, and the pause between them.
const CANCELS: (usize, Duration) = (3, Duration::from_secs(1));
/// Time for the cancel of a task whose time limit has passed.
const LAST_CANCEL: Duration = Duration::from_secs(5);

impl Runner {
    /// Cancels a task at the agent.
    pub(super) async fn cancel(
        &self,
        record: &Record,
        remote: &str,
    ) -> Result<Next, DocumentError> {
        let (id, card) = (record.id(), self.card());
        let (attempts, pause) = CANCELS;
        for attempt in 1..=attempts {
            let task = match self.client.cancel(&card, remote).await {
                // It may have ended before.
                Err(error @ CallError::Rpc { .. }) if !error.is_unknown_task() => {
                    self.client.task(&card, remote).await
                }
                task => task,
            };
            match task {
                Ok(task) => {
                    if let Verdict::Ended(end) = Verdict::of(record, &task) {
                        return self.end(&id, end).await;
                    }
                }
                Err(error) if error.is_transient_read() => {
                    debug!(agent = %self.name, %error, "remote task not cancelled; retrying");
                }
                Err(error) => {
                    warn!(agent = %self.name, error = error.for_log(), "remote task not cancelled");
                    break;
                }
            }
            if attempt < attempts && self.closing.run_until_cancelled(sleep(pause)).await.is_none()
            {
                return Ok(Next::Rest);
            }
        }
        let text = "Cancelled. The agent did not confirm its end.";
        self.end(&id, End::with_code(AgentTaskErrorCode::Cancelled, Executed::Unknown, text)).await
    }

    /// Ends a task whose time limit has passed.
    pub(super) async fn expire(&self, record: &Record) -> Result<Next, DocumentError> {
        let text = "The agent did not answer within the time limit.";
        let code = AgentTaskErrorCode::Expired;
        self.give_up(record, End::with_code(code, record.executed(), text)).await
    }

    /// Ends a task here, and at the agent if it has begun there.
    pub(super) async fn give_up(&self, record: &Record, end: End) -> Result<Next, DocumentError> {
        match &record.remote_task {
            Some(remote) => self.abandon(record, remote, end).await,
            None => self.end(&record.id(), end).await,
        }
    }

    /// Ends a task here, and asks the agent once to end it too.
    pub(super) async fn abandon(
        &self,
        record: &Record,
        remote: &str,
        end: End,
    ) -> Result<Next, DocumentError> {
        let next = self.end(&record.id(), end).await?;
        let cancelled = timeout(LAST_CANCEL, self.client.cancel(&self.card(), remote)).await;
        if !matches!(cancelled, Ok(Ok(_))) {
            debug!(agent = %self.name, "abandoned task not cancelled at the agent");
        }
        Ok(next)
    }

    /// Records the end of a task. The first one counts.
    pub(super) async fn end(&self, id: &str, end: End) -> Result<Next, DocumentError> {
        let ended = self.persist(id, |record| {
            let is_open = record.end.is_none();
            if is_open {
                (record.phase, record.end) = (Phase::Ended, Some(end.clone()));
                (record.text, record.data) = (String::new(), None);
                (record.question, record.question_id) = (None, None);
            }
            is_open
        });
        ended.await?;
        Ok(Next::Step)
    }

    /// Sends the question of a task, and waits for the answer until the time limit of the task.
    pub(super) async fn ask(
        &self,
        record: &Record,
        change: &Change,
    ) -> Result<Next, DocumentError> {
        if !self.deliver(record, || self.responder.ask(record)).await {
            return Ok(Next::Rest);
        }
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Ok(Next::Rest),
            () = change.wait() => Ok(Next::Step),
            () = sleep(left(record)) => Ok(Next::Step),
        }
    }

    pub(super) async fn respond(&self, record: &Record, end: &End) -> Result<Next, DocumentError> {
        if self.deliver(record, || self.responder.respond(record, end)).await {
            self.records.close(&record.id()).await?;
        }
        Ok(Next::Rest)
    }

    /// Publishes until the bus has the message, its caller is gone, or it is too late. Returns `false` at the stop.
    async fn deliver<F: Future<Output = Result<(), PublishError>>>(
        &self,
        record: &Record,
        publish: impl Fn() -> F,
    ) -> bool {
        loop {
            match publish().await {
                Ok(()) => return true,
                Err(PublishError::Unroutable { .. }) => {
                    info!(agent = %self.name, caller = %record.caller, "the caller of a remote task is gone");
                    return true;
                }
                Err(error) => {
                    debug!(agent = %self.name, %error, "response of a remote task not sent; retrying");
                }
            }
            if now_ms() > record.deadline_ms.saturating_add(KEEP_SENDING_MS) {
                return true;
            }
            if self.closing.run_until_cancelled(sleep(RETRY)).await.is_none() {
                return false;
            }
        }
    }

    pub(super) fn unauthorized(&self) -> String {
        warn!(
            agent = %self.name,
            "remote agent does not accept the credentials; set gateway.remote_agents.<name>.token"
        );
        "The agent does not accept the credentials of this fleet. An operator must configure others.".to_owned()
    }
}
