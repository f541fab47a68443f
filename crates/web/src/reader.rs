//! Threads for parsing pages.
//!
//! Parsing takes up to seconds, recurses, and cannot be interrupted. It runs on threads of its own with a
//! large stack, at most two at once. A thread that is late keeps its permit until it ends.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time::{Instant, timeout_at},
};

/// Stack of a thread, in bytes.
pub const STACK_BYTES: usize = 16 * 1024 * 1024;
/// Concurrent threads.
const THREADS: usize = 2;
/// Time limit for reading one page, once a thread is free.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A page that was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// All threads were busy until the deadline.
    #[error("too many pages are being read")]
    Busy,
    /// The time limit passed.
    #[error("reading the page takes too long")]
    TimedOut,
    /// The parser panicked.
    #[error("the page cannot be parsed")]
    Crashed,
    /// The thread was not started.
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
}

/// Runs parsers.
#[derive(Debug, Clone)]
pub(crate) struct PageReader {
    permits: Arc<Semaphore>,
}

impl Default for PageReader {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(THREADS)) }
    }
}

impl PageReader {
    /// Runs `read` on a thread of its own. Dropping the future abandons the result, not the thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let acquired = timeout_at(deadline, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = acquired else { return Err(ReadError::Busy) };
        let (sender, receiver) = oneshot::channel();
        let thread = thread::Builder::new().name("page-reader".to_owned()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(read));
            drop(permit);
            // The caller may be gone.
            let _ = sender.send(result.map_err(|_| ReadError::Crashed));
        });
        spawned.map_err(ReadError::Thread)?;
        let deadline = deadline.min(Instant::now() + TIMEOUT);
        match timeout_at(deadline, receiver).await {
            Ok(result) => result.unwrap_or(Err(ReadError::Crashed)),
            Err(_) => Err(ReadError::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn late_thread_keeps_its_permit() {
        let reader = PageReader::default();
        let soon = || Instant::now() + Duration::from_millis(20);
        let (release, blocked) = mpsc::sync_channel::<()>(0);
        let late = reader.run(soon(), move || blocked.recv()).await;
        assert!(matches!(late, Err(ReadError::TimedOut)), "{late:?}");
        let (also_release, also_blocked) = mpsc::sync_channel::<()>(0);
        let late = reader.run(soon(), move || also_blocked.recv()).await;
        assert!(matches!(late, Err(ReadError::TimedOut)), "{late:?}");
        assert!(matches!(reader.run(soon(), || ()).await, Err(ReadError::Busy)));
        drop((release, also_release));
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(reader.run(deadline, || 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn panic_is_an_error() {
        let deadline = Instant::now() + Duration::from_secs(30);
        let crashed =
            PageReader::default().run(deadline, || std::panic::resume_unwind(Box::new(()))).await;
        let crashed: Result<(), _> = crashed;
        assert!(matches!(crashed, Err(ReadError::Crashed)), "{crashed:?}");
    }
}
