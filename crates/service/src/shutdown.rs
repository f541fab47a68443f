//! Termination signals as a cancellation token.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// A signal to an interactive process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Cancel the current work: SIGINT, sent by Ctrl-C.
    Cancel,
    /// Exit: SIGTERM or SIGHUP.
    Leave,
}

/// Waits for a signal and returns it. After the first call those signals no longer end the process by
/// themselves. Never returns when the system refuses a signal handler.
pub async fn interrupted() -> Interrupt {
    let cancel = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Interrupt::Cancel
    };
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let leave = async {
            match (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
                (Ok(mut terminate), Ok(mut hang_up)) => tokio::select! {
                    _ = terminate.recv() => Interrupt::Leave,
                    _ = hang_up.recv() => Interrupt::Leave,
                },
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            interrupt = cancel => interrupt,
            interrupt = leave => interrupt,
        }
    }
    #[cfg(not(unix))]
    cancel.await
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
