//! Opening of sessions, in the protocol era that the server supports: detected by a [`probe`], and
//! remembered for the next session.

use std::{
    io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use reqwest::Url;
use rmcp::{
    ClientHandler, RoleClient,
    service::{ClientInitializeError, RunningService, serve_client_with_lifecycle},
    transport::Transport as McpTransport,
};
use rockbot_egress::EgressError;
use rockbot_rest::{ApiClient, ApiEntry};
use tokio::time::{Instant, timeout_at};

use crate::{
    client::Client,
    config::{OAuthClient, Program, Remote, ServerConfig, Transport},
    era::Era,
    loopback::dial_policy,
    oauth::{OAuthSettings, OAuthTokens},
    openapi::ApiSession,
    probe::{Pairing, ProbeError, probe},
    session::Session,
    task_handles::TaskHandles,
    transport::{
        self, ConnectError, DialPolicy, FailureClass, RemoteServer, TokenSource, describe,
        describe_handshake, failure_class,
        stdio::{StderrLog, StdioTransport},
    },
};

/// The time limit for opening a session. Many programs are downloaded at their first start.
const OPEN_TIMEOUT: Duration = Duration::from_secs(90);

/// Settings for connections to remote servers.
#[derive(Clone)]
pub(crate) struct DialSettings {
    pub(crate) policy: Arc<DialPolicy>,
    /// The folder for tokens.
    pub(crate) tokens: Option<PathBuf>,
    /// A user can respond to requests for input. Sessions with a handshake declare it once; each call of
    /// the others declares whether its own user can.
    pub(crate) declares_input: bool,
    /// Handles of calls that run as tasks.
    pub(crate) tasks: TaskHandles,
    /// The client of all APIs, created by the first one.
    pub(crate) apis: Arc<OnceLock<ApiClient>>,
}

impl DialSettings {
    /// Returns the client of all APIs.
    ///
    /// # Errors
    /// When the trusted certificates cannot be read.
    fn api_client(&self) -> Result<ApiClient, EgressError> {
        if let Some(client) = self.apis.get() {
            return Ok(client.clone());
        }
        let client = ApiClient::new(self.policy.clone())?;
        Ok(self.apis.get_or_init(|| client).clone())
    }

    /// Returns the token source of a server, or `None` for a program.
    pub(crate) fn tokens(&self, config: &ServerConfig) -> Option<OAuthTokens> {
        let remote = config.transport.remote()?;
        let OAuthClient { grant, scopes } = remote.oauth.clone();
        // An invalid URL is reported when it is dialed.
        let resource: Url = remote.url.parse().ok()?;
        let folder = self.tokens.clone()?;
        // The authorization server may be at another address than the server.
        let policy = match self.policy.check(&resource) {
            Ok(()) => self.policy.clone(),
            Err(_) => dial_policy(config, &self.policy),
        };
        Some(OAuthTokens::new(OAuthSettings { resource, grant, scopes, policy, folder }))
    }
}

/// A failure to open a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFailure {
    #[error("cannot start its program {command:?}: {}", start_error(command, error))]
    Start { command: String, error: io::Error },
    #[error(
        "cannot start its program {command:?}: its folder {cwd:?} does not exist; correct \"cwd\""
    )]
    Folder { command: String, cwd: PathBuf },
    #[error("invalid url: {0}")]
    Url(String),
    #[error("{}", describe(.0))]
    Connect(#[from] ConnectError),
    #[error("{}", describe_handshake(.0))]
    Handshake(Box<ClientInitializeError>),
    /// The server closed the session, or did not reply to the probe. It may be of the older era.
    #[error("the server did not reply to the first request")]
    Unanswered,
    #[error("no session within {OPEN_TIMEOUT:?}")]
    TimedOut,
    /// The document of an API cannot be used.
    #[error("{0}")]
    OpenApi(String),
    #[error("{failure}; its last output: {output}")]
    Program { failure: Box<ConnectFailure>, output: String },
}

impl From<ClientInitializeError> for ConnectFailure {
    fn from(error: ClientInitializeError) -> Self {
        Self::Handshake(Box::new(error))
    }
}

impl From<ProbeError> for ConnectFailure {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::Unanswered => Self::Unanswered,
            ProbeError::Failed(error) => Self::Handshake(error),
        }
    }
}

impl ConnectFailure {
    /// Returns the class of the failure, or `None` if it is not one of a connection.
    pub(crate) fn class(&self) -> Option<FailureClass> {
        match self {
            Self::Connect(error) => Some(error.class()),
            Self::Handshake(error) => Some(failure_class(error)),
            _ => None,
        }
    }

    /// Adds the last output of the program.
    async fn with_output(self, stderr: &StderrLog) -> Self {
        match self {
            // The second attempt reports its own output.
            Self::Unanswered => self,
            failure => match stderr.last_lines().await {
                Some(output) => Self::Program { failure: Box::new(failure), output },
                None => failure,
            },
        }
    }
}

/// An open session with an MCP server, and its client handler.
type OpenedSession = (RunningService<RoleClient, Client>, Client, Session);

/// An open session with a server.
pub(crate) enum Opened {
    /// With an MCP server.
    Mcp(Box<OpenedSession>),
    /// With an API, whose document was read.
    OpenApi(Box<ApiSession>),
}

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
    dial: &DialSettings,
    tokens: Option<&OAuthTokens>,
) -> Result<Opened, ConnectFailure> {
    let connection = Connection { config, dial, tokens, until: Instant::now() + OPEN_TIMEOUT };
    match connection.open(era).await {
        // A server of the older era may end at an unknown request, or never reply to it.
        Err(ConnectFailure::Unanswered) => connection.open(Era::Handshake).await,
        opened => opened,
    }
}

/// The parameters of an attempt to open a session.
struct Connection<'a> {
    config: &'a ServerConfig,
    dial: &'a DialSettings,
    tokens: Option<&'a OAuthTokens>,
    until: Instant,
}

impl Connection<'_> {
    async fn open(&self, era: Era) -> Result<Opened, ConnectFailure> {
        let opened = match &self.config.transport {
            Transport::Stdio(program) => self.open_program(program, era).await,
            Transport::Http(remote) => self.limit(self.open_http(remote, era)).await,
            Transport::HttpOrSse(remote) => self.limit(self.open_http_or_sse(remote, era)).await,
            Transport::Sse(remote) => self.limit(self.open_sse(remote)).await,
            Transport::WebSocket(remote) => self.limit(self.open_websocket(remote, era)).await,
            Transport::OpenApi(entry) => {
                return self
                    .limit(self.open_api(entry))
                    .await
                    .map(|session| Opened::OpenApi(Box::new(session)));
            }
        };
        opened.map(|opened| Opened::Mcp(Box::new(opened)))
    }

    /// Opens a session on a transport.
    fn start_session<T>(
        &self,
        transport: T,
        era: Era,
        pairing: Pairing,
    ) -> BoxFuture<'static, Result<OpenedSession, ConnectFailure>>
    where
        T: McpTransport<RoleClient> + 'static,
    {
        // The tasks of a program end with it.
        let tasks = (!self.config.requires_single_owner()).then(|| self.dial.tasks.clone());
        let settings = SessionSettings {
            server: self.config.name.clone(),
            declares_input: self.dial.declares_input,
            tasks,
        };
        start_session(transport, era, pairing, settings)
    }

    async fn limit<T>(
        &self,
        opened: impl Future<Output = Result<T, ConnectFailure>>,
    ) -> Result<T, ConnectFailure> {
        timeout_at(self.until, opened).await.map_err(|_| ConnectFailure::TimedOut)?
    }

    async fn open_program(
        &self,
        program: &Program,
        era: Era,
    ) -> Result<OpenedSession, ConnectFailure> {
        let transport = StdioTransport::start(&self.config.name, program)
            .map_err(|error| start_failure(program, error))?;
        let stderr = transport.stderr().clone();
        match self.limit(self.start_session(transport, era, Pairing::Stream)).await {
            Ok(opened) => Ok(opened),
            Err(failure) => Err(failure.with_output(&stderr).await),
        }
    }

    async fn open_http(&self, remote: &Remote, era: Era) -> Result<OpenedSession, ConnectFailure> {
        let transport = transport::http::connect(&self.server(remote)?).await?;
        self.start_session(transport, era, Pairing::Http).await
    }

    /// Opens a session over streamable HTTP, or else over HTTP with SSE, as the specification describes
    /// for a URL of an unknown revision.
    async fn open_http_or_sse(
        &self,
        remote: &Remote,
        era: Era,
    ) -> Result<OpenedSession, ConnectFailure> {
        let failure = match self.open_http(remote, era).await {
            Ok(opened) => return Ok(opened),
            Err(failure) => failure,
        };
        if !failure.class().is_some_and(FailureClass::is_other_endpoint) {
            return Err(failure);
        }
        match transport::sse::connect(&self.server(remote)?).await {
            Ok(transport) => self.start_session(transport, Era::Handshake, Pairing::Stream).await,
            Err(error) if error.class() == FailureClass::Unauthorized => Err(error.into()),
            // It is no endpoint of this transport either.
            Err(_) => Err(failure),
        }
    }

    /// Opens a session over HTTP with SSE, which exists only in the older era.
    async fn open_sse(&self, remote: &Remote) -> Result<OpenedSession, ConnectFailure> {
        let transport = transport::sse::connect(&self.server(remote)?).await?;
        self.start_session(transport, Era::Handshake, Pairing::Stream).await
    }

    async fn open_websocket(
        &self,
        remote: &Remote,
        era: Era,
    ) -> Result<OpenedSession, ConnectFailure> {
        let transport = transport::websocket::connect(&self.server(remote)?).await?;
        self.start_session(transport, era, Pairing::Stream).await
    }

    /// Reads the document of an API. Boxed, because the future is large.
    async fn open_api(&self, entry: &ApiEntry) -> Result<ApiSession, ConnectFailure> {
        let client = self.dial.api_client();
        let client = client.map_err(|error| ConnectFailure::OpenApi(error.to_string()))?;
        let opened = Box::pin(ApiSession::open(&self.config.name, entry, client));
        opened.await.map_err(ConnectFailure::OpenApi)
    }

    fn server(&self, remote: &Remote) -> Result<RemoteServer, ConnectFailure> {
        remote_server(remote, &dial_policy(self.config, &self.dial.policy), self.tokens)
    }
}

fn start_failure(program: &Program, error: io::Error) -> ConnectFailure {
    let Program { command, cwd, .. } = program;
    let (command, is_not_found) = (command.clone(), error.kind() == io::ErrorKind::NotFound);
    match cwd {
        Some(cwd) if is_not_found && !cwd.is_dir() => {
            ConnectFailure::Folder { command, cwd: cwd.clone() }
        }
        _ => ConnectFailure::Start { command, error },
    }
}

/// Describes why a program cannot be started, with what to do.
fn start_error(command: &str, error: &io::Error) -> String {
    match error.kind() {
        // The interpreter of a script may be missing, too.
        io::ErrorKind::NotFound if Path::new(command).components().count() > 1 => {
            "it, or the interpreter that it names, does not exist; correct \"command\"".to_owned()
        }
        io::ErrorKind::NotFound => {
            let package = match command {
                "uvx" | "uv" => " (it is part of uv)",
                "npx" | "npm" | "node" => " (it is part of Node.js)",
                _ => "",
            };
            format!(
                "it is not on the PATH; install it{package}, or set its full path as \"command\""
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!("{error}; make it executable for the user of this process")
        }
        _ => error.to_string(),
    }
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

/// Opens a session on a transport. Boxed, because the future is large.
fn start_session<T>(
    transport: T,
    era: Era,
    pairing: Pairing,
    settings: SessionSettings,
) -> BoxFuture<'static, Result<OpenedSession, ConnectFailure>>
where
    T: McpTransport<RoleClient> + 'static,
{
    Box::pin(async move {
        let SessionSettings { server, declares_input, tasks } = settings;
        let client = |era: Era| Client::new(era.capabilities(declares_input));
        let (client, running) = if era == Era::Unknown {
            let (era, transport) = probe(transport, &client(era).get_info(), pairing).await?;
            let client = client(era);
            let lifecycle = era.lifecycle();
            (client.clone(), serve_client_with_lifecycle(client, transport, lifecycle).await?)
        } else {
            let (client, lifecycle) = (client(era), era.lifecycle());
            (client.clone(), serve_client_with_lifecycle(client, transport, lifecycle).await?)
        };
        let session = Session::new(running.peer().clone(), client.clone(), &server, tasks).await;
        Ok((running, client, session))
    })
}

/// Settings of a session.
struct SessionSettings {
    server: String,
    declares_input: bool,
    tasks: Option<TaskHandles>,
}
