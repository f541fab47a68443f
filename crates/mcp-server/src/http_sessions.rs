//! The sessions of a client over HTTP, whose streams continue after a lost connection.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::session::{
        ServerSseMessage, SessionId, SessionManager,
        local::{LocalSessionManager, LocalSessionManagerError, SessionConfig, SessionError},
    },
};

use crate::sent_events::ClientEvents;

/// Id of the event with which a stream of notifications begins.
const BEGINNING: &str = "0";

/// The sessions of a client.
///
/// Their events are kept, those of requests without a session are not: such a request is cancelled with its
/// connection. Therefore the service must not know the store of the events.
pub(crate) struct HttpSessions {
    local: LocalSessionManager,
    events: ClientEvents,
}

impl HttpSessions {
    pub(crate) fn new(config: SessionConfig, events: ClientEvents) -> Self {
        let mut local = LocalSessionManager::default().with_event_store(Arc::new(events.clone()));
        local.session_config = config;
        Self { local, events }
    }

    /// Returns the number of open sessions.
    pub(crate) async fn count(&self) -> usize {
        self.local.sessions.read().await.len()
    }

    /// Returns whether there is no session. When that is not known at once, there is one.
    pub(crate) fn is_empty(&self) -> bool {
        self.local.sessions.try_read().is_ok_and(|sessions| sessions.is_empty())
    }
}

impl Drop for HttpSessions {
    fn drop(&mut self) {
        self.events.clear();
    }
}

impl SessionManager for HttpSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        self.events.open_session(id.clone());
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let closed = self.local.close_session(id).await;
        self.events.close_session(id);
        closed
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.events.in_session(id, self.local.create_stream(id, message).await?))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        // The service begins the stream with `BEGINNING`, which would repeat all notifications after a lost connection.
        let retry = self.local.session_config.sse_retry;
        let latest = self.events.latest_notification(id).zip(retry);
        let latest = latest.map(|(latest, retry)| ServerSseMessage::priming(latest, retry));
        Ok(stream::iter(latest).chain(self.local.create_standalone_stream(id).await?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        if last_event_id == BEGINNING {
            return Ok(self.events.notifications(id));
        }
        self.events.after(id, &last_event_id).ok_or_else(|| SessionError::InvalidEventId.into())
    }
}
