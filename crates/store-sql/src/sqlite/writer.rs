//! The write connection: commits all queued changes together.

use std::time::Duration;

use rockbot_store::{
    Appended, Clock, Expected, Extension, Key, LogName, StoreError, Write, Written,
};
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{
    failure::{explain, explain_commit},
    log_appends::group_size,
    presence::Presence,
    transaction::Transaction,
};
use crate::{
    append::Append,
    change_queue::{ChangeQueue, QueuedChanges, Reply},
};

/// A handle to the task that owns the connection.
#[derive(Debug)]
pub(super) struct Writer(ChangeQueue<Change>);

impl Writer {
    pub(super) fn start(options: SqliteConnectOptions, presence: Presence, clock: Clock) -> Self {
        let committer = Committer { options, presence, connection: None, clock };
        Self(ChangeQueue::start(|changes| committer.run(changes)))
    }

    pub(super) async fn write(&self, write: Write) -> Result<Written, StoreError> {
        write.check_size()?;
        self.0.submit(|reply| Change::Write { write, reply }).await
    }

    pub(super) async fn extend(
        &self,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> Result<Vec<Written>, StoreError> {
        Extension::check_number(&extensions)?;
        self.0.submit(|reply| Change::Extend { extensions, ttl, reply }).await
    }

    pub(super) async fn remove(&self, key: Key, expected: Expected) -> Result<bool, StoreError> {
        self.0.submit(|reply| Change::Remove { key, expected, reply }).await
    }

    pub(super) async fn sweep(&self, limit: usize) -> Result<u64, StoreError> {
        self.0.submit(|reply| Change::Sweep { limit, reply }).await
    }

    pub(super) async fn append(&self, append: Append) -> Result<Appended, StoreError> {
        self.0.submit(|reply| Change::Append { append, reply }).await
    }

    pub(super) async fn truncate_log(&self, name: LogName, before: u64) -> Result<u64, StoreError> {
        self.0.submit(|reply| Change::TruncateLog { name, before, reply }).await
    }

    pub(super) async fn delete_log(&self, name: LogName) -> Result<bool, StoreError> {
        self.0.submit(|reply| Change::DeleteLog { name, reply }).await
    }

    pub(super) async fn sweep_logs(&self, limit: usize) -> Result<u64, StoreError> {
        self.0.submit(|reply| Change::SweepLogs { limit, reply }).await
    }

    /// Commits the queued changes and stops the task.
    pub(super) async fn close(&self) {
        self.0.close().await;
    }
}

enum Change {
    Write { write: Write, reply: Reply<Written> },
    Extend { extensions: Vec<Extension>, ttl: Duration, reply: Reply<Vec<Written>> },
    Remove { key: Key, expected: Expected, reply: Reply<bool> },
    Sweep { limit: usize, reply: Reply<u64> },
    Append { append: Append, reply: Reply<Appended> },
    TruncateLog { name: LogName, before: u64, reply: Reply<u64> },
    DeleteLog { name: LogName, reply: Reply<bool> },
    SweepLogs { limit: usize, reply: Reply<u64> },
}

impl Change {
    /// Returns the number of versions that it needs.
    fn versions(&self) -> usize {
        match self {
            Self::Write { .. } => 1,
            Self::Extend { extensions, .. } => extensions.len(),
            _ => 0,
        }
    }

    /// Returns `true` if it changes no entry of the store.
    fn is_of_log(&self) -> bool {
        match self {
            Self::Append { .. }
            | Self::TruncateLog { .. }
            | Self::DeleteLog { .. }
            | Self::SweepLogs { .. } => true,
            Self::Write { .. } | Self::Extend { .. } | Self::Remove { .. } | Self::Sweep { .. } => {
                false
            }
        }
    }

    fn append(&self) -> Option<&Append> {
        match self {
            Self::Append { append, .. } => Some(append),
            _ => None,
        }
    }

    /// Makes the change in a transaction.
    async fn apply(&mut self, transaction: &mut Transaction<'_>) -> Result<(), sqlx::Error> {
        match self {
            Self::Write { write, reply } => reply.result = Some(transaction.write(write).await?),
            Self::Extend { extensions, ttl, reply } => {
                reply.result = Some(transaction.extend(extensions, *ttl).await?);
            }
            Self::Remove { key, expected, reply } => {
                reply.result = Some(transaction.remove(key, *expected).await?);
            }
            Self::Sweep { limit, reply } => reply.result = Some(transaction.sweep(*limit).await?),
            Self::Append { append, reply } => {
                reply.result = transaction.append(&[append]).await?.pop();
            }
            Self::TruncateLog { name, before, reply } => {
                reply.result = Some(transaction.truncate_log(name, *before).await?);
            }
            Self::DeleteLog { name, reply } => {
                reply.result = Some(transaction.remove_log(name).await?);
            }
            Self::SweepLogs { limit, reply } => {
                reply.result = Some(transaction.sweep_logs(*limit).await?);
            }
        }
        Ok(())
    }

    fn reply(self, committed: Result<(), StoreError>) {
        match self {
            Self::Write { reply, .. } => reply.send(committed),
            Self::Extend { reply, .. } => reply.send(committed),
            Self::Append { reply, .. } => reply.send(committed),
            Self::Remove { reply, .. } | Self::DeleteLog { reply, .. } => reply.send(committed),
            Self::Sweep { reply, .. }
            | Self::TruncateLog { reply, .. }
            | Self::SweepLogs { reply, .. } => reply.send(committed),
        }
    }
}

/// Why a batch was not committed.
enum BatchError {
    /// A change failed; the others may succeed without it.
    Change(StoreError),
    /// The whole batch failed, or its outcome is unknown.
    Batch(StoreError),
}

struct Committer {
    options: SqliteConnectOptions,
    presence: Presence,
    connection: Option<SqliteConnection>,
    clock: Clock,
}

impl Committer {
    async fn run(mut self, mut changes: QueuedChanges<Change>) {
        while let Some(batch) = changes.next_batch().await {
            self.process(batch).await;
        }
        self.disconnect().await;
    }

    /// Commits a batch and sends the replies. After a failed change each is committed separately, so that
    /// the others succeed.
    async fn process(&mut self, mut batch: Vec<Change>) {
        match self.commit(&mut batch).await {
            Ok(()) => reply_all(batch, &Ok(())),
            Err(BatchError::Change(_)) if batch.len() > 1 => {
                for change in batch {
                    let mut single = vec![change];
                    let committed = self.commit(&mut single).await.map_err(BatchError::into_inner);
                    reply_all(single, &committed);
                }
            }
            Err(error) => reply_all(batch, &Err(error.into_inner())),
        }
    }

    async fn commit(&mut self, batch: &mut [Change]) -> Result<(), BatchError> {
        self.presence.check().await.map_err(BatchError::Batch)?;
        let outcome = self.try_commit(batch).await;
        if outcome.is_err() {
            // Closing the connection rolls back a partial transaction.
            self.disconnect().await;
        }
        outcome
    }

    async fn try_commit(&mut self, batch: &mut [Change]) -> Result<(), BatchError> {
        let batch_error = |error| BatchError::Batch(explain(error));
        let now = self.clock.now();
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.options.connect().await.map_err(batch_error)?),
        };
        let versions = batch.iter().map(Change::versions).sum();
        let mut transaction =
            Transaction::begin(connection, now, versions).await.map_err(batch_error)?;
        let applied = apply_all(batch, &mut transaction).await;
        applied.map_err(|error| BatchError::Change(explain(error)))?;
        transaction.commit().await.map_err(|error| match explain_commit(error) {
            unconfirmed @ StoreError::Unconfirmed { .. } => BatchError::Batch(unconfirmed),
            error => BatchError::Change(error),
        })
    }

    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            // The connection ends also if the close fails.
            let _ = connection.close().await;
        }
    }
}

impl BatchError {
    fn into_inner(self) -> StoreError {
        match self {
            Self::Change(error) | Self::Batch(error) => error,
        }
    }
}

/// Makes the changes of a batch: first those of entries, then those of logs, which are independent of them.
/// Consecutive appends are made together.
async fn apply_all(
    batch: &mut [Change],
    transaction: &mut Transaction<'_>,
) -> Result<(), sqlx::Error> {
    for change in batch.iter_mut().filter(|change| !change.is_of_log()) {
        change.apply(transaction).await?;
    }
    let mut of_logs: Vec<_> = batch.iter_mut().filter(|change| change.is_of_log()).collect();
    let mut left = of_logs.as_mut_slice();
    while !left.is_empty() {
        let count = group_size(left.iter().map_while(|change| change.append()));
        let (group, others) = left.split_at_mut(count);
        if let [change] = group {
            change.apply(transaction).await?;
        } else {
            let appends: Vec<_> = group.iter().filter_map(|change| change.append()).collect();
            let outcomes = transaction.append(&appends).await?;
            for (change, outcome) in group.iter_mut().zip(outcomes) {
                if let Change::Append { reply, .. } = change {
                    reply.result = Some(outcome);
                }
            }
        }
        left = others;
    }
    Ok(())
}

fn reply_all(batch: Vec<Change>, committed: &Result<(), StoreError>) {
    for change in batch {
        change.reply(committed.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::JoinSet;

    use super::*;
    use crate::sqlite::file;

    /// A limit on the pages of the file simulates a full disk.
    #[tokio::test]
    async fn oversized_write_fails_alone_on_full_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (options, presence) = file::prepare(&folder.path().join("store.db")).await.unwrap();
        let small_disk = options.pragma("max_page_count", "40");
        let writer = Arc::new(Writer::start(small_disk, presence, Clock::System));
        let key = |name: &str| Key::new([name]).unwrap();
        let mut tasks = JoinSet::new();
        for number in 0..16 {
            let bytes = if number == 7 { 1_000_000 } else { 1_000 };
            let write = Write::new(key(&number.to_string()), vec![0; bytes]);
            let writer = Arc::clone(&writer);
            tasks.spawn(async move { (bytes, writer.write(write).await) });
        }
        for (bytes, outcome) in tasks.join_all().await {
            match bytes {
                1_000 => assert!(matches!(outcome, Ok(Written::Done(_))), "{outcome:?}"),
                _ => assert!(matches!(outcome, Err(StoreError::Full { .. })), "{outcome:?}"),
            }
        }
        let half = Write::new(key("half"), vec![0; 90_000]);
        assert!(matches!(writer.write(half.clone()).await, Ok(Written::Done(_))));
        let more = Write { key: key("more"), ..half };
        assert!(matches!(writer.write(more.clone()).await, Err(StoreError::Full { .. })));
        assert_eq!(writer.remove(key("half"), Expected::Anything).await, Ok(true));
        assert!(matches!(writer.write(more).await, Ok(Written::Done(_))));
        writer.close().await;
    }
}
