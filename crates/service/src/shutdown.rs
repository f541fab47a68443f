//! SIGTERM and Ctrl-C as a token.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// What somebody asks of a process that a person started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Stop what you are doing: SIGINT, which is Ctrl-C.
    Cancel,
    /// Leave: SIGTERM or SIGHUP.
    Leave,
}

/// Returns when this process is interrupted. Once it was called, those signals no longer end the
/// process by themselves. Without a way to listen it never returns.
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

/// Tells a process that it should stop: cancelled by the first SIGTERM or SIGINT.
///
/// Dropping it stops listening for signals.
#[derive(Debug)]
pub struct Shutdown {
    token: CancellationToken,
    listener: Option<JoinHandle<()>>,
}

impl Shutdown {
    /// Listens for signals from now on.
    ///
    /// # Errors
    /// When the system does not let this process listen.
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
                info!(signal = name, "stopping");
                signalled.cancel();
            })
        };
        #[cfg(not(unix))]
        let listener = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                info!("stopping");
                signalled.cancel();
            }
        });
        Ok(Self { token, listener: Some(listener) })
    }

    /// A shutdown that only its token brings about.
    #[must_use]
    pub fn manual(token: CancellationToken) -> Self {
        Self { token, listener: None }
    }

    /// The token, to hand to what should stop.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns when the process should stop.
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
