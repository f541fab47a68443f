//! Retries of operations on a store that is away.

use std::time::Duration;

use rockbot_store::StoreError;
use tokio::time::{Instant, sleep};

use super::error::ConversationError;

/// First pause. It doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Repeats an idempotent operation until it succeeds, for at most `patience`.
///
/// # Errors
/// The last error; another one than an unavailable store at once.
pub(crate) async fn retry<T, E: Into<ConversationError>, F: Future<Output = Result<T, E>>>(
    patience: Duration,
    operation: impl Fn() -> F,
) -> Result<T, ConversationError> {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match operation().await {
            Ok(done) => return Ok(done),
            Err(error) => error.into(),
        };
        let is_temporary = matches!(
            error,
            ConversationError::Store(
                StoreError::Unavailable { .. } | StoreError::Unconfirmed { .. }
            )
        );
        if !is_temporary || Instant::now() + pause >= deadline {
            return Err(error);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
