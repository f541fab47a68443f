//! Supervision of long-lived tasks.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use metrics::counter;
use tracing::error;

/// Pause after a panic before a task continues, which bounds the load of one that panics repeatedly.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// Runs the tasks that `start` returns until one of them ends without a panic.
pub async fn restart_on_panic<F: Future<Output = ()>>(
    name: &'static str,
    mut start: impl FnMut() -> F,
) {
    while AssertUnwindSafe(start()).catch_unwind().await.is_err() {
        report_panic(name);
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Reports the panic of a task that continues. The panic's message is on standard error.
pub(crate) fn report_panic(task: &'static str) {
    counter!("rockbot_bus_task_panics_total", "task" => task).increment(1);
    error!(task, "task panicked; restarting it");
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn panicking_task_is_started_again() {
        let starts = AtomicU32::new(0);
        restart_on_panic("test", || async {
            let start = starts.fetch_add(1, Ordering::Relaxed);
            assert!(start > 1, "panics twice, on purpose");
        })
        .await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
    }
}
