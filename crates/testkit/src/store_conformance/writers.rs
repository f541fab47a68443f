//! Concurrent writers on both connections.

use std::{future::Future, sync::Arc};

use tokio::task::JoinSet;

use crate::fixture::within_timeout;

/// The number of writers.
pub(super) const WRITERS: usize = 32;

/// Runs one task for each writer, half of them on each connection, and returns their results.
pub(super) async fn run_writers<C, T, F>(
    connections: [&Arc<C>; 2],
    task: impl Fn(usize, Arc<C>) -> F,
) -> Vec<T>
where
    C: ?Sized,
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..WRITERS {
        tasks.spawn(task(number, Arc::clone(connections[number % 2])));
    }
    within_timeout("all writers", tasks.join_all()).await
}
