//! Registries of MCP servers: the API of the official registry, or a file with the same content.

mod document;
mod entry;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use reqwest::{Method, StatusCode, Url};
use rockbot_contracts::json::Limits;
use rockbot_egress::{ClientOptions, DialPolicy, EgressError, Fetch, GuardedClient, read_body};
use rockbot_service::watch::{FileError, read_bounded};
use tokio::time::Instant;

use self::document::{ListedServer, ServerList};
pub use self::{document::RegistryServer, entry::NewEntry};

/// The time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum number of servers that a search requests and returns.
const MAX_RESULTS: usize = 50;

/// A registry that cannot be used, or that does not have the server.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file cannot be read.
    #[error("the registry {path} cannot be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: FileError,
    },
    /// The registry's address is not a URL.
    #[error("the registry {url} is not a URL; set mcp.registry to a URL or a file")]
    Address {
        /// The address.
        url: String,
    },
    /// The registry did not respond.
    #[error("the registry {host} is unavailable: {source}")]
    Unavailable {
        /// The host of the registry.
        host: String,
        /// The cause.
        source: EgressError,
    },
    /// The registry responded with an error.
    #[error("the registry {host} responded with HTTP {status}")]
    Status {
        /// The host of the registry.
        host: String,
        /// The status.
        status: u16,
    },
    /// The content is not that of a registry.
    #[error("the registry {place} returned no servers: {reason}")]
    Malformed {
        /// The file or host.
        place: String,
        /// The cause.
        reason: String,
    },
    /// No server has that name.
    #[error("the registry has no server {name}; find its name with `rockbot mcp search WORDS`")]
    Unknown {
        /// The name.
        name: String,
    },
    /// Several servers have that name.
    #[error("the registry has several servers {name}; use a full name: {candidates}")]
    Ambiguous {
        /// The name.
        name: String,
        /// The full names.
        candidates: String,
    },
}

/// A registry of MCP servers.
#[derive(Debug, Clone)]
pub struct Registry {
    source: Source,
    policy: Arc<DialPolicy>,
}

#[derive(Debug, Clone)]
enum Source {
    Api(Url),
    File(PathBuf),
}

impl Registry {
    /// Creates a registry from the URL of an API, or the path of a file with the JSON of its list of
    /// servers. Only addresses that `policy` permits are dialed.
    ///
    /// # Errors
    /// [`RegistryError::Address`].
    pub fn new(location: &str, policy: DialPolicy) -> Result<Self, RegistryError> {
        let is_url = location.starts_with("https://") || location.starts_with("http://");
        let source = if is_url {
            let url = Url::parse(location.trim_end_matches('/'));
            let address = |_| RegistryError::Address { url: location.to_owned() };
            Source::Api(url.map_err(address)?)
        } else {
            Source::File(location.into())
        };
        Ok(Self { source, policy: Arc::new(policy) })
    }

    /// Returns servers whose name, title or description contains all words, at most 50.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn search(&self, words: &[String]) -> Result<Vec<RegistryServer>, RegistryError> {
        let words: Vec<_> = words.iter().map(|word| word.to_lowercase()).collect();
        let servers = match &self.source {
            Source::File(path) => read_file(path)?,
            Source::Api(base) => {
                // The API searches for one text in names.
                let longest = words.iter().max_by_key(|word| word.len());
                let longest = longest.map_or("", String::as_str);
                self.list(base, longest).await?
            }
        };
        let matches = |server: &RegistryServer| {
            let title = server.title.as_deref().unwrap_or_default();
            let text = format!("{} {title} {}", server.name, server.description).to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        };
        Ok(servers.into_iter().filter(matches).take(MAX_RESULTS).collect())
    }

    /// Returns the server with a name; the part after the last `/` suffices if it is unique.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn find(&self, name: &str) -> Result<RegistryServer, RegistryError> {
        let found = match &self.source {
            Source::File(path) => read_file(path)?,
            Source::Api(base) => self.list(base, name).await?,
        };
        let is_exact = |server: &&RegistryServer| server.name.eq_ignore_ascii_case(name);
        if let Some(exact) = found.iter().find(is_exact) {
            return Ok(exact.clone());
        }
        let short = |server: &RegistryServer| {
            let last = server.name.rsplit('/').next().unwrap_or_default();
            last.eq_ignore_ascii_case(name)
        };
        let mut found: Vec<_> = found.into_iter().filter(short).collect();
        match found.len() {
            0 => Err(RegistryError::Unknown { name: name.to_owned() }),
            1 => Ok(found.remove(0)),
            _ => {
                let candidates: Vec<_> = found.into_iter().map(|server| server.name).collect();
                let candidates = candidates.join(", ");
                Err(RegistryError::Ambiguous { name: name.to_owned(), candidates })
            }
        }
    }

    /// Requests the latest versions of servers whose name contains `text`.
    async fn list(&self, base: &Url, text: &str) -> Result<Vec<RegistryServer>, RegistryError> {
        let host = base.host_str().unwrap_or_default().to_owned();
        let unavailable = |source| RegistryError::Unavailable { host: host.clone(), source };
        let mut url = base.clone();
        url.set_path(&format!("{}/v0.1/servers", base.path().trim_end_matches('/')));
        url.query_pairs_mut()
            .append_pair("version", "latest")
            .append_pair("limit", &MAX_RESULTS.to_string())
            .append_pair("search", text);
        let options = ClientOptions::default();
        let client = GuardedClient::new(self.policy.clone(), options).map_err(unavailable)?;
        let deadline = Instant::now() + TIMEOUT;
        let fetch = Fetch::new(&client, Method::GET, url).with_deadline(deadline);
        let response = fetch.finish().await.map_err(unavailable)?.response;
        if response.status() != StatusCode::OK {
            return Err(RegistryError::Status { host, status: response.status().as_u16() });
        }
        let limit = Limits::default().bytes;
        let body = read_body(response, limit, Some(deadline)).await.map_err(unavailable)?;
        parse(&host, &body)
    }
}

fn read_file(path: &Path) -> Result<Vec<RegistryServer>, RegistryError> {
    let content = read_bounded(path, MAX_FILE_BYTES);
    let content =
        content.map_err(|source| RegistryError::File { path: path.to_owned(), source })?;
    parse(&path.display().to_string(), &content)
}

/// Parses a list of servers. Without `servers`, the array itself is the list.
fn parse(place: &str, content: &[u8]) -> Result<Vec<RegistryServer>, RegistryError> {
    let list: Result<ServerList, _> = serde_json::from_slice(content);
    let servers: Vec<ListedServer> = match list {
        Ok(list) => list.servers,
        Err(error) => serde_json::from_slice(content).map_err(|_| RegistryError::Malformed {
            place: place.to_owned(),
            reason: rockbot_contracts::json::describe_error(&error),
        })?,
    };
    let servers = servers.into_iter().map(ListedServer::into_server);
    Ok(servers.filter(|server| !server.name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registry(content: &serde_json::Value) -> (tempfile::TempDir, Registry) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.json");
        std::fs::write(&path, content.to_string()).unwrap();
        let registry = Registry::new(path.to_str().unwrap(), DialPolicy::default()).unwrap();
        (folder, registry)
    }

    fn servers() -> serde_json::Value {
        json!([
            {"server": {"name": "io.github.a/weather", "description": "Forecasts for places."}},
            {"server": {"name": "io.github.b/weather", "title": "Storms", "description": "x"}},
            {"name": "com.example/notes", "description": "Notes."},
        ])
    }

    #[tokio::test]
    async fn file_is_searched_offline() {
        for content in [servers(), json!({"servers": servers(), "metadata": {"count": 3}})] {
            let (_folder, registry) = registry(&content);
            let search = async |words: &[&str]| -> Vec<String> {
                let words: Vec<_> = words.iter().map(ToString::to_string).collect();
                let found = registry.search(&words).await.unwrap();
                found.into_iter().map(|server| server.name).collect()
            };
            assert_eq!(search(&["Weather", "places"]).await, ["io.github.a/weather"]);
            assert_eq!(search(&["weather"]).await.len(), 2);
            assert_eq!(search(&["storms"]).await, ["io.github.b/weather"]);
            assert!(search(&["nothing"]).await.is_empty());
        }
    }

    #[tokio::test]
    async fn short_name_must_be_unique() {
        let (_folder, registry) = registry(&servers());
        assert_eq!(registry.find("NOTES").await.unwrap().name, "com.example/notes");
        assert_eq!(registry.find("io.github.b/weather").await.unwrap().description, "x");
        let ambiguous = registry.find("weather").await.unwrap_err().to_string();
        assert!(ambiguous.contains("io.github.a/weather, io.github.b/weather"), "{ambiguous}");
        assert!(matches!(registry.find("none").await, Err(RegistryError::Unknown { .. })));
    }

    #[tokio::test]
    async fn other_content_is_malformed() {
        let (folder, registry) = registry(&json!({"packages": []}));
        assert!(matches!(registry.find("x").await, Err(RegistryError::Malformed { .. })));
        let absent = folder.path().join("absent.json").display().to_string();
        let absent = Registry::new(&absent, DialPolicy::default()).unwrap();
        assert!(matches!(absent.find("x").await, Err(RegistryError::File { .. })));
        assert!(Registry::new("https://", DialPolicy::default()).is_err());
    }
}
