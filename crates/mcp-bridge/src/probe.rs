//! Detection of a server's protocol era, within the session that is then used.
//!
//! The probe is a `server/discover` request. A server of the older era rejects it, or returns any other
//! result, and gets the handshake next. A slow server gets both requests: the first usable reply decides,
//! and the late one is dropped.

use std::{borrow::Cow, time::Duration};

use rmcp::{
    RoleClient,
    model::{
        ClientConfig, ClientJsonRpcMessage, ClientRequest, DiscoverRequest, DiscoverRequestParams,
        ErrorCode, ErrorData, InitializeRequest, ProtocolVersion, RequestId, RequestMetaObject,
        ServerJsonRpcMessage, ServerResult,
    },
    service::ClientInitializeError,
    transport::Transport,
};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::era::Era;

/// The time that a server has to reply before it gets the handshake as well. Many programs are downloaded
/// at their first start.
const STREAM_PATIENCE: Duration = Duration::from_secs(10);
/// The time that a server has to reply over HTTP, where the handshake needs another session.
const HTTP_PATIENCE: Duration = Duration::from_secs(20);
/// The ids of the probe's requests; those of the session count from 0.
const DISCOVER_ID: i64 = 1_000_000_000;
const INITIALIZE_ID: i64 = 1_000_000_001;

/// The way in which a transport pairs requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Requests and replies are independent messages.
    Stream,
    /// Each request waits for its own reply.
    Http,
}

/// A failed probe.
pub(crate) enum ProbeError {
    /// The server closed the session, or did not reply. Another session may succeed with a handshake.
    Unanswered,
    /// The failure is unrelated to the era.
    Failed(Box<ClientInitializeError>),
}

impl From<ClientInitializeError> for ProbeError {
    fn from(error: ClientInitializeError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Detects the era of a server.
///
/// # Errors
/// See [`ProbeError`].
pub(crate) async fn probe<T>(
    mut transport: T,
    client: &ClientConfig,
    pairing: Pairing,
) -> Result<(Era, ProbedTransport<T>), ProbeError>
where
    T: Transport<RoleClient> + 'static,
{
    let patience = match pairing {
        Pairing::Stream => STREAM_PATIENCE,
        Pairing::Http => HTTP_PATIENCE,
    };
    let until = Instant::now() + patience;
    let sent = timeout_at(until, transport.send(discover(client))).await;
    sent.map_err(|_| ProbeError::Unanswered)?
        .map_err(|error| send_error::<T>(error, pairing, "send discover request"))?;
    let mut progress = Progress::default();
    loop {
        let received = tokio::select! {
            received = transport.receive() => received,
            () = sleep_until(until), if !progress.initialize_sent => {
                if pairing == Pairing::Http {
                    return Err(ProbeError::Unanswered);
                }
                progress.initialize_sent = true;
                let sent = transport.send(initialize(client)).await;
                sent.map_err(|error| send_error::<T>(error, pairing, "send initialize request"))?;
                continue;
            }
        };
        let Some(message) = received else { return Err(ProbeError::Unanswered) };
        let decision = match reply(message, progress.initialize_sent) {
            Some((DISCOVER_ID, reply)) => progress.discovered(reply)?,
            Some((_, reply)) => progress.initialized(reply)?,
            // A notification, or a request of the server.
            None => None,
        };
        if let Some(Decision { era, result }) = decision {
            return Ok((era, ProbedTransport { inner: transport, result, replay: None }));
        }
    }
}

fn send_error<T: Transport<RoleClient> + 'static>(
    error: T::Error,
    pairing: Pairing,
    context: &'static str,
) -> ProbeError {
    match pairing {
        // The server has ended already.
        Pairing::Stream => ProbeError::Unanswered,
        Pairing::Http => ClientInitializeError::transport::<T>(error, context).into(),
    }
}

fn discover(client: &ClientConfig) -> ClientJsonRpcMessage {
    let mut request = DiscoverRequest::new(DiscoverRequestParams {});
    request.extensions.insert(RequestMetaObject::with_client_context(
        ProtocolVersion::V_2026_07_28,
        client.client_info.clone(),
        client.capabilities.clone(),
    ));
    let id = RequestId::Number(DISCOVER_ID);
    ClientJsonRpcMessage::request(ClientRequest::DiscoverRequest(request), id)
}

fn initialize(client: &ClientConfig) -> ClientJsonRpcMessage {
    let request = InitializeRequest::new(client.clone());
    let id = RequestId::Number(INITIALIZE_ID);
    ClientJsonRpcMessage::request(ClientRequest::InitializeRequest(request), id)
}

/// Returns the id of the probe's request that a message answers, and the reply. An error without a known
/// id answers the first request, until the second is sent.
fn reply(
    message: ServerJsonRpcMessage,
    initialize_sent: bool,
) -> Option<(i64, Result<ServerResult, ErrorData>)> {
    match message {
        ServerJsonRpcMessage::Response(response) => {
            Some((probe_id(&response.id)?, Ok(response.result)))
        }
        ServerJsonRpcMessage::Error(error) => {
            let id = error.id.as_ref().and_then(probe_id);
            let id = id.or_else(|| (!initialize_sent).then_some(DISCOVER_ID))?;
            Some((id, Err(error.error)))
        }
        _ => None,
    }
}

/// Returns the id if it belongs to a request of the probe. Some servers write numbers as text.
fn probe_id(id: &RequestId) -> Option<i64> {
    let number = match id {
        RequestId::Number(number) => *number,
        RequestId::String(text) => text.parse().ok()?,
    };
    matches!(number, DISCOVER_ID | INITIALIZE_ID).then_some(number)
}

/// The detected era, and the result of the request that opens a session of it, if that was received.
struct Decision {
    era: Era,
    result: Option<ServerResult>,
}

/// The replies so far.
#[derive(Default)]
struct Progress {
    initialize_sent: bool,
    /// The server is of the older era.
    discover_rejected: bool,
    /// The server rejected the handshake, and may be of the newer era.
    initialize_error: Option<ClientInitializeError>,
}

impl Progress {
    /// Handles the reply to `server/discover`.
    fn discovered(
        &mut self,
        reply: Result<ServerResult, ErrorData>,
    ) -> Result<Option<Decision>, ProbeError> {
        let decision = match reply {
            Ok(ServerResult::DiscoverResult(result)) => {
                match common_era(&result.supported_versions) {
                    Some(Era::Stateless) => {
                        let result = Some(ServerResult::DiscoverResult(result));
                        return Ok(Some(Decision { era: Era::Stateless, result }));
                    }
                    Some(era) => era,
                    None => return Err(incompatible(result.supported_versions).into()),
                }
            }
            // A server that returns a result for any method.
            Ok(_) => Era::Handshake,
            Err(error) => era_after_rejection(error)?,
        };
        if decision == Era::Stateless || !self.initialize_sent {
            return Ok(Some(Decision { era: decision, result: None }));
        }
        match self.initialize_error.take() {
            Some(error) => Err(error.into()),
            None => {
                self.discover_rejected = true;
                Ok(None)
            }
        }
    }

    /// Handles the reply to `initialize`.
    fn initialized(
        &mut self,
        reply: Result<ServerResult, ErrorData>,
    ) -> Result<Option<Decision>, ProbeError> {
        let error = match reply {
            Ok(result @ ServerResult::InitializeResult(_)) => {
                return Ok(Some(Decision { era: Era::Handshake, result: Some(result) }));
            }
            Ok(result) => ClientInitializeError::ExpectedInitResult(Some(result)),
            Err(error) => ClientInitializeError::JsonRpcError(error),
        };
        if self.discover_rejected {
            return Err(error.into());
        }
        self.initialize_error = Some(error);
        Ok(None)
    }
}

/// Returns the era of a server that rejects `server/discover`.
///
/// # Errors
/// When the server is of the newer era, and cannot be used.
fn era_after_rejection(error: ErrorData) -> Result<Era, ProbeError> {
    match error.code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
            let supported = error.data.as_ref().and_then(|data| data.get("supported")).cloned();
            let supported: Vec<ProtocolVersion> =
                supported.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
            if supported.is_empty() {
                return Ok(Era::Handshake);
            }
            common_era(&supported).ok_or_else(|| incompatible(supported).into())
        }
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH => {
            Err(ClientInitializeError::JsonRpcError(error).into())
        }
        _ => Ok(Era::Handshake),
    }
}

/// Returns the newest era that a server supports and the bridge as well.
fn common_era(supported: &[ProtocolVersion]) -> Option<Era> {
    if supported.contains(&ProtocolVersion::V_2026_07_28) {
        return Some(Era::Stateless);
    }
    supported.iter().any(ProtocolVersion::has_initialize).then_some(Era::Handshake)
}

fn incompatible(server_supported: Vec<ProtocolVersion>) -> ClientInitializeError {
    let client_supported =
        vec![ProtocolVersion::V_2026_07_28, ProtocolVersion::LATEST_WITH_INITIALIZE];
    ClientInitializeError::NoCompatibleProtocolVersion { client_supported, server_supported }
}

/// A transport after the probe: it replays the result that the probe received, and drops late replies to
/// the probe.
pub(crate) struct ProbedTransport<T> {
    inner: T,
    result: Option<ServerResult>,
    replay: Option<ServerJsonRpcMessage>,
}

impl<T> ProbedTransport<T> {
    /// Returns the reply to a request that the probe has sent already.
    fn known_reply(&mut self, message: &ClientJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let ClientJsonRpcMessage::Request(request) = message else { return None };
        let result = self.result.take_if(|result| {
            matches!(
                (&request.request, result),
                (ClientRequest::DiscoverRequest(_), ServerResult::DiscoverResult(_))
                    | (ClientRequest::InitializeRequest(_), ServerResult::InitializeResult(_))
            )
        });
        Some(ServerJsonRpcMessage::response(result?, request.id.clone()))
    }
}

impl<T> Transport<RoleClient> for ProbedTransport<T>
where
    T: Transport<RoleClient> + 'static,
{
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let sent = match self.known_reply(&message) {
            Some(reply) => {
                self.replay = Some(reply);
                None
            }
            None => Some(self.inner.send(message)),
        };
        async move {
            match sent {
                Some(sent) => sent.await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if let Some(reply) = self.replay.take() {
            return Some(reply);
        }
        loop {
            let message = self.inner.receive().await?;
            if !is_late(&message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

/// Returns whether a message answers a request of the probe, which is over.
fn is_late(message: &ServerJsonRpcMessage) -> bool {
    let id = match message {
        ServerJsonRpcMessage::Response(response) => Some(&response.id),
        ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    };
    id.and_then(probe_id).is_some()
}

#[cfg(test)]
mod tests;
