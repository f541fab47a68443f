//! Opening a session, in the era of the protocol that the server speaks.
//!
//! Up to 2025-11-25 a session begins with a handshake; from 2026-07-28 on there is none, and every
//! request stands alone. Which one it is, is found out by asking as the specification says, and
//! remembered for the next time.

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::ProtocolVersion,
    service::{
        ClientInitializeError, ClientLifecycleMode, RunningService, serve_client_with_lifecycle,
    },
    transport::Transport as McpTransport,
};
use rockbot_tool_rpc::mcp::untrusted_text::plain;
use tokio::time::timeout;

use crate::{
    client::Client,
    config::{OAuthClient, Protocol, Remote, ServerConfig, Transport},
    oauth::{OAuthSettings, OAuthTokens},
    session::Session,
    transport::{self, ConnectError, DialPolicy, RemoteServer, TokenSource, stdio::StdioTransport},
};

/// How long a server may take to begin. Many are fetched when they are started for the first time.
const BEGIN_WITHIN: Duration = Duration::from_secs(90);

/// How remote servers are dialled.
#[derive(Debug, Clone)]
pub(crate) struct Dialling {
    pub(crate) policy: Arc<DialPolicy>,
    /// Where tokens are kept.
    pub(crate) tokens: Option<PathBuf>,
}

impl Dialling {
    /// Where the tokens of a server come from; none for a program.
    pub(crate) fn tokens(&self, config: &ServerConfig) -> Option<OAuthTokens> {
        let remote = config.transport.remote()?;
        let OAuthClient { grant, scopes } = remote.oauth.clone();
        // One that is none is told when it is dialled.
        let resource = remote.url.parse().ok()?;
        let (policy, folder) = (self.policy.clone(), self.tokens.clone()?);
        Some(OAuthTokens::new(OAuthSettings { resource, grant, scopes, policy, folder }))
    }
}

/// What is known of the protocol that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Not known yet: ask.
    Unknown,
    /// Sessions begin with a handshake: up to 2025-11-25.
    Handshake,
    /// No handshake: from 2026-07-28 on.
    Stateless,
}

impl Era {
    pub(crate) fn of(session: &Session) -> Self {
        if session.has_handshake { Self::Handshake } else { Self::Stateless }
    }

    /// What an operator says about it.
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

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFailure {
    #[error("its program can't be started: {0}")]
    Start(#[from] std::io::Error),
    #[error("its url is not one: {0}")]
    Url(String),
    #[error("{}", chain(.0))]
    Connect(#[from] ConnectError),
    #[error("{}", chain(.0.as_ref()))]
    Begin(Box<ClientInitializeError>),
    #[error("it did not begin within {BEGIN_WITHIN:?}")]
    Late,
}

impl From<ClientInitializeError> for ConnectFailure {
    fn from(error: ClientInitializeError) -> Self {
        Self::Begin(Box::new(error))
    }
}

/// An error with its causes, as people may see it: servers have a say in it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Many repeat their cause.
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    plain(&text, 500)
}

impl ConnectFailure {
    /// What to believe of the server's era after this failure.
    ///
    /// A program that ends when it is asked something unknown, or answers the question after the
    /// time for it, is of the older era. Nothing else says anything about eras: above all not a
    /// refused login, a name that can't be resolved or an answer that is none.
    pub(crate) fn next_era(&self, tried: Era) -> Era {
        let Self::Begin(error) = self else { return tried };
        let of_older = matches!(
            **error,
            ClientInitializeError::ConnectionClosed(_)
                | ClientInitializeError::UncorrelatedErrorResponse { .. }
                | ClientInitializeError::ConflictInitResponseId(..)
        );
        match tried {
            Era::Unknown if of_older => Era::Handshake,
            // What was known may be over: the server was exchanged for another.
            _ => Era::Unknown,
        }
    }
}

/// A session, and this side of it.
pub(crate) type Opened = (RunningService<RoleClient, Client>, Client, Session);

/// Opens a session with a server.
///
/// # Errors
/// See [`ConnectFailure`].
///
/// # Cancellation
/// What was begun is ended: a program is killed.
pub(crate) async fn open(
    config: &ServerConfig,
    era: Era,
    policy: &Arc<DialPolicy>,
    tokens: Option<&OAuthTokens>,
) -> Result<Opened, ConnectFailure> {
    let server = |remote| server(remote, policy, tokens);
    let opened = async {
        match &config.transport {
            Transport::Stdio(program) => {
                begin(StdioTransport::start(&config.name, program)?, era).await
            }
            Transport::Http(remote) => {
                begin(transport::http::connect(&server(remote)?).await?, era).await
            }
            // That transport is of the older era itself.
            Transport::Sse(remote) => {
                let transport = transport::sse::connect(&server(remote)?).await?;
                begin(transport, Era::Handshake).await
            }
            Transport::WebSocket(remote) => {
                begin(transport::websocket::connect(&server(remote)?).await?, era).await
            }
        }
    };
    timeout(BEGIN_WITHIN, opened).await.map_err(|_| ConnectFailure::Late)?
}

fn server(
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

async fn begin<T>(transport: T, era: Era) -> Result<Opened, ConnectFailure>
where
    T: McpTransport<RoleClient> + 'static,
{
    let client = Client::default();
    let running = serve_client_with_lifecycle(client.clone(), transport, era.lifecycle()).await?;
    let session = Session::of(running.peer().clone(), client.clone()).await;
    Ok((running, client, session))
}
