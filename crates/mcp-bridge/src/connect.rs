//! Opening of sessions, in the protocol era that the server supports.
//!
//! Up to 2025-11-25, a session begins with a handshake. From 2026-07-28 on, there is no handshake, and
//! every request stands alone. The era is detected as the specification describes, and remembered for the
//! next session.

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::ProtocolVersion,
    service::{
        ClientInitializeError, ClientLifecycleMode, RunningService, serve_client_with_lifecycle,
    },
    transport::Transport as McpTransport,
};
use rockbot_contracts::outside_text::plain;
use tokio::time::timeout;

use crate::{
    client::Client,
    config::{OAuthClient, Protocol, Remote, ServerConfig, Transport},
    oauth::{OAuthSettings, OAuthTokens},
    session::Session,
    transport::{self, ConnectError, DialPolicy, RemoteServer, TokenSource, stdio::StdioTransport},
};

/// The time limit for opening a session. Many programs are downloaded at their first start.
const OPEN_TIMEOUT: Duration = Duration::from_secs(90);

/// Settings for connections to remote servers.
#[derive(Debug, Clone)]
pub(crate) struct DialSettings {
    pub(crate) policy: Arc<DialPolicy>,
    /// The folder for tokens.
    pub(crate) tokens: Option<PathBuf>,
}

impl DialSettings {
    /// Returns the token source of a server, or `None` for a program.
    pub(crate) fn tokens(&self, config: &ServerConfig) -> Option<OAuthTokens> {
        let remote = config.transport.remote()?;
        let OAuthClient { grant, scopes } = remote.oauth.clone();
        // An invalid URL is reported when it is dialed.
        let resource = remote.url.parse().ok()?;
        let (policy, folder) = (self.policy.clone(), self.tokens.clone()?);
        Some(OAuthTokens::new(OAuthSettings { resource, grant, scopes, policy, folder }))
    }
}

/// The protocol era of a server, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Not known yet; to be detected.
    Unknown,
    /// Sessions with a handshake: up to 2025-11-25.
    Handshake,
    /// No handshake: from 2026-07-28 on.
    Stateless,
}

impl Era {
    pub(crate) fn from_session(session: &Session) -> Self {
        if session.has_handshake { Self::Handshake } else { Self::Stateless }
    }

    /// Returns the configured era.
    pub(crate) fn configured(config: &ServerConfig) -> Self {
        match config.protocol {
            None => Self::Unknown,
            Some(Protocol::Handshake) => Self::Handshake,
            Some(Protocol::Stateless) => Self::Stateless,
        }
    }

    fn lifecycle(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Unknown => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover { preferred_versions },
        }
    }
}

/// A failure to open a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFailure {
    #[error("cannot start its program: {0}")]
    Start(#[from] std::io::Error),
    #[error("invalid url: {0}")]
    Url(String),
    #[error("{}", chain(.0))]
    Connect(#[from] ConnectError),
    #[error("{}", chain(.0.as_ref()))]
    Handshake(Box<ClientInitializeError>),
    #[error("no session within {OPEN_TIMEOUT:?}")]
    TimedOut,
}

impl From<ClientInitializeError> for ConnectFailure {
    fn from(error: ClientInitializeError) -> Self {
        Self::Handshake(Box::new(error))
    }
}

/// Formats an error with its causes, sanitized: servers contribute to the text.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let cause_text = error.to_string();
        // Many errors repeat their cause.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        cause = error.source();
    }
    plain(&text, 500)
}

impl ConnectFailure {
    /// Returns the era to try next after this failure.
    ///
    /// A program that exits when it receives an unknown request, or replies to it too late, belongs to
    /// the older era. Other failures carry no information about the era, in particular a refused login,
    /// a failed name resolution or an invalid reply.
    pub(crate) fn next_era(&self, tried: Era) -> Era {
        let Self::Handshake(error) = self else { return tried };
        let is_handshake_era = matches!(
            **error,
            ClientInitializeError::ConnectionClosed(_)
                | ClientInitializeError::UncorrelatedErrorResponse { .. }
                | ClientInitializeError::ConflictInitResponseId(..)
        );
        match tried {
            Era::Unknown if is_handshake_era => Era::Handshake,
            // The known era may be outdated: the server may have been replaced.
            _ => Era::Unknown,
        }
    }
}

/// An open session with its client handler.
pub(crate) type OpenedSession = (RunningService<RoleClient, Client>, Client, Session);

/// Opens a session with a server.
///
/// # Errors
/// See [`ConnectFailure`].
///
/// # Cancellation
/// A started program is killed.
pub(crate) async fn open(
    config: &ServerConfig,
    era: Era,
    policy: &Arc<DialPolicy>,
    tokens: Option<&OAuthTokens>,
) -> Result<OpenedSession, ConnectFailure> {
    let server = |remote| remote_server(remote, policy, tokens);
    let opened = async {
        match &config.transport {
            Transport::Stdio(program) => {
                handshake(StdioTransport::start(&config.name, program)?, era).await
            }
            Transport::Http(remote) => {
                handshake(transport::http::connect(&server(remote)?).await?, era).await
            }
            // This transport exists only in the older era.
            Transport::Sse(remote) => {
                let transport = transport::sse::connect(&server(remote)?).await?;
                handshake(transport, Era::Handshake).await
            }
            Transport::WebSocket(remote) => {
                handshake(transport::websocket::connect(&server(remote)?).await?, era).await
            }
        }
    };
    timeout(OPEN_TIMEOUT, opened).await.map_err(|_| ConnectFailure::TimedOut)?
}

fn remote_server(
    remote: &Remote,
    policy: &Arc<DialPolicy>,
    tokens: Option<&OAuthTokens>,
) -> Result<RemoteServer, ConnectFailure> {
    let url = remote.url.parse();
    let url = url
        .map_err(|error: <reqwest::Url as FromStr>::Err| ConnectFailure::Url(error.to_string()))?;
    let headers = remote.headers.clone();
    let tokens = tokens.map(|tokens| Arc::new(tokens.clone()) as Arc<dyn TokenSource>);
    Ok(RemoteServer { headers, tokens, ..RemoteServer::new(url, policy.clone()) })
}

async fn handshake<T>(transport: T, era: Era) -> Result<OpenedSession, ConnectFailure>
where
    T: McpTransport<RoleClient> + 'static,
{
    let client = Client::default();
    let running = serve_client_with_lifecycle(client.clone(), transport, era.lifecycle()).await?;
    let session = Session::new(running.peer().clone(), client.clone()).await;
    Ok((running, client, session))
}
