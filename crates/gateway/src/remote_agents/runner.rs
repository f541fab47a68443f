//! Works on the recorded tasks of a remote agent: sends and follows them.

mod ends;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use rockbot_contracts::{
    AgentName, AgentTaskError, AgentTaskErrorCode, Executed, RoutingKey, TraceContext, trace,
};
use rockbot_store::{DocumentError, StoreError};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::{Instrument, debug, info, info_span, warn};

use super::{
    card::RemoteCard,
    change::Change,
    client::{PeerClient, Sent},
    record::{End, Phase, Record, Records},
    responder::Responder,
    rpc::CallError,
    running::Running,
    stream::TaskStream,
    verdict::Verdict,
    wire::RemoteState,
};
use crate::clock::now_ms;

/// First and longest pause between two reads of a task.
const POLL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// Pauses before a message is sent again that found no connection.
const RESEND: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// First and longest pause before a message is sent again that the agent may have.
const REPEAT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// Time limit for the first event of a stream, which has the id of the task.
const FIRST_EVENT: Duration = Duration::from_secs(60);
/// Pause after a failure of the store or of the bus.
const RETRY: Duration = Duration::from_secs(1);
/// Shortest time between two reports on a task.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The parts of a runner.
pub(super) struct RunnerParts {
    pub(super) name: AgentName,
    pub(super) client: Arc<PeerClient>,
    pub(super) records: Records,
    pub(super) responder: Responder,
    pub(super) card: RemoteCard,
    /// A message that arrives again is the same message for the agent.
    pub(super) idempotent: bool,
    pub(super) concurrency: usize,
}

/// Runs the tasks of one remote agent, each in a task of its own.
pub(super) struct Runner {
    name: AgentName,
    client: Arc<PeerClient>,
    records: Records,
    responder: Responder,
    card: Mutex<Arc<RemoteCard>>,
    idempotent: bool,
    permits: Arc<Semaphore>,
    running: Mutex<Running>,
    tracker: TaskTracker,
    /// No request is begun any more; the ones that were begun end.
    closing: CancellationToken,
    /// Everything ends at once.
    killed: CancellationToken,
}

/// The consequence of a step.
enum Next {
    /// The next step, by the record.
    Step,
    /// The work rests: the task has ended, waits for its caller, or the process stops.
    Rest,
}

impl Runner {
    pub(super) fn new(parts: RunnerParts) -> Arc<Self> {
        let RunnerParts { name, client, records, responder, card, idempotent, concurrency } = parts;
        Arc::new(Self {
            name,
            client,
            records,
            responder,
            card: Mutex::new(Arc::new(card)),
            idempotent,
            permits: Arc::new(Semaphore::new(concurrency)),
            running: Mutex::default(),
            tracker: TaskTracker::new(),
            closing: CancellationToken::new(),
            killed: CancellationToken::new(),
        })
    }

    pub(super) fn name(&self) -> &AgentName {
        &self.name
    }

    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    pub(super) fn card(&self) -> Arc<RemoteCard> {
        self.card.lock().clone()
    }

    pub(super) fn set_card(&self, card: RemoteCard) {
        *self.card.lock() = Arc::new(card);
    }

    /// Returns the number of tasks that wait or run.
    pub(super) fn running(&self) -> usize {
        self.running.lock().len()
    }

    /// Returns the number of tasks of a caller that wait or run.
    pub(super) fn running_of(&self, caller: &AgentName) -> usize {
        self.running.lock().len_of(caller)
    }

    pub(super) async fn refuse(&self, reply_to: RoutingKey, error: &AgentTaskError) {
        self.responder.refuse(reply_to, error).await;
    }

    /// Returns a guard whose drop ends all tasks at once.
    pub(super) fn kill_on_drop(&self) -> DropGuard {
        self.killed.clone().drop_guard()
    }

    /// Continues the tasks that were open when the last process ended.
    pub(super) async fn resume(self: &Arc<Self>) -> Result<(), DocumentError> {
        for id in self.records.open().await? {
            self.start(&id, None);
        }
        Ok(())
    }

    /// Works on a task, or reports a change of its record to the work on it. Without `caller`, its record has it.
    pub(super) fn start(self: &Arc<Self>, id: &str, caller: Option<&AgentName>) {
        let mut running = self.running.lock();
        if let Some(change) = running.change(id) {
            change.set();
            return;
        }
        if self.closing.is_cancelled() {
            return;
        }
        let change = running.insert(id, caller);
        drop(running);
        let (runner, id) = (self.clone(), id.to_owned());
        self.tracker.spawn(async move {
            let killed = runner.killed.clone();
            killed.run_until_cancelled(runner.run(&id, &change)).await;
        });
    }

    /// Begins no further requests, and waits for those that were begun; after `grace` they are dropped.
    pub(super) async fn close(&self, grace: Duration) {
        self.closing.cancel();
        self.tracker.close();
        if timeout(grace, self.tracker.wait()).await.is_err() {
            warn!(agent = %self.name, "requests to a remote agent dropped at the stop");
            self.killed.cancel();
            self.tracker.wait().await;
        }
    }

    async fn run(&self, id: &str, change: &Change) {
        loop {
            match self.step(id, change).await {
                Ok(Next::Step) => continue,
                Ok(Next::Rest) => {}
                Err(error) => {
                    warn!(agent = %self.name, %error, "task of a remote agent not recorded; retrying");
                    if self.closing.run_until_cancelled(sleep(RETRY)).await.is_some() {
                        continue;
                    }
                }
            }
            let mut running = self.running.lock();
            // A change that arrived after the step.
            if self.closing.is_cancelled() || !change.take() {
                running.remove(id);
                return;
            }
        }
    }

    async fn step(&self, id: &str, change: &Change) -> Result<Next, DocumentError> {
        if self.closing.is_cancelled() {
            return Ok(Next::Rest);
        }
        let Some(record) = self.records.get(id).await? else {
            self.records.close(id).await?;
            return Ok(Next::Rest);
        };
        self.running.lock().set_caller(id, &record.caller);
        // In the trace of the request, also after a restart.
        let span = info_span!(
            target: trace::TARGET, "remote_task", otel.name = "remote task", otel.kind = "internal"
        );
        let parent = record.traceparent.as_deref().map(Into::into);
        trace::continue_from(&span, &TraceContext { parent, state: None });
        self.work(record, change).instrument(span).await
    }

    /// Does the next step of a task.
    async fn work(&self, record: Record, change: &Change) -> Result<Next, DocumentError> {
        let id = &record.id();
        if let Some(end) = &record.end {
            return self.respond(&record, end).await;
        }
        let (is_late, remote) = (now_ms() >= record.deadline_ms, record.remote_task.clone());
        match (record.phase, remote) {
            (_, None) if record.is_cancelled => {
                let text = match record.executed() {
                    Executed::No => "Cancelled. Nothing was sent.",
                    _ => "Cancelled. The agent may have the task.",
                };
                let code = AgentTaskErrorCode::Cancelled;
                self.end(id, End::with_code(code, record.executed(), text)).await
            }
            (_, Some(remote)) if record.is_cancelled => self.cancel(&record, &remote).await,
            _ if is_late => self.expire(&record).await,
            (Phase::InputRequired, _) => self.ask(&record, change).await,
            (Phase::Sending, _) if !self.idempotent => {
                let text =
                    "The process that sent the task ended before the agent responded. It may run.";
                self.give_up(&record, End::failed(Executed::Unknown, text)).await
            }
            (Phase::Sending | Phase::Submitted, _) => {
                let Some(_permit) = self.permit(&record, change).await else {
                    return Ok(Next::Step);
                };
                self.send(id, change).await
            }
            (Phase::Sent, Some(remote)) => {
                let Some(_permit) = self.permit(&record, change).await else {
                    return Ok(Next::Step);
                };
                self.poll(&record, &remote, change).await
            }
            (Phase::Sent | Phase::Ended, _) => {
                self.end(id, End::failed(Executed::Unknown, "The record of the task is invalid."))
                    .await
            }
        }
    }

    /// Waits for the right to send requests. Returns `None` if the record is to be read again before.
    async fn permit(&self, record: &Record, change: &Change) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            () = change.wait() => None,
            permit = self.permits.clone().acquire_owned() => permit.ok(),
            () = sleep(left(record)) => None,
        }
    }

    /// Sends the current message. The id of the remote task is recorded before anything else happens.
    async fn send(&self, id: &str, change: &Change) -> Result<Next, DocumentError> {
        // Before the request: a process that finds this state knows that the agent may have it.
        let marked = self.records.update(id, |record| {
            let may_send = match record.phase {
                Phase::Submitted => true,
                Phase::Sending => self.idempotent,
                _ => false,
            };
            record.is_uncertain |= record.phase == Phase::Sending;
            record.phase = Phase::Sending;
            may_send && !record.is_cancelled && record.end.is_none()
        });
        // Without: its change is reported, or another process was faster.
        let Some(record) = marked.await? else { return Ok(Next::Rest) };
        let card = self.card();
        let sent = match self.client.send(&card, &record).await {
            Ok(Sent::Whole(event)) => Ok((*event, None)),
            Ok(Sent::Stream(mut stream)) => match timeout(FIRST_EVENT, stream.next()).await {
                Ok(Ok(Some(event))) => Ok((event, Some(stream))),
                Ok(Ok(None)) => Err(CallError::Cut("the stream has no event".to_owned())),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(CallError::Cut("no response in time".to_owned())),
            },
            Err(error) => Err(error),
        };
        let (event, stream) = match sent {
            Ok(sent) => sent,
            Err(error) => return self.not_sent(&record, error, change).await,
        };
        if let Some(message) = &event.message {
            return self.end(id, End::completed(message.text())).await;
        }
        let Some((remote, context)) = event.ids() else {
            let text = "The agent started no task: its response has no valid task id.";
            return self.end(id, End::failed(Executed::Unknown, text)).await;
        };
        let recorded = self.persist(id, |record| {
            record.phase = Phase::Sent;
            record.remote_task = Some(remote.clone());
            record.context = context.clone().or(record.context.take());
            true
        });
        let Some(record) = recorded.await? else { return Ok(Next::Step) };
        if let Some(end) = &record.end {
            // Another process ended it meanwhile.
            return self.abandon(&record, &remote, end.clone()).await;
        }
        info!(agent = %self.name, caller = %record.caller, "task sent to a remote agent");
        self.responder.report(&record, "").await;
        if let Some(task) = &event.task
            && let Some(next) =
                self.apply(&record, &remote, Verdict::of_response(&record, task)).await?
        {
            return Ok(next);
        }
        if let Some(stream) = stream
            && let Some(next) = self.follow(&record, &remote, stream, change).await?
        {
            return Ok(next);
        }
        self.poll(&record, &remote, change).await
    }

    /// Decides about a message without a response: it is sent again if that is safe.
    async fn not_sent(
        &self,
        record: &Record,
        error: CallError,
        change: &Change,
    ) -> Result<Next, DocumentError> {
        let (id, attempts) = (record.id(), record.attempts as usize);
        // Of the message: a refused repetition says nothing about an earlier attempt.
        let received = if record.is_uncertain { Executed::Unknown } else { error.executed() };
        warn!(agent = %self.name, error = error.for_log(), %received, "message to a remote agent failed");
        let (first, longest) = REPEAT;
        let pause = match received {
            _ if !error.is_transient() => None,
            Executed::No => RESEND.get(attempts).copied(),
            _ if self.idempotent => {
                Some((first * 2_u32.saturating_pow(record.attempts.min(8))).min(longest))
            }
            _ => None,
        };
        let Some(pause) = pause else {
            // Of the task: an answer to its question belongs to a task that has begun.
            let executed = if record.remote_task.is_some() { Executed::Unknown } else { received };
            let text = match error {
                CallError::Unauthorized => self.unauthorized(),
                error if executed == Executed::No => format!("The task was not done: {error}."),
                error => format!("The task may have run: {error}."),
            };
            let end = End::failed(executed, text);
            return self.give_up(record, end).await;
        };
        let is_uncertain = received != Executed::No;
        let phase = if is_uncertain { Phase::Sending } else { Phase::Submitted };
        let sent = (Phase::Sending, record.round, record.attempts);
        let recorded = self.persist(&id, |record| {
            // Otherwise another process was faster, or this change was made before.
            let is_current = (record.phase, record.round, record.attempts) == sent;
            if is_current {
                record.phase = phase;
                record.attempts = record.attempts.saturating_add(1);
                record.is_uncertain = is_uncertain;
            }
            is_current
        });
        recorded.await?;
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = change.wait() => {}
            () = sleep(pause.min(left(record))) => {}
        }
        Ok(Next::Step)
    }

    /// Records a response of the agent, or the end of a task. Retries until the store has the change or this work is
    /// dropped, since another step would not know the response. `change` may be applied twice.
    async fn persist(
        &self,
        id: &str,
        change: impl Fn(&mut Record) -> bool,
    ) -> Result<Option<Record>, DocumentError> {
        loop {
            match self.records.update(id, &change).await {
                Err(DocumentError::Store(
                    error @ (StoreError::Unavailable { .. }
                    | StoreError::Unconfirmed { .. }
                    | StoreError::Full { .. }),
                )) => {
                    warn!(agent = %self.name, %error, "task of a remote agent not recorded; retrying");
                    sleep(RETRY).await;
                }
                recorded => return recorded,
            }
        }
    }

    /// Reads a stream until it says that the task is to be read, or ends. Returns `None` if the task is to be polled.
    async fn follow(
        &self,
        record: &Record,
        remote: &str,
        mut stream: Box<TaskStream>,
        change: &Change,
    ) -> Result<Option<Next>, DocumentError> {
        let mut last_report: Option<Instant> = None;
        loop {
            let event = tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(Some(Next::Rest)),
                () = change.wait() => return Ok(Some(Next::Step)),
                () = sleep(left(record)) => return Ok(Some(Next::Step)),
                event = stream.next() => event,
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(None),
                // The end of a stream says nothing about the task.
                Err(error) if !matches!(error, CallError::Invalid(_)) => {
                    debug!(agent = %self.name, %error, "stream of a remote task cut; polling it");
                    return Ok(None);
                }
                Err(error) => {
                    let end =
                        End::failed(Executed::Unknown, format!("The task was given up: {error}."));
                    return self.abandon(record, remote, end).await.map(Some);
                }
            };
            if event.ids().is_none_or(|(task, _)| task != remote) {
                continue;
            }
            let Some(status) = event.status() else { continue };
            if status.state() != RemoteState::Open {
                return Ok(None);
            }
            let is_due = last_report.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL);
            let text = status.text();
            if is_due && !text.trim().is_empty() {
                self.responder.report(record, &text).await;
                last_report = Some(Instant::now());
            }
        }
    }

    /// Reads the task at growing intervals until it ends or asks.
    async fn poll(
        &self,
        record: &Record,
        remote: &str,
        change: &Change,
    ) -> Result<Next, DocumentError> {
        let (mut pause, longest) = POLL;
        loop {
            match self.client.task(&self.card(), remote).await {
                Ok(task) => {
                    let verdict = Verdict::of(record, &task);
                    if let Some(next) = self.apply(record, remote, verdict).await? {
                        return Ok(next);
                    }
                }
                Err(error) if error.is_transient_read() => {
                    debug!(agent = %self.name, %error, "remote task not read; retrying");
                }
                Err(error) => {
                    warn!(agent = %self.name, error = error.for_log(), "remote task given up");
                    let text = match error {
                        CallError::Unauthorized => self.unauthorized(),
                        error if error.is_unknown_task() => {
                            "The agent no longer knows the task.".to_owned()
                        }
                        error => format!("The task was given up: {error}."),
                    };
                    let end = End::failed(Executed::Unknown, text);
                    return self.abandon(record, remote, end).await;
                }
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(Next::Rest),
                () = change.wait() => return Ok(Next::Step),
                () = sleep(pause.min(left(record))) => {}
            }
            if now_ms() >= record.deadline_ms {
                return Ok(Next::Step);
            }
            pause = (pause * 3 / 2).min(longest);
        }
    }

    /// Records the meaning of a remote task. Returns `None` if it goes on.
    async fn apply(
        &self,
        record: &Record,
        remote: &str,
        verdict: Verdict,
    ) -> Result<Option<Next>, DocumentError> {
        let id = record.id();
        match verdict {
            Verdict::Open => Ok(None),
            Verdict::Ended(end) => self.end(&id, end).await.map(Some),
            Verdict::Abandoned(end) => {
                warn!(agent = %self.name, "remote agent requires credentials that it was not given");
                self.abandon(record, remote, end).await.map(Some)
            }
            Verdict::Asked { question, id: question_id } => {
                let asked = self.records.update(&id, |record| {
                    let is_sent = record.phase == Phase::Sent && !record.is_cancelled;
                    if is_sent {
                        record.phase = Phase::InputRequired;
                        record.question = Some(question.clone());
                        record.question_id.clone_from(&question_id);
                    }
                    is_sent
                });
                asked.await?;
                Ok(Some(Next::Step))
            }
        }
    }
}

/// Returns the time until the limit of a task.
fn left(record: &Record) -> Duration {
    Duration::from_millis(record.deadline_ms.saturating_sub(now_ms()))
}
