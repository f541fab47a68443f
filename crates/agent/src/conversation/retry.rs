//! Retries of operations on a store that is unavailable.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::ConversationError;

/// First pause. Each further one is twice as long, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// The pauses between the attempts of one operation.
pub(super) struct Backoff {
    deadline: Instant,
    pause: Duration,
}

impl Backoff {
    /// Creates the pauses of an operation that starts now and may take `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience, pause: FIRST_PAUSE }
    }

    /// Waits before another attempt. Returns `false` at once if a retry does not help after `error`, or the
    /// time does not suffice.
    pub(super) async fn wait_after(&mut self, error: &ConversationError) -> bool {
        if !error.is_temporary() || Instant::now() + self.pause >= self.deadline {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        true
    }
}

/// Repeats an idempotent operation until it succeeds, for at most `patience`.
///
/// # Errors
/// The last error of an unavailable store. Any other error is returned without a retry.
pub(crate) async fn retry<T, E: Into<ConversationError>, F: Future<Output = Result<T, E>>>(
    patience: Duration,
    operation: impl Fn() -> F,
) -> Result<T, ConversationError> {
    let mut backoff = Backoff::new(patience);
    loop {
        let error = match operation().await {
            Ok(done) => return Ok(done),
            Err(error) => error.into(),
        };
        if !backoff.wait_after(&error).await {
            return Err(error);
        }
    }
}
