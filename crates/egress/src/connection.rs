//! Notice of established connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_layer::Layer;
use tower_service::Service;

tokio::task_local! {
    /// The signal of the request that the current task sends.
    static SIGNAL: ConnectionSignal;
}

/// States whether a request has a connection: until then, no server can have received it.
///
/// A connection is established after name resolution, TCP and TLS handshakes. The signal is set before
/// anything of the request is sent, and stays set. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ConnectionSignal(Arc<AtomicBool>);

impl ConnectionSignal {
    /// Returns `true` once the request has had a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Runs a future whose connections set the signal.
    pub(crate) async fn scope<F: Future>(&self, sending: F) -> F::Output {
        SIGNAL.scope(self.clone(), sending).await
    }
}

/// Sets the signal of the request that a connection is opened for.
///
/// For clients that reuse no connections: only these open a connection in the task of its request.
#[derive(Debug, Clone)]
pub(crate) struct SignalLayer;

/// A connector that sets signals.
#[derive(Debug, Clone)]
pub(crate) struct SignalConnector<C>(C);

impl<C> Layer<C> for SignalLayer {
    type Service = SignalConnector<C>;

    fn layer(&self, connector: C) -> Self::Service {
        SignalConnector(connector)
    }
}

impl<C, R> Service<R> for SignalConnector<C>
where
    C: Service<R>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = C::Error;
    type Future = BoxFuture<'static, Result<C::Response, C::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let signal = SIGNAL.try_with(Clone::clone).ok();
        let connecting = self.0.call(request);
        Box::pin(async move {
            let connection = connecting.await?;
            if let Some(signal) = signal {
                signal.set();
            }
            Ok(connection)
        })
    }
}
