//! Servers as a registry describes them: the format `server.json` of the MCP registry. Untrusted.

use serde::Deserialize;

/// A server of a registry.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistryServer {
    /// Its unique name, such as `io.github.owner/server`.
    pub name: String,
    /// Its display name.
    pub title: Option<String>,
    /// Its purpose.
    pub description: String,
    /// Its version.
    pub version: String,
    pub(super) packages: Vec<Package>,
    pub(super) remotes: Vec<Endpoint>,
}

/// A package that contains the program of a server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Package {
    pub(super) registry_type: String,
    pub(super) identifier: String,
    pub(super) version: Option<String>,
    pub(super) transport: Endpoint,
    pub(super) runtime_arguments: Vec<Argument>,
    pub(super) package_arguments: Vec<Argument>,
    pub(super) environment_variables: Vec<Input>,
}

/// A transport, with the address of a remote server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Endpoint {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) url: String,
    pub(super) headers: Vec<Input>,
}

/// An environment variable, a header or an argument: a fixed value, or one that the user sets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) value: Option<String>,
    #[serde(rename = "default")]
    pub(super) default_value: Option<String>,
    pub(super) is_required: bool,
}

/// An argument: positional, or named with a value.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Argument {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) value_hint: Option<String>,
    #[serde(flatten)]
    pub(super) input: Input,
}

/// An element of a list: the server, or an object that contains it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ListedServer {
    Wrapped { server: RegistryServer },
    Plain(RegistryServer),
}

impl ListedServer {
    pub(super) fn into_server(self) -> RegistryServer {
        match self {
            Self::Wrapped { server } | Self::Plain(server) => server,
        }
    }
}

/// A list of servers.
#[derive(Debug, Deserialize)]
pub(super) struct ServerList {
    pub(super) servers: Vec<ListedServer>,
}
