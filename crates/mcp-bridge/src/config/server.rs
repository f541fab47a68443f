//! The configuration of one server.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use rockbot_contracts::{Period, mcp::McpExposure, period::optional_period_or_millis};
use rockbot_rest::ApiEntry;
use rockbot_service::{expand::expand, watch::read_bounded};
use rockbot_tools::Redactor;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{
    limits::MAX_FILE_BYTES,
    oauth::{OAuthClient, RawOAuth},
};

/// A validated server with expanded variables.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its name, compared case-insensitively.
    pub name: String,
    /// Its transport.
    pub transport: Transport,
    /// The tools that may be called; all when absent.
    pub tools_allowed: Option<Vec<String>>,
    /// Tools that may not be called; takes precedence over `tools_allowed`.
    pub tools_denied: Vec<String>,
    /// Tools that the operator declares read-only: they may be retried, and their results may be cached.
    pub tools_read_only: Vec<String>,
    /// The queue that its tools share.
    pub queue: Option<String>,
    /// The cache lifetime of successful results, for tools that the operator declares safe to repeat.
    pub cache: Option<Period>,
    /// The idle timeout of a call; progress resets it. The caller's deadline applies as well.
    pub request_timeout: Option<Duration>,
    /// The time limit for a call, from `toolTimeout` of the file. The caller's deadline applies as well.
    pub tool_timeout: Option<Duration>,
    /// Selection of its tools for agents whose definition has none.
    pub exposure: Option<McpExposure>,
    /// Logs every request to the server: `traceMCP` of the file.
    pub trace: bool,
    /// The bridge is not ready without this server.
    pub required: bool,
    /// The protocol era; detected when absent.
    pub protocol: Option<Protocol>,
    /// Agents may list and read its resources.
    pub resources: bool,
    /// Agents and people may use its prompts.
    pub prompts: bool,
    /// The treatment of results that violate the schema of their tool.
    pub output_violations: OutputViolations,
    /// A caller added it at run time; otherwise the operator wrote it into the file.
    pub added_by_caller: bool,
    /// Values of its variables and headers, and of the variables that the entry refers to. They are kept from
    /// others.
    hidden: Vec<SecretString>,
}

/// Variables that are no secrets.
const PUBLIC_VARIABLES: [&str; 6] = ["HOME", "LANG", "PATH", "PWD", "SHELL", "USER"];

/// Protocol eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Sessions with a handshake: revisions up to 2025-11-25.
    Handshake,
    /// No handshake: revisions from 2026-07-28 on.
    Stateless,
}

/// Treatments of results whose structured content violates the output schema of their tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputViolations {
    /// The result is returned, with a note on the violation.
    #[default]
    Report,
    /// The call fails.
    Refuse,
    /// Results are not validated.
    Ignore,
}

/// Transports.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A program, over its standard input and output.
    Stdio(Program),
    /// Streamable HTTP.
    Http(Remote),
    /// Streamable HTTP, or HTTP with server-sent events where the server has only that: no type is
    /// configured.
    HttpOrSse(Remote),
    /// HTTP with server-sent events, as in the revision of 2024-11-05.
    Sse(Remote),
    /// WebSocket.
    WebSocket(Remote),
    /// HTTP requests to an API that an OpenAPI document describes.
    OpenApi(ApiEntry),
}

impl Transport {
    /// Returns the transport of a server whose type is not configured.
    #[must_use]
    pub fn for_url(remote: Remote) -> Self {
        if remote.url.starts_with("ws://") || remote.url.starts_with("wss://") {
            Self::WebSocket(remote)
        } else {
            Self::HttpOrSse(remote)
        }
    }

    /// Returns its name, as in the key `type`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) | Self::HttpOrSse(_) => "http",
            Self::Sse(_) => "sse",
            Self::WebSocket(_) => "websocket",
            Self::OpenApi(_) => "openapi",
        }
    }

    /// Returns the remote MCP server, or `None` for a program and an API.
    #[must_use]
    pub fn remote(&self) -> Option<&Remote> {
        match self {
            Self::Stdio(_) | Self::OpenApi(_) => None,
            Self::Http(remote)
            | Self::HttpOrSse(remote)
            | Self::Sse(remote)
            | Self::WebSocket(remote) => Some(remote),
        }
    }
}

/// A program that is an MCP server.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program, found on `PATH` unless it is a path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, in addition to the few variables that every program needs.
    pub env: BTreeMap<String, SecretString>,
    /// Its working directory. Default: the bridge's.
    pub cwd: Option<PathBuf>,
}

/// A remote server.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Its URL.
    pub url: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, SecretString>,
    /// The OAuth 2.1 client, for a server that requires it.
    pub oauth: OAuthClient,
}

/// A server as written in the file. Unknown keys belong to other clients; the caller of
/// [`RawServer::validate`] reports them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawServer {
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    env_file: Option<String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    oauth: RawOAuth,
    tools_allowed: Option<Vec<String>>,
    #[serde(default)]
    tools_denied: Vec<String>,
    #[serde(default)]
    tools_read_only: Vec<String>,
    queue: Option<String>,
    #[serde(default, deserialize_with = "optional_period_or_millis")]
    cache: Option<Period>,
    request_timeout_ms: Option<u64>,
    exposure: Option<McpExposure>,
    #[serde(default)]
    required: bool,
    protocol: Option<Protocol>,
    resources: Option<bool>,
    prompts: Option<bool>,
    #[serde(default)]
    output_violations: OutputViolations,
    #[serde(default)]
    disabled: bool,
    enabled: Option<bool>,
}

/// The keys of [`RawServer`]; other keys are reported to the operator.
pub(super) const KEYS: [&str; 25] = [
    "type",
    "transport",
    "command",
    "args",
    "env",
    "envFile",
    "cwd",
    "url",
    "headers",
    "oauth",
    "toolsAllowed",
    "toolsDenied",
    "toolsReadOnly",
    "queue",
    "cache",
    "requestTimeoutMs",
    "exposure",
    "required",
    "protocol",
    "resources",
    "prompts",
    "outputViolations",
    "disabled",
    "enabled",
    "name",
];

/// The longest server name, in characters.
const MAX_NAME_CHARS: usize = 64;
/// Reserved: the source of the management tools is `mcp:management`.
const RESERVED_NAME: &str = "management";
/// The valid range of a server's timeout, in milliseconds.
const TIMEOUT_RANGE: std::ops::RangeInclusive<u64> = 100..=24 * 3600 * 1000;

impl RawServer {
    pub(super) fn is_disabled(&self) -> bool {
        self.disabled || self.enabled == Some(false)
    }

    /// Validates it and expands its variables. `api` is the API of an entry that names an OpenAPI
    /// document.
    ///
    /// # Errors
    /// A message for the operator.
    pub(super) fn validate(
        self,
        name: &str,
        api: Option<ApiEntry>,
        lookup: &impl Fn(&str) -> Option<String>,
    ) -> Result<ServerConfig, String> {
        check_name(name)?;
        let looked_up = RefCell::new(Vec::new());
        let lookup = |variable: &str| {
            let value = lookup(variable);
            if !PUBLIC_VARIABLES.contains(&variable) {
                looked_up.borrow_mut().extend(value.clone().map(SecretString::from));
            }
            value
        };
        let expand_in = |text: &str| expand(text, &lookup).map_err(|error| error.to_string());
        let secrets = |map: BTreeMap<String, String>| -> Result<BTreeMap<_, _>, String> {
            map.into_iter()
                .map(|(key, value)| Ok((key, SecretString::from(expand_in(&value)?))))
                .collect()
        };
        let transport = match (self.command, self.url, api) {
            (None, None, None) => {
                return Err("it has neither a command nor a url nor openapi".into());
            }
            (Some(_), Some(_), None) => {
                return Err("it has both a command and a url; keep one".into());
            }
            (None, None, Some(api)) => {
                if !matches!(self.kind.as_deref(), None | Some("openapi")) {
                    return Err("with openapi, its type must be \"openapi\"".into());
                }
                Transport::OpenApi(api)
            }
            (_, _, Some(_)) => {
                return Err("it has openapi and a command or a url; keep one".into());
            }
            (Some(command), None, None) => {
                if !matches!(self.kind.as_deref(), None | Some("stdio")) {
                    return Err("with a command, its type must be \"stdio\"".into());
                }
                let args = self.args.iter().map(|arg| expand_in(arg)).collect::<Result<_, _>>()?;
                let command = expand_in(&command)?;
                if command.is_empty() {
                    return Err("its command is empty".into());
                }
                let mut env = secrets(self.env)?;
                if let Some(file) = &self.env_file {
                    for (name, value) in read_env_file(Path::new(&expand_in(file)?))? {
                        env.entry(name).or_insert(value);
                    }
                }
                let cwd = self.cwd.as_deref().map(expand_in).transpose()?.map(PathBuf::from);
                Transport::Stdio(Program { command, args, env, cwd })
            }
            (None, Some(url), None) => {
                let oauth = self.oauth.validate(expand_in)?;
                let remote =
                    Remote { url: expand_in(&url)?, headers: secrets(self.headers)?, oauth };
                match self.kind.as_deref() {
                    None => Transport::for_url(remote),
                    Some("http" | "streamable-http" | "streamableHttp") => Transport::Http(remote),
                    Some("sse") => Transport::Sse(remote),
                    Some("websocket" | "ws") => Transport::WebSocket(remote),
                    Some(_) => {
                        return Err("its type must be \"http\", \"sse\" or \"websocket\"".into());
                    }
                }
            }
        };
        if let Some(ms) = self.request_timeout_ms.filter(|ms| !TIMEOUT_RANGE.contains(ms)) {
            let (min, max) = TIMEOUT_RANGE.into_inner();
            return Err(format!("requestTimeoutMs is {ms}; it must be {min} to {max}"));
        }
        let own = match &transport {
            Transport::Stdio(program) => Some(&program.env),
            transport => transport.remote().map(|remote| &remote.headers),
        };
        let own = own
            .into_iter()
            .flatten()
            .filter(|(variable, _)| !PUBLIC_VARIABLES.contains(&variable.as_str()));
        let mut hidden: Vec<_> = own.map(|(_, value)| value.clone()).collect();
        hidden.extend(looked_up.take());
        Ok(ServerConfig {
            name: name.to_owned(),
            transport,
            hidden,
            tools_allowed: self.tools_allowed,
            tools_denied: self.tools_denied,
            tools_read_only: self.tools_read_only,
            queue: self.queue,
            cache: self.cache,
            request_timeout: self.request_timeout_ms.map(Duration::from_millis),
            tool_timeout: None,
            exposure: self.exposure,
            trace: false,
            required: self.required,
            protocol: self.protocol,
            resources: self.resources.unwrap_or(true),
            prompts: self.prompts.unwrap_or(true),
            output_violations: self.output_violations,
            added_by_caller: false,
        })
    }
}

/// Reads a file of `NAME=value` lines.
fn read_env_file(path: &Path) -> Result<Vec<(String, SecretString)>, String> {
    let error = |error: &dyn std::fmt::Display| format!("envFile {}: {error}", path.display());
    let content = read_bounded(path, MAX_FILE_BYTES).map_err(|cause| error(&cause))?;
    dotenvy::from_read_iter(&content[..])
        // Its errors quote the line, which may be a secret.
        .map(|line| {
            line.map(|(name, value)| (name, value.into()))
                .map_err(|_| error(&"a line is not NAME=value"))
        })
        .collect()
}

fn check_name(name: &str) -> Result<(), String> {
    let usable = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '/' | '@');
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !name.chars().all(usable) {
        return Err(format!(
            "its name must be 1 to {MAX_NAME_CHARS} letters, digits, spaces or -_./@"
        ));
    }
    if name.eq_ignore_ascii_case(RESERVED_NAME) {
        return Err(format!(
            "{RESERVED_NAME} is reserved for the management tools; choose another name"
        ));
    }
    Ok(())
}

impl ServerConfig {
    /// Creates a server that a caller adds at run time.
    ///
    /// # Errors
    /// When the name is invalid.
    pub(crate) fn added_at_run_time(name: &str, transport: Transport) -> Result<Self, String> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            transport,
            tools_allowed: None,
            tools_denied: Vec::new(),
            tools_read_only: Vec::new(),
            queue: None,
            cache: None,
            request_timeout: None,
            tool_timeout: None,
            exposure: None,
            trace: false,
            required: false,
            protocol: None,
            resources: true,
            prompts: true,
            output_violations: OutputViolations::default(),
            added_by_caller: true,
            hidden: Vec::new(),
        })
    }

    /// Returns the text without what the entry keeps from others. Values shorter than 8 bytes remain, because they
    /// could be ordinary words.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        let secrets = self.hidden.iter().map(|secret| secret.expose_secret().to_owned());
        Redactor::with_secrets(secrets).redact(text).into_owned()
    }

    /// Returns whether the tool may be listed and called.
    #[must_use]
    pub fn permits(&self, tool: &str) -> bool {
        let denied = self.tools_denied.iter().any(|name| name == tool || name == "*");
        let listed = |names: &Vec<String>| names.iter().any(|name| name == tool || name == "*");
        !denied && self.tools_allowed.as_ref().is_none_or(listed)
    }

    /// Returns whether the operator declares the tool read-only.
    #[must_use]
    pub fn is_read_only(&self, tool: &str) -> bool {
        self.tools_read_only.iter().any(|name| name == tool || name == "*")
    }

    /// Returns whether only one bridge at a time may serve it: a program has state of its own.
    #[must_use]
    pub fn requires_single_owner(&self) -> bool {
        matches!(self.transport, Transport::Stdio(_))
    }
}

/// Secrets do not implement `PartialEq`; detecting changes of the file needs a comparison. `tool_timeout` and
/// `trace` are those of the whole file: a change of them applies to the next call, and restarts no server.
impl PartialEq for ServerConfig {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.transport == other.transport
            && self.tools_allowed == other.tools_allowed
            && self.tools_denied == other.tools_denied
            && self.tools_read_only == other.tools_read_only
            && self.queue == other.queue
            && self.cache == other.cache
            && self.request_timeout == other.request_timeout
            && self.exposure == other.exposure
            && self.required == other.required
            && self.protocol == other.protocol
            && self.resources == other.resources
            && self.prompts == other.prompts
            && self.output_violations == other.output_violations
            && self.added_by_caller == other.added_by_caller
    }
}

impl PartialEq for Transport {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stdio(left), Self::Stdio(right)) => left == right,
            (Self::Http(left), Self::Http(right))
            | (Self::HttpOrSse(left), Self::HttpOrSse(right))
            | (Self::Sse(left), Self::Sse(right))
            | (Self::WebSocket(left), Self::WebSocket(right)) => left == right,
            (Self::OpenApi(left), Self::OpenApi(right)) => left == right,
            _ => false,
        }
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.command == other.command
            && self.args == other.args
            && self.cwd == other.cwd
            && secrets_eq(&self.env, &other.env)
    }
}

impl PartialEq for Remote {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
            && secrets_eq(&self.headers, &other.headers)
            && self.oauth == other.oauth
    }
}

fn secrets_eq(
    left: &BTreeMap<String, SecretString>,
    right: &BTreeMap<String, SecretString>,
) -> bool {
    let exposed =
        |(name, value): (&String, &SecretString)| (name.clone(), value.expose_secret().to_owned());
    left.len() == right.len() && left.iter().map(exposed).eq(right.iter().map(exposed))
}
