//! One server of the configuration.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use rockbot_tools::Period;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{
    expand::expand,
    oauth::{OAuthClient, RawOAuth},
};

/// A server, checked and with its variables filled in.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its name; compared without regard to case.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// The only tools that may be called; all when absent.
    pub tools_allowed: Option<Vec<String>>,
    /// Tools that may not be called, whatever else is said.
    pub tools_denied: Vec<String>,
    /// The queue whose bounds its tools share.
    pub queue: Option<String>,
    /// How long results of its tools are kept that are no errors, of tools whose repetition changes
    /// nothing.
    pub cache: Option<Period>,
    /// How long it may be silent during a call; progress counts as a word. The caller's deadline
    /// holds as well.
    pub request_timeout: Option<Duration>,
    /// Whether the bridge is not ready without it.
    pub required: bool,
    /// How its sessions begin; found out by asking when absent.
    pub protocol: Option<Protocol>,
}

/// How sessions with a server begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// With a handshake: revisions up to 2025-11-25.
    Handshake,
    /// Without one: revisions from 2026-07-28 on.
    Stateless,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A program that is started and spoken with over its standard input and output.
    Stdio(Program),
    /// Streamable HTTP.
    Http(Remote),
    /// HTTP with server-sent events, as in the revision of 2024-11-05.
    Sse(Remote),
    /// WebSocket.
    WebSocket(Remote),
}

impl Transport {
    /// Where the server is, unless it is a program.
    #[must_use]
    pub fn remote(&self) -> Option<&Remote> {
        match self {
            Self::Stdio(_) => None,
            Self::Http(remote) | Self::Sse(remote) | Self::WebSocket(remote) => Some(remote),
        }
    }
}

/// How a server that is a program is started.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program, found on `PATH` unless it is a path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, beside the few variables that every program needs.
    pub env: BTreeMap<String, SecretString>,
    /// Where it is started. Default the folder of the bridge.
    pub cwd: Option<PathBuf>,
}

/// Where a remote server is.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Its address.
    pub url: String,
    /// Sent with every request.
    pub headers: BTreeMap<String, SecretString>,
    /// Who this bridge is there, for a server that wants OAuth 2.1. The default is a program that
    /// registers itself when a person logs in.
    pub oauth: OAuthClient,
}

/// A server as it is written. Unknown keys are those of other clients, and are told by
/// [`RawServer::check`]'s caller.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawServer {
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(alias = "arguments", default)]
    args: Vec<String>,
    #[serde(alias = "environmentVariables", default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    #[serde(alias = "endpoint")]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    oauth: RawOAuth,
    tools_allowed: Option<Vec<String>>,
    #[serde(default)]
    tools_denied: Vec<String>,
    queue: Option<String>,
    cache: Option<Period>,
    request_timeout_ms: Option<u64>,
    #[serde(default)]
    required: bool,
    protocol: Option<Protocol>,
    #[serde(default)]
    disabled: bool,
    enabled: Option<bool>,
}

/// The keys of [`RawServer`], in lower case; any other is told to the operator.
pub(super) const KEYS: [&str; 22] = [
    "type",
    "transport",
    "command",
    "args",
    "arguments",
    "env",
    "environmentvariables",
    "cwd",
    "url",
    "endpoint",
    "headers",
    "oauth",
    "toolsallowed",
    "toolsdenied",
    "queue",
    "cache",
    "requesttimeoutms",
    "required",
    "protocol",
    "disabled",
    "enabled",
    "name",
];

/// The longest name of a server, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The source of the management tools is `mcp:management`.
const TAKEN: &str = "management";
/// The bounds of a server's time-out, in milliseconds.
const TIMEOUTS: std::ops::RangeInclusive<u64> = 100..=24 * 3600 * 1000;

impl RawServer {
    pub(super) fn is_off(&self) -> bool {
        self.disabled || self.enabled == Some(false)
    }

    /// Checks it and fills in its variables.
    ///
    /// # Errors
    /// What is wrong, in words for an operator.
    pub(super) fn check(
        self,
        name: &str,
        lookup: &impl Fn(&str) -> Option<String>,
    ) -> Result<ServerConfig, String> {
        check_name(name)?;
        let fill = |text: &str| expand(text, lookup).map_err(|error| error.to_string());
        let secrets = |map: BTreeMap<String, String>| -> Result<BTreeMap<_, _>, String> {
            map.into_iter()
                .map(|(key, value)| Ok((key, SecretString::from(fill(&value)?))))
                .collect()
        };
        let transport = match (self.command, self.url) {
            (Some(_), Some(_)) => return Err("it has both a command and a url; keep one".into()),
            (None, None) => return Err("it has neither a command nor a url".into()),
            (Some(command), None) => {
                if !matches!(self.kind.as_deref(), None | Some("stdio")) {
                    return Err("with a command its type is \"stdio\"".into());
                }
                let args = self.args.iter().map(|arg| fill(arg)).collect::<Result<_, _>>()?;
                let command = fill(&command)?;
                if command.is_empty() {
                    return Err("its command is empty".into());
                }
                let env = secrets(self.env)?;
                Transport::Stdio(Program { command, args, env, cwd: self.cwd })
            }
            (None, Some(url)) => {
                let oauth = self.oauth.check(fill)?;
                let remote = Remote { url: fill(&url)?, headers: secrets(self.headers)?, oauth };
                let is_socket = remote.url.starts_with("ws://") || remote.url.starts_with("wss://");
                match self.kind.as_deref() {
                    None if is_socket => Transport::WebSocket(remote),
                    None | Some("http" | "streamable-http" | "streamableHttp") => {
                        Transport::Http(remote)
                    }
                    Some("sse") => Transport::Sse(remote),
                    Some("websocket" | "ws") => Transport::WebSocket(remote),
                    Some(_) => {
                        return Err("its type is none of \"http\", \"sse\", \"websocket\"".into());
                    }
                }
            }
        };
        if let Some(ms) = self.request_timeout_ms.filter(|ms| !TIMEOUTS.contains(ms)) {
            let (least, most) = TIMEOUTS.into_inner();
            return Err(format!("requestTimeoutMs is {ms}; it must be {least} to {most}"));
        }
        Ok(ServerConfig {
            name: name.to_owned(),
            transport,
            tools_allowed: self.tools_allowed,
            tools_denied: self.tools_denied,
            queue: self.queue,
            cache: self.cache,
            request_timeout: self.request_timeout_ms.map(Duration::from_millis),
            required: self.required,
            protocol: self.protocol,
        })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let usable = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '/' | '@');
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !name.chars().all(usable) {
        return Err(format!(
            "its name must be 1 to {MAX_NAME_CHARS} letters, digits, spaces or -_./@"
        ));
    }
    if name.eq_ignore_ascii_case(TAKEN) {
        return Err(format!(
            "{TAKEN} is the name of the tools that manage servers; choose another"
        ));
    }
    Ok(())
}

impl ServerConfig {
    /// A server that a caller adds at run time.
    ///
    /// # Errors
    /// When its name can't be one.
    pub(crate) fn at_run_time(name: &str, transport: Transport) -> Result<Self, String> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            transport,
            tools_allowed: None,
            tools_denied: Vec::new(),
            queue: None,
            cache: None,
            request_timeout: None,
            required: false,
            protocol: None,
        })
    }

    /// Whether a tool of that name may be listed and called.
    #[must_use]
    pub fn permits(&self, tool: &str) -> bool {
        let denied = self.tools_denied.iter().any(|name| name == tool || name == "*");
        let listed = |names: &Vec<String>| names.iter().any(|name| name == tool || name == "*");
        !denied && self.tools_allowed.as_ref().is_none_or(listed)
    }

    /// Whether one process at a time may serve it: it is a program with a state of its own.
    #[must_use]
    pub fn has_one_owner(&self) -> bool {
        matches!(self.transport, Transport::Stdio(_))
    }
}

/// Secrets don't compare; for the difference between two files they must.
impl PartialEq for ServerConfig {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.transport == other.transport
            && self.tools_allowed == other.tools_allowed
            && self.tools_denied == other.tools_denied
            && self.queue == other.queue
            && self.cache == other.cache
            && self.request_timeout == other.request_timeout
            && self.required == other.required
            && self.protocol == other.protocol
    }
}

impl PartialEq for Transport {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stdio(one), Self::Stdio(two)) => one == two,
            (Self::Http(one), Self::Http(two))
            | (Self::Sse(one), Self::Sse(two))
            | (Self::WebSocket(one), Self::WebSocket(two)) => one == two,
            _ => false,
        }
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.command == other.command
            && self.args == other.args
            && self.cwd == other.cwd
            && same(&self.env, &other.env)
    }
}

impl PartialEq for Remote {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url && same(&self.headers, &other.headers) && self.oauth == other.oauth
    }
}

fn same(one: &BTreeMap<String, SecretString>, two: &BTreeMap<String, SecretString>) -> bool {
    let exposed =
        |(name, value): (&String, &SecretString)| (name.clone(), value.expose_secret().to_owned());
    one.len() == two.len() && one.iter().map(exposed).eq(two.iter().map(exposed))
}
