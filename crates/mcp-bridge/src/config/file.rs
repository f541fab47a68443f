//! The file of servers.

use std::{collections::BTreeMap, io::Read, path::Path};

use serde_json::{Map, Value};

use super::server::{KEYS, RawServer, ServerConfig};

/// The largest file of servers, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The most servers of one bridge.
pub(crate) const MOST_SERVERS: usize = 256;

/// The servers of a file, and what is wrong with those that are not among them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServersFile {
    /// The usable ones, by their lower-case names.
    pub servers: BTreeMap<String, ServerConfig>,
    /// What is wrong with the others, and which keys mean nothing here.
    pub problems: Vec<String>,
}

/// A file that says nothing about servers.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is too large.
    #[error("it has more than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is JSON of another kind.
    #[error("it has no \"mcpServers\" object and no \"Mcp\": {{\"Servers\": […]}}")]
    Form,
}

impl ServersFile {
    /// Reads a file: `{"mcpServers": {NAME: {…}}}`, or `{"Mcp": {"Servers": [{"Name": …}]}}`.
    /// `lookup` answers for variables of the environment.
    ///
    /// A server with a problem is left out and told; the others are served.
    ///
    /// # Errors
    /// When the file as a whole can't be used.
    pub fn read(path: &Path, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, FileProblem> {
        Self::parse(&read_bounded(path)?, lookup)
    }

    /// The same for its text.
    ///
    /// # Errors
    /// As for [`ServersFile::read`].
    pub fn parse(
        text: &[u8],
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FileProblem> {
        let root: Value = serde_json::from_slice(text)?;
        let mut read = Self::default();
        for (name, entry) in entries(root)? {
            read.take(&name, entry, &lookup);
        }
        Ok(read)
    }

    fn take(&mut self, name: &str, entry: Value, lookup: &impl Fn(&str) -> Option<String>) {
        let shown: String = name.chars().take(80).collect();
        let mut problem = |what: String| self.problems.push(format!("server {shown:?}: {what}"));
        let Value::Object(entry) = entry else { return problem("it is not an object".into()) };
        let strange = entry.keys().filter(|key| !KEYS.contains(&key.to_lowercase().as_str()));
        for key in strange {
            problem(format!("{key:?} means nothing here"));
        }
        let raw: RawServer = match serde_json::from_value(Value::Object(camel_case(entry))) {
            Ok(raw) => raw,
            Err(error) => return problem(error.to_string()),
        };
        if raw.is_off() {
            return;
        }
        match raw.check(name, lookup) {
            Err(what) => problem(what),
            Ok(_) if self.servers.len() >= MOST_SERVERS => {
                problem(format!("at most {MOST_SERVERS} servers"));
            }
            Ok(server) => {
                if let Some(other) = self.servers.insert(name.to_lowercase(), server) {
                    problem(format!(
                        "it replaces {:?}: names differ by more than case",
                        other.name
                    ));
                }
            }
        }
    }
}

pub(super) fn read_bounded(path: &Path) -> Result<Vec<u8>, FileProblem> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES { Err(FileProblem::TooLarge) } else { Ok(text) }
}

fn entries(root: Value) -> Result<Vec<(String, Value)>, FileProblem> {
    let Value::Object(mut root) = root else { return Err(FileProblem::Form) };
    if let Some(Value::Object(servers)) = root.remove("mcpServers") {
        return Ok(servers.into_iter().collect());
    }
    let Some(Value::Object(mut mcp)) = root.remove("Mcp") else { return Err(FileProblem::Form) };
    let Some(Value::Array(servers)) = mcp.remove("Servers") else { return Err(FileProblem::Form) };
    let named = |entry: Value| {
        let name = entry.get("Name").or_else(|| entry.get("name")).and_then(Value::as_str);
        (name.unwrap_or_default().to_owned(), entry)
    };
    Ok(servers.into_iter().map(named).collect())
}

/// The array form begins its keys with a capital.
fn camel_case(entry: Map<String, Value>) -> Map<String, Value> {
    let lower = |key: String| {
        let mut characters = key.chars();
        match characters.next() {
            Some(first) => first.to_lowercase().chain(characters).collect(),
            None => key,
        }
    };
    entry.into_iter().map(|(key, value)| (lower(key), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Transport, oauth::Grant};

    fn parse(text: &str) -> ServersFile {
        let lookup = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        ServersFile::parse(text.as_bytes(), lookup).unwrap()
    }

    #[test]
    fn both_forms_are_read() {
        let map = parse(
            r#"{"mcpServers": {"GitHub": {"command": "npx", "args": ["-y", "x"],
                "env": {"KEY": "${TOKEN}"}, "toolsDenied": ["delete"], "requestTimeoutMs": 5000}}}"#,
        );
        let array = parse(
            r#"{"Mcp": {"Servers": [{"Name": "GitHub", "Command": "npx", "Arguments": ["-y", "x"],
                "EnvironmentVariables": {"KEY": "secret"}, "ToolsDenied": ["delete"],
                "RequestTimeoutMs": 5000}]}}"#,
        );
        assert_eq!(map, array);
        assert!(map.problems.is_empty(), "{:?}", map.problems);
        let server = &map.servers["github"];
        assert!(server.permits("create") && !server.permits("delete"));
        assert!(!format!("{server:?}").contains("secret"));
    }

    #[test]
    fn the_transport_follows_from_what_is_there() {
        let read = parse(
            r#"{"mcpServers": {"a": {"url": "https://a/mcp"}, "b": {"url": "wss://b"},
                "c": {"type": "sse", "url": "https://c/sse"}, "d": {"disabled": true}}}"#,
        );
        assert!(matches!(read.servers["a"].transport, Transport::Http(_)));
        assert!(matches!(read.servers["b"].transport, Transport::WebSocket(_)));
        assert!(matches!(read.servers["c"].transport, Transport::Sse(_)));
        assert_eq!(read.servers.len(), 3);
    }

    #[test]
    fn one_bad_server_does_not_take_the_others_along() {
        let read = parse(
            r#"{"mcpServers": {"good": {"command": "x", "autoApprove": []}, "both": {"command": "x",
                "url": "https://x"}, "none": {}, "unset": {"command": "${NONE}"}, "odd": 7,
                "time": {"command": "x", "requestTimeoutMs": 1}, "": {"command": "x"}, "Management": {"command": "x"},
                "kind": {"type": "pigeon", "url": "https://x"}, "GOOD": {"command": "y"}}}"#,
        );
        assert_eq!(read.servers.len(), 1);
        let all = read.problems.join("\n");
        for word in ["autoApprove", "both", "neither", "NONE", "object", "Timeout", "name", "type"]
        {
            assert!(all.contains(word), "{word} in {all}");
        }
        assert_eq!(read.problems.len(), 10, "{all}");
    }

    #[test]
    fn who_asks_for_tokens_follows_from_what_is_there() {
        let read = parse(
            r#"{"mcpServers": {"nobody": {"url": "https://a"},
                "machine": {"url": "https://b", "oauth": {"clientId": "x", "clientSecret": "${TOKEN}"}},
                "person": {"url": "https://c", "oauth": {"login": true, "clientId": "x",
                    "clientSecret": "y", "scopes": ["read"]}},
                "half": {"url": "https://d", "oauth": {"clientSecret": "y"}}}}"#,
        );
        let oauth = |name| &read.servers[name].transport.remote().unwrap().oauth;
        assert!(matches!(oauth("nobody").grant, Grant::Person { client_id: None, .. }));
        assert!(matches!(oauth("machine").grant, Grant::Machine { .. }));
        assert!(matches!(oauth("person").grant, Grant::Person { client_secret: Some(_), .. }));
        assert_eq!(oauth("person").scopes, ["read"]);
        assert!(read.problems.len() == 1 && read.problems[0].contains("clientSecret"));
    }

    #[test]
    fn what_is_no_list_of_servers_is_refused() {
        for text in ["", "{", "[]", "{}", r#"{"mcpServers": []}"#, r#"{"Mcp": {}}"#] {
            assert!(ServersFile::parse(text.as_bytes(), |_| None).is_err(), "{text}");
        }
    }
}
