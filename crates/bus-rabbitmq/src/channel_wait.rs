//! Waiting for a channel that may be gone.

use std::time::Duration;

use lapin::Channel;
use tokio::time::{Instant, timeout_at};

/// Why nothing was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("its channel ended before the broker took it")]
    ChannelGone,
    #[error("the broker did not take it in time")]
    TimedOut,
}

/// How often a wait looks whether its channel is still there.
const LOOK: Duration = Duration::from_millis(250);

/// Waits for the channel's word on something. The client library forgets to give it on what begins
/// just as the channel ends.
pub(crate) async fn wait_on_channel<T>(
    channel: &Channel,
    deadline: Instant,
    mut word: impl Future<Output = T> + Unpin,
) -> Result<T, WaitError> {
    loop {
        let look = deadline.min(Instant::now() + LOOK);
        let was_there = channel.status().connected();
        match timeout_at(look, &mut word).await {
            Ok(word) => return Ok(word),
            Err(_) if look == deadline => return Err(WaitError::TimedOut),
            Err(_) if !was_there => return Err(WaitError::ChannelGone),
            Err(_) => {}
        }
    }
}
