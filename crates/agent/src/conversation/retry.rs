//! Retries of operations on a store that is unavailable.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::ConversationError;

/// Pause before the first retry. It doubles before each further one, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Pauses between the attempts of one operation, until its deadline.
pub(super) struct Backoff {
    deadline: Instant,
    pause: Duration,
}

impl Backoff {
    /// Creates the back-off of an operation that starts now and may take `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, pause: FIRST_PAUSE }
    }

    /// Waits before another attempt. Returns `false` immediately if `error` is permanent, or the pause would
    /// end after the deadline.
    pub(super) async fn wait_after(&mut self, error: &ConversationError) -> bool {
        if !error.is_temporary() || Instant::now() + self.pause >= self.deadline {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}

/// Repeats an idempotent operation until it succeeds, for at most `timeout`.
///
/// # Errors
/// The last error of an unavailable store. Any other error is returned without a retry.
pub(crate) async fn retry<T, E: Into<ConversationError>, F: Future<Output = Result<T, E>>>(
    timeout: Duration,
    operation: impl Fn() -> F,
) -> Result<T, ConversationError> {
    let mut backoff = Backoff::new(timeout);
    loop {
        let error = match operation().await {
            Ok(output) => return Ok(output),
            Err(error) => error.into(),
        };
        if !backoff.wait_after(&error).await {
            return Err(error);
        }
    }
}
