//! Publisher confirms.

use std::time::Duration;

use lapin::{Confirmation, PublisherConfirm};

/// A confirm that is never dropped unresolved, because the library would keep it until the channel
/// closes. After a drop, a task waits for it, for at most [`ABANDONED_FOR`].
pub(crate) struct PendingConfirm(Option<PublisherConfirm>);

/// Maximum wait for an abandoned confirm.
const ABANDONED_FOR: Duration = Duration::from_secs(60);

impl PendingConfirm {
    pub(crate) fn new(confirm: PublisherConfirm) -> Self {
        Self(Some(confirm))
    }
}

impl Future for PendingConfirm {
    type Output = lapin::Result<Confirmation>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let Some(confirm) = self.0.as_mut() else { return std::task::Poll::Pending };
        let polled = std::pin::Pin::new(confirm).poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for PendingConfirm {
    fn drop(&mut self) {
        if let (Some(confirm), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(tokio::time::timeout(ABANDONED_FOR, confirm));
        }
    }
}
