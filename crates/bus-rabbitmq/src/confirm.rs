//! Publisher confirms and the client library's memory.

use std::time::Duration;

use lapin::{Confirmation, PublisherConfirm};

/// A confirm that is never dropped unresolved: the library would keep it for as long as the
/// channel lives. One that nobody waits for any more is waited for here, with a bound.
pub(crate) struct PendingConfirm(Option<PublisherConfirm>);

/// How long an abandoned confirm is waited for.
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
