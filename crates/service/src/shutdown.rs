//! SIGTERM and Ctrl-C as a token.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

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
