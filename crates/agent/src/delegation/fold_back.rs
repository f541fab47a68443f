//! Passes results on to the conversation that delegated the work: in a turn for all results of one model
//! response, or for those that have arrived after some time.

use std::{iter, sync::Arc, time::Duration};

use metrics::{counter, histogram};
use rockbot_contracts::{
    AgentReply, ReplyBody, Spending, TaskId, TaskState, ToolCallId, UserMessage, user::TurnOutcome,
};
use rockbot_memory::MemoryOwner;
use rockbot_store::StoreError;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::{
    frame::{SharedKeys, late_text, results_text},
    ports::{Claimed, Delivered, TaskHold},
    record::{TaskKind, TaskRecord, TaskRoot},
    store::{FoldReason, FoldRecord, KeptReply},
    tasks::{Attached, Delegation},
};
use crate::{
    conversation::{TaskResultsEntry, unix_ms},
    event::{TurnAnswer, TurnEnd},
    origin::{DelegatedWork, TurnOrigin, WorkRole},
};

/// Interval at which other processes' results are looked for, and at which a conversation is claimed.
const POLL: Duration = Duration::from_secs(1);
const CLAIM_POLL: Duration = Duration::from_millis(250);
/// Attempts to send an answer while the bus fails.
const SEND_ATTEMPTS: u32 = 10;

impl Delegation {
    /// Passes the result of ended work on. Returns `false` if another process must do it.
    pub(super) async fn fold_back(
        self: &Arc<Self>,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<bool, StoreError> {
        let Some(fold) = self.decide(attached, record).await? else { return Ok(false) };
        if fold.leader != record.task {
            // The marker of that work is there until all results were passed on.
            return Ok(true);
        }
        self.run_fold(attached, &record.root, &fold).await
    }

    /// Decides, with the other work of the same model response, which turn reads the result. Returns `None`
    /// if the agent shuts down.
    async fn decide(
        &self,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<Option<FoldRecord>, StoreError> {
        let Attached { store, host, .. } = attached;
        let (session, batch) = (&record.root.session, &record.batch);
        let closing = host.closing();
        let waited = unix_ms().saturating_sub(self.first_end(attached, record).await?);
        let until =
            Instant::now() + self.options.batch_wait.saturating_sub(Duration::from_millis(waited));
        loop {
            let changed = self.changed.notified();
            let folds = store.folds(session, batch).await?;
            if let Some(fold) = folds.iter().find(|fold| fold.tasks.contains(&record.task)) {
                return Ok(Some(fold.clone()));
            }
            // Before the siblings are read: other calls of the response may not have recorded their work yet.
            let is_delegating =
                self.turn(session).is_some_and(|turn| turn.message == record.root.message);
            let siblings = self.siblings(attached, record).await?;
            let all_ended = !is_delegating && siblings.iter().all(|one| one.state.is_terminal());
            if all_ended || Instant::now() >= until {
                // Also by the call that delegated it.
                let is_folded = |one: &TaskRecord| {
                    one.folded_by.is_some()
                        || folds.iter().any(|fold| fold.tasks.contains(&one.task))
                };
                let has_result =
                    |one: &TaskRecord| one.state.is_terminal() && one.state != TaskState::Cancelled;
                let ready: Vec<_> =
                    siblings.into_iter().filter(|one| has_result(one) && !is_folded(one)).collect();
                let shared = self.shared_keys(attached, &ready).await;
                let Some(fold) = new_fold(record, &ready, &shared) else { return Ok(None) };
                // Another process may have decided meanwhile.
                let _ = store.create_fold(session, batch, folds.len(), &fold).await?;
                continue;
            }
            tokio::select! {
                biased;
                () = closing.cancelled() => return Ok(None),
                () = changed => {}
                () = sleep(POLL) => {}
            }
        }
    }

    /// Returns the keys of the texts that the work shares. Empty without working memory.
    async fn shared_keys(&self, attached: &Attached, records: &[TaskRecord]) -> SharedKeys {
        let mut shared = SharedKeys::new();
        let Some(memory) = &attached.memory else { return shared };
        // Other agents have no whiteboards here.
        let own = records.iter().filter(|record| record.kind == TaskKind::Subagent);
        for TaskRecord { task, root, .. } in own {
            let owner = MemoryOwner { agent: attached.name.clone(), session: root.session.clone() };
            match memory.whiteboard_keys(&owner, task).await {
                Ok(keys) => {
                    shared.insert(task.clone(), keys);
                }
                Err(error) => debug!(%task, %error, "shared texts of a sub-agent not listed"),
            }
        }
        shared
    }

    /// Returns the time of the first end among the work of the same model response.
    async fn first_end(&self, attached: &Attached, record: &TaskRecord) -> Result<u64, StoreError> {
        let siblings = self.siblings(attached, record).await?;
        Ok(siblings.iter().filter_map(|one| one.ended).min().unwrap_or_else(unix_ms))
    }

    async fn siblings(
        &self,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let mut all = attached.store.of_session(&record.root.session).await?;
        let is_sibling = |one: &TaskRecord| {
            one.batch == record.batch && one.kind == record.kind && one.is_read_in_turn()
        };
        all.retain(is_sibling);
        Ok(all)
    }

    /// Runs the turn that reads the results, and sends its answer to the user.
    async fn run_fold(
        self: &Arc<Self>,
        attached: &Attached,
        root: &TaskRoot,
        fold: &FoldRecord,
    ) -> Result<bool, StoreError> {
        let Some(answer) = self.run_turn_on(attached, root, fold).await? else { return Ok(false) };
        self.send_answer(attached, root, fold, answer).await?;
        for task in &fold.tasks {
            let folded = self.with_retries(|| {
                attached.store.update(task, |record| {
                    let is_first = record.folded_by.is_none();
                    record.folded_by = Some(fold.message.clone());
                    is_first
                })
            });
            folded.await?;
        }
        counter!("rockbot_agent_folds_total").increment(1);
        info!(session_id = %root.session, tasks = fold.tasks.len(), "results passed on");
        Ok(true)
    }

    /// Passes a result on that arrived after the time limit of its task. Returns `false` if another process must
    /// do it.
    pub(super) async fn fold_late(
        self: &Arc<Self>,
        attached: &Attached,
        task: &TaskId,
    ) -> Result<bool, StoreError> {
        let closing = attached.host.closing();
        let (record, late) = loop {
            let changed = self.changed.notified();
            let Some(record) = attached.store.get(task).await? else { return Ok(true) };
            let Some(late) = record.unread_late().cloned() else { return Ok(true) };
            if record.folded_by.is_some() {
                break (record, late);
            }
            // The turn that reads that the time limit was over comes first.
            tokio::select! {
                biased;
                () = closing.cancelled() => return Ok(false),
                () = changed => {}
                () = sleep(POLL) => {}
            }
        };
        let Some(message) = FoldRecord::message_of(&["late", task.as_str()]) else {
            return Ok(true);
        };
        let text = late_text(&record, &late);
        let fold = FoldRecord {
            generation: record.root.generation.saturating_add(1),
            ..FoldRecord::about(&record, message, text, FoldReason::Late)
        };
        let fold = self.decide_once(attached, &record.root, fold).await?;
        let Some(answer) = self.run_turn_on(attached, &record.root, &fold).await? else {
            return Ok(false);
        };
        self.send_answer(attached, &record.root, &fold, answer).await?;
        let folded = self.with_retries(|| {
            attached.store.update(task, |record| {
                let late = record.peer.as_mut().and_then(|peer| peer.late.as_mut());
                late.is_some_and(|late| !std::mem::replace(&mut late.is_folded, true))
            })
        });
        folded.await?;
        Ok(true)
    }

    /// Records a turn on one message of delegated work, and returns it as it was recorded first: its text must
    /// not change when another process continues it.
    pub(super) async fn decide_once(
        &self,
        attached: &Attached,
        root: &TaskRoot,
        fold: FoldRecord,
    ) -> Result<FoldRecord, StoreError> {
        let Ok(key) = ToolCallId::new(fold.message.as_str()) else { return Ok(fold) };
        if attached.store.create_fold(&root.session, &key, 0, &fold).await? {
            return Ok(fold);
        }
        let known = attached.store.folds(&root.session, &key).await?;
        Ok(known.into_iter().next().unwrap_or(fold))
    }

    /// Runs a turn on messages of delegated work, until it has a final answer. Returns `None` if another
    /// process must run it.
    pub(super) async fn run_turn_on(
        self: &Arc<Self>,
        attached: &Attached,
        root: &TaskRoot,
        fold: &FoldRecord,
    ) -> Result<Option<TurnAnswer>, StoreError> {
        let closing = attached.host.closing();
        let started = Instant::now();
        loop {
            let Some(hold) = self.claim_root(attached, root).await? else { return Ok(None) };
            let answer = self.fold_turn(attached, root, fold).await?;
            drop(hold);
            match answer {
                None => return Ok(None),
                Some(TurnAnswer { ended: TurnEnd::Released, .. }) => return Ok(None),
                Some(answer) if is_final(&answer) => {
                    histogram!("rockbot_agent_fold_seconds").record(started.elapsed());
                    return Ok(Some(answer));
                }
                // The conversation has no capacity now, or another process has it.
                Some(_) => {}
            }
            tokio::select! {
                biased;
                () = closing.cancelled() => return Ok(None),
                () = sleep(POLL) => {}
            }
        }
    }

    /// Waits until this process runs the conversation. Returns `None` if the agent shuts down.
    async fn claim_root(
        &self,
        attached: &Attached,
        root: &TaskRoot,
    ) -> Result<Option<TaskHold>, StoreError> {
        let closing = attached.host.closing();
        loop {
            match self.claim(&root.session).await {
                Ok(Claimed::Owned(hold)) => return Ok(Some(hold)),
                Ok(Claimed::Held) => {}
                Err(error) => warn!(session_id = %root.session, %error, "conversation not claimed"),
            }
            tokio::select! {
                biased;
                () = closing.cancelled() => return Ok(None),
                () = sleep(CLAIM_POLL) => {}
            }
        }
    }

    /// Runs the turn, after those that run. A turn that ran already has its recorded answer.
    async fn fold_turn(
        self: &Arc<Self>,
        attached: &Attached,
        root: &TaskRoot,
        fold: &FoldRecord,
    ) -> Result<Option<TurnAnswer>, StoreError> {
        let leader = attached.store.get(&fold.leader).await?;
        let FoldRecord { tasks, spent, generation, .. } = fold.clone();
        let entry = TaskResultsEntry { tasks, spent, generation };
        let work = DelegatedWork {
            role: WorkRole::FoldBack(entry),
            root: root.session.clone(),
            requests: leader.as_ref().and_then(|leader| self.requests(leader)),
            trace: leader.as_ref().map(TaskRecord::trace).unwrap_or_default(),
        };
        let mut origin = TurnOrigin {
            work: Some(Arc::new(work)),
            reply_to: root.reply_to.clone(),
            ..TurnOrigin::new(fold.reason.entry()).with_message(fold.message.clone())
        };
        origin.sender = root.sender.as_deref().map(Arc::from);
        let (session_id, text) = (root.session.clone(), fold.text.clone());
        let message = UserMessage::new(session_id, text);
        Ok(attached.host.start_turn(origin, message, Arc::new(|_| ())).await.ok())
    }

    /// Sends the answer to the user, and keeps it until the user writes again: one whose program is gone
    /// receives it at another address then.
    pub(super) async fn send_answer(
        &self,
        attached: &Attached,
        root: &TaskRoot,
        fold: &FoldRecord,
        answer: TurnAnswer,
    ) -> Result<(), StoreError> {
        let TurnAnswer { text, outcome, usage, .. } = answer;
        let usage = usage.map(|usage| *usage);
        // An agent that asks has not ended its task.
        let task_ids = match fold.reason {
            FoldReason::Question => Vec::new(),
            _ => fold.tasks.clone(),
        };
        let reply = AgentReply {
            session_id: root.session.clone(),
            in_reply_to: fold.message.clone(),
            agent: attached.name.clone(),
            sequence: 0,
            is_final: false,
            body: ReplyBody::FollowUp { task_ids, text, outcome, usage },
        };
        let leader = attached.store.get(&fold.leader).await?;
        // The user may have continued the conversation from another program.
        let to = leader.map_or_else(|| root.reply_to.clone(), |leader| leader.root.reply_to);
        let mut kept = KeptReply { reply, sent_to: None };
        self.with_retries(|| attached.store.keep(&kept)).await?;
        for _ in 0..SEND_ATTEMPTS {
            match self.send(to.clone(), kept.reply.clone()).await {
                Delivered::Yes => {
                    kept.sent_to = to;
                    return self.with_retries(|| attached.store.keep(&kept)).await;
                }
                Delivered::Gone => break,
                Delivered::Failed | Delivered::Unconfirmed => sleep(POLL).await,
            }
        }
        Ok(())
    }
}

/// Returns `true` if the turn has its final answer. A conversation without capacity is tried again.
fn is_final(answer: &TurnAnswer) -> bool {
    answer.ended == TurnEnd::Answered && answer.outcome != TurnOutcome::Overloaded
}

/// Returns the turn that reads `ready`, run by the process of `leader`.
fn new_fold(leader: &TaskRecord, ready: &[TaskRecord], shared: &SharedKeys) -> Option<FoldRecord> {
    let mut tasks: Vec<_> = ready.iter().map(|record| record.task.clone()).collect();
    tasks.sort();
    let ids: Vec<_> = iter::once("fold").chain(tasks.iter().map(TaskId::as_str)).collect();
    let message = FoldRecord::message_of(&ids)?;
    let mut spent = Spending::default();
    ready.iter().for_each(|record| spent += record.spent);
    let generation = ready.iter().map(|record| record.root.generation).max()?.saturating_add(1);
    let has_result = ready.iter().any(|record| record.state == TaskState::Completed);
    let reason = match leader.kind {
        TaskKind::Subagent | TaskKind::Received => FoldReason::Subagents,
        TaskKind::Sent if has_result => FoldReason::AgentResults,
        TaskKind::Sent => FoldReason::AgentErrors,
    };
    let (leader, text) = (leader.task.clone(), results_text(ready, shared));
    Some(FoldRecord { message, tasks, leader, text, spent, generation, reason })
}
