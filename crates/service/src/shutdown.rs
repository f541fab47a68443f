//! Termination signals as a cancellation token.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::serve_error::ServeError;

/// A signal to an interactive process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Cancel the current work: SIGINT, sent by Ctrl-C.
    Cancel,
    /// Exit: SIGTERM or SIGHUP.
    Leave,
}

/// The signals to an interactive process. A signal that arrives between two calls of
/// [`Interrupts::recv`] is kept; several of one kind count as one.
#[derive(Debug)]
pub struct Interrupts {
    #[cfg(unix)]
    cancel: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

impl Interrupts {
    /// Starts to receive the signals. From here on they no longer end the process by themselves, also
    /// after this value is dropped.
    ///
    /// # Errors
    /// When the system refuses a signal handler.
    #[cfg(unix)]
    pub fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            cancel: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Starts to receive the signals.
    ///
    /// # Errors
    /// None on this platform.
    #[cfg(not(unix))]
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {})
    }

    /// Returns the next signal. Cancel-safe: a signal is lost only with the value it was returned in.
    pub async fn recv(&mut self) -> Interrupt {
        #[cfg(unix)]
        tokio::select! {
            _ = self.cancel.recv() => Interrupt::Cancel,
            _ = self.terminate.recv() => Interrupt::Leave,
            _ = self.hang_up.recv() => Interrupt::Leave,
        }
        #[cfg(not(unix))]
        match tokio::signal::ctrl_c().await {
            Ok(()) => Interrupt::Cancel,
            Err(_) => std::future::pending().await,
        }
    }
}

/// A shutdown request: its token is cancelled by the first SIGTERM or SIGINT.
///
/// Dropping it stops handling signals.
#[derive(Debug)]
pub struct Shutdown {
    token: CancellationToken,
    listener: Option<JoinHandle<()>>,
}

impl Shutdown {
    /// Starts to handle signals.
    ///
    /// # Errors
    /// When the system refuses a signal handler.
    pub fn on_signal() -> std::io::Result<Self> {
        let token = CancellationToken::new();
        let signalled = token.clone();
        #[cfg(unix)]
        let listener = {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::spawn(async move {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                info!(signal = name, "shutdown requested");
                signalled.cancel();
            })
        };
        #[cfg(not(unix))]
        let listener = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                info!("shutdown requested");
                signalled.cancel();
            }
        });
        Ok(Self { token, listener: Some(listener) })
    }

    /// Creates a shutdown that only `token` requests.
    #[must_use]
    pub fn manual(token: CancellationToken) -> Self {
        Self { token, listener: None }
    }

    /// Returns the token that is cancelled on shutdown.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Waits until a shutdown is requested. If `ended` completes before, a part of the service ended that
    /// nothing stopped: requests the shutdown itself, so that the process is no longer ready.
    ///
    /// # Errors
    /// When `ended` completed first, as the error with which the process ends.
    pub async fn requested_before(
        &self,
        ended: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        tokio::select! {
            biased;
            () = self.requested() => Ok(()),
            () = ended => {
                error!("a queue is no longer consumed; shutting down");
                self.token.cancel();
                let problem = "a queue is no longer consumed, because of a bug; start the process again";
                Err(ServeError::Unavailable(problem.to_owned()))
            }
        }
    }

    /// Waits until a shutdown is requested.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn end_of_a_part_shuts_down_with_an_error() {
        let shutdown = Shutdown::manual(CancellationToken::new());
        let served = shutdown.requested_before(ready(())).await;
        assert!(matches!(served, Err(ServeError::Unavailable(_))), "{served:?}");
        assert!(shutdown.token().is_cancelled(), "the process is still ready");
    }

    #[tokio::test]
    async fn requested_shutdown_is_no_error() {
        let shutdown = Shutdown::manual(CancellationToken::new());
        shutdown.token().cancel();
        assert!(shutdown.requested_before(pending()).await.is_ok());
        // Both at once, as when the bus closes during the shutdown.
        assert!(shutdown.requested_before(ready(())).await.is_ok());
    }
}
