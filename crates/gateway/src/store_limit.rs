//! The time limit for operations of the gateway's store.

use std::time::Duration;

use rockbot_store::DocumentError;
use tokio::time::timeout;
use tracing::warn;

/// Time limit for an operation.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Awaits an operation of the store for a limited time.
///
/// # Errors
/// Returns the error `unavailable` when the store fails, or does not respond in time.
pub(crate) async fn within_limit<T, E>(
    operation: impl Future<Output = Result<T, DocumentError>>,
    unavailable: impl FnOnce() -> E,
) -> Result<T, E> {
    match timeout(STORE_TIMEOUT, operation).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            warn!(%error, "store of the gateway failed");
            Err(unavailable())
        }
        Err(_) => Err(unavailable()),
    }
}
