//! The task that appends to logs: one statement for all queued appends.

use std::collections::{BTreeMap, HashMap, VecDeque};

use rockbot_store::{Appended, Clock, LogId, LogPosition, StoreError, Timestamp, clock::millis};
use sqlx::{PgConnection, PgPool};

use super::{
    ATTEMPTS, MAX_TTL_MILLIS,
    failure::{explain, explain_change},
    log_statements, with_timeout,
};
use crate::{
    append::Append,
    change_queue::{ChangeQueue, QueuedChanges, Reply},
    row::{self, signed},
};

/// The size at which a statement takes no further append, in bytes of entries: 8 MiB.
const MAX_STATEMENT_BYTES: usize = 8 * 1024 * 1024;

/// A handle to the task.
#[derive(Debug)]
pub(super) struct Appender(ChangeQueue<QueuedAppend>);

impl Appender {
    pub(super) fn start(pool: PgPool, clock: Clock) -> Self {
        let committer = Committer { pool, clock };
        Self(ChangeQueue::start(|changes| committer.run(changes)))
    }

    pub(super) async fn append(&self, append: Append) -> Result<Appended, StoreError> {
        self.0.submit(|reply| QueuedAppend { append, reply, attempts: 0 }).await
    }

    /// Completes the queued appends and stops the task.
    pub(super) async fn close(&self) {
        self.0.close().await;
    }
}

struct QueuedAppend {
    append: Append,
    reply: Reply<Appended>,
    attempts: usize,
}

impl QueuedAppend {
    fn fail(self, error: StoreError) {
        self.reply.send(Err(error));
    }
}

/// Why a statement failed.
enum StatementError {
    /// There is no connection; nothing was appended.
    Connection(StoreError),
    /// One of the appends may be the cause; nothing was appended.
    Appends(StoreError),
    /// The appends may have been made.
    Unconfirmed(StoreError),
}

struct Committer {
    pool: PgPool,
    clock: Clock,
}

impl Committer {
    async fn run(self, mut changes: QueuedChanges<QueuedAppend>) {
        while let Some(batch) = changes.next_batch().await {
            let mut waiting = VecDeque::from(batch);
            while !waiting.is_empty() {
                let appends = take_statement(&mut waiting);
                for retried in self.process(appends).await.into_iter().rev() {
                    waiting.push_front(retried);
                }
            }
        }
    }

    /// Makes the appends and sends the replies. After a failed statement each is made separately, so that
    /// the others succeed. Returns those to retry.
    async fn process(&self, appends: Vec<QueuedAppend>) -> Vec<QueuedAppend> {
        match self.append(&appends).await {
            Ok(outcomes) => appends
                .into_iter()
                .zip(outcomes)
                .filter_map(|(queued, outcome)| finish(queued, outcome))
                .collect(),
            Err(StatementError::Appends(_)) if appends.len() > 1 => {
                let mut retried = Vec::new();
                for queued in appends {
                    if !queued.reply.is_abandoned() {
                        retried.extend(Box::pin(self.process(vec![queued])).await);
                    }
                }
                retried
            }
            Err(
                StatementError::Connection(error)
                | StatementError::Appends(error)
                | StatementError::Unconfirmed(error),
            ) => {
                for queued in appends {
                    queued.fail(error.clone());
                }
                Vec::new()
            }
        }
    }

    /// Makes appends to different logs with one statement, and returns their outcomes.
    async fn append(
        &self,
        appends: &[QueuedAppend],
    ) -> Result<Vec<Result<Appended, StoreError>>, StatementError> {
        if appends.is_empty() {
            return Ok(Vec::new());
        }
        let connection = self.pool.acquire().await;
        let mut connection =
            connection.map_err(|error| StatementError::Connection(explain(error)))?;
        let done = self.insert(&mut connection, appends).await.map_err(|error| match error {
            StoreError::Unconfirmed { .. } => StatementError::Unconfirmed(error),
            error => StatementError::Appends(error),
        })?;
        let failed: Vec<&str> = (1..)
            .zip(appends)
            .filter(|(item, _)| !done.contains_key(item))
            .map(|(_, queued)| queued.append.name.as_str())
            .collect();
        let next = self.next_positions(&mut connection, &failed).await;
        Ok((1..)
            .zip(appends)
            .map(|(item, QueuedAppend { append, .. })| {
                if let Some(log) = done.get(&item) {
                    return Ok(append.done(*log));
                }
                let next = next.as_ref().map_err(Clone::clone)?;
                let next = next.get(append.name.as_str()).copied().unwrap_or(LogPosition::START);
                Ok(Appended::Conflict { next })
            })
            .collect())
    }

    /// Returns the logs of the successful appends, by the position of the append from 1.
    async fn insert(
        &self,
        connection: &mut PgConnection,
        appends: &[QueuedAppend],
    ) -> Result<HashMap<i64, LogId>, StoreError> {
        let now = self.clock.manual().map(Timestamp::as_millis);
        let appends: Vec<&Append> = appends.iter().map(|queued| &queued.append).collect();
        let created: Vec<&str> = appends
            .iter()
            .filter(|append| append.may_create())
            .map(|append| append.name.as_str())
            .collect();
        if !created.is_empty() {
            let query = sqlx::query(log_statements::REMOVE_EXPIRED).bind(now).bind(created);
            with_timeout(explain, query.execute(&mut *connection)).await?;
        }
        let column = |value: fn(&Append) -> i64| -> Vec<i64> {
            appends.iter().map(|append| value(append)).collect()
        };
        let ttl = |append: &&Append| append.ttl.map(|ttl| millis(ttl).min(MAX_TTL_MILLIS));
        let entries = (1_i64..).zip(&appends).flat_map(|(item, append)| {
            (append.at.number..)
                .zip(&append.entries)
                .map(move |(number, entry)| (item, number, entry))
        });
        let (mut items, mut numbers, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (item, number, entry) in entries {
            items.push(item);
            numbers.push(signed(number));
            values.push(&**entry);
        }
        let query = sqlx::query_as(log_statements::APPEND)
            .bind(now)
            .bind(appends.iter().map(|append| append.name.as_str()).collect::<Vec<_>>())
            .bind(column(|append| signed(append.at.number)))
            .bind(column(|append| signed(append.entries.len() as u64)))
            .bind(column(|append| signed(append.bytes as u64)))
            .bind(appends.iter().map(ttl).collect::<Vec<_>>())
            .bind(items)
            .bind(numbers)
            .bind(values)
            .bind(
                appends.iter().map(|append| append.at.log.map(LogId::number)).collect::<Vec<_>>(),
            );
        let rows: Vec<(i64, i64)> =
            with_timeout(explain_change, query.fetch_all(connection)).await?;
        Ok(rows.into_iter().map(|(item, log)| (item, LogId::from_number(log))).collect())
    }

    /// Returns the next positions of those logs that exist.
    async fn next_positions(
        &self,
        connection: &mut PgConnection,
        names: &[&str],
    ) -> Result<HashMap<String, LogPosition>, StoreError> {
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let now = self.clock.manual().map(Timestamp::as_millis);
        let query = sqlx::query_as(log_statements::NEXT_POSITIONS).bind(now).bind(names);
        let rows: Vec<(String, i64, i64)> =
            with_timeout(explain, query.fetch_all(connection)).await?;
        let position = |(name, id, next)| (name, row::log_position((id, next)));
        Ok(rows.into_iter().map(position).collect())
    }
}

/// Takes the appends of the next statement: one for each log, in the order of names so that processes lock
/// logs in the same order. Those that no caller waits for are dropped.
fn take_statement(waiting: &mut VecDeque<QueuedAppend>) -> Vec<QueuedAppend> {
    let mut taken: BTreeMap<_, QueuedAppend> = BTreeMap::new();
    let mut bytes = 0;
    for queued in std::mem::take(waiting) {
        if queued.reply.is_abandoned() {
            continue;
        }
        if bytes >= MAX_STATEMENT_BYTES || taken.contains_key(&queued.append.name) {
            waiting.push_back(queued);
        } else {
            bytes += queued.append.bytes;
            taken.insert(queued.append.name.clone(), queued);
        }
    }
    taken.into_values().collect()
}

/// Sends the outcome of an append, or returns the append to retry it: the log changed after a conflict, and
/// its next position is now that of the append.
fn finish(mut queued: QueuedAppend, outcome: Result<Appended, StoreError>) -> Option<QueuedAppend> {
    match outcome {
        Ok(Appended::Conflict { next }) if queued.append.at.accepts(next) => {
            queued.attempts += 1;
            if queued.attempts < ATTEMPTS {
                return Some(queued);
            }
            let name = &queued.append.name;
            let reason = format!("the log {name} changes too often; try again");
            queued.fail(StoreError::Unavailable { reason });
        }
        Ok(appended) => {
            queued.reply.result = Some(appended);
            queued.reply.send(Ok(()));
        }
        Err(error) => queued.fail(error),
    }
    None
}
