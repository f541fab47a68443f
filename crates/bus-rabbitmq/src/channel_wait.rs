//! Waits for operations on a channel that may close.

use std::time::Duration;

use lapin::Channel;
use tokio::time::{Instant, timeout_at};

/// Errors of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("the channel closed before the broker responded")]
    ChannelGone,
    #[error("the broker did not respond in time")]
    TimedOut,
}

/// Interval at which a wait checks that its channel is open.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Waits for an operation on `channel`. The client library never completes an operation that starts while
/// the channel closes, so the state of the channel is checked meanwhile.
pub(crate) async fn wait_on_channel<T>(
    channel: &Channel,
    deadline: Instant,
    mut operation: impl Future<Output = T> + Unpin,
) -> Result<T, WaitError> {
    loop {
        let next_check = deadline.min(Instant::now() + CHECK_INTERVAL);
        let was_open = channel.status().connected();
        match timeout_at(next_check, &mut operation).await {
            Ok(output) => return Ok(output),
            Err(_) if next_check == deadline => return Err(WaitError::TimedOut),
            Err(_) if !was_open => return Err(WaitError::ChannelGone),
            Err(_) => {}
        }
    }
}
