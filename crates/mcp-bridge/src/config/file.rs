//! Parsing of the servers file.

use std::{collections::BTreeMap, path::Path};

use rockbot_contracts::{Period, period::optional_period_or_millis};
use rockbot_service::watch::read_bounded;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::{
    client_file::{ClientFile, ClientServer},
    error::ServersFileError,
    limits::{MAX_FILE_BYTES, MAX_SERVERS},
    openapi,
    paths::absolute,
    server::{KEYS, RawServer, ServerConfig},
};
use crate::queue::QueueConfig;

/// The valid servers of a file, and errors of the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServersFile {
    /// Valid servers by their lower-case names.
    pub servers: BTreeMap<String, ServerConfig>,
    /// Queues that the servers can share.
    pub queues: BTreeMap<String, QueueConfig>,
    /// The errors of the other queues, by their names.
    pub(crate) invalid_queues: BTreeMap<String, String>,
    /// Errors of the others.
    pub errors: Vec<String>,
    /// The servers that are skipped because of an error.
    pub invalid: Vec<InvalidServer>,
    /// Parts without effect, such as keys for other clients.
    pub warnings: Vec<String>,
}

/// A server whose entry is invalid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InvalidServer {
    /// Its name, truncated.
    pub name: String,
    /// The error, for an operator.
    pub reason: String,
    /// The bridge is not ready without this server.
    pub required: bool,
}

impl ServersFile {
    /// Reads a file: `{"mcpServers": {NAME: {…}}}` or `{"Mcp": {"Servers": [{"Name": …}]}}`, with the
    /// settings `queues`, `toolTimeout` and `traceMCP` beside the servers, or the configuration file of an
    /// MCP client. `lookup` returns the values of environment variables.
    ///
    /// An invalid server is skipped and reported in `errors`.
    ///
    /// # Errors
    /// When the file as a whole is unusable.
    pub fn read(
        path: &Path,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ServersFileError> {
        let path = absolute(path);
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse_in(folder, &read_bounded(&path, MAX_FILE_BYTES)?, lookup)
    }

    /// Parses the text of a file. Relative paths refer to the working directory.
    ///
    /// # Errors
    /// As for [`ServersFile::read`].
    pub fn parse(
        text: &[u8],
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ServersFileError> {
        Self::parse_in(Path::new(""), text, lookup)
    }

    /// Parses the text of a file in `folder`, which relative paths of OpenAPI documents and of files with
    /// variables refer to.
    ///
    /// # Errors
    /// As for [`ServersFile::read`].
    pub fn parse_in(
        folder: &Path,
        text: &[u8],
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ServersFileError> {
        let file = ClientFile::parse(folder, text)?;
        let mut parsed = Self { warnings: file.warnings, ..Self::default() };
        let common = parsed.common(&file.settings);
        for ClientServer { name, entry } in file.servers {
            parsed.add(&name, entry, folder, &lookup);
        }
        for server in parsed.servers.values_mut() {
            server.tool_timeout = common.tool_timeout.and_then(Period::duration);
            server.trace = common.trace;
        }
        Ok(parsed)
    }

    /// Returns the errors of queues, for an operator. `is_configured` returns whether
    /// `[handler.queues]` has a queue of this name.
    #[must_use]
    pub fn queue_problems(&self, is_configured: impl Fn(&str) -> bool) -> Vec<String> {
        let repeated = self.queues.keys().filter(|name| is_configured(name)).map(|name| {
            format!("queue {name:?}: it is also in [handler.queues]; keep one of them")
        });
        let unknown = self.servers.values().filter_map(|server| {
            let queue = server.queue.as_ref()?;
            let is_known = self.queues.contains_key(queue) || is_configured(queue);
            (!is_known).then(|| {
                let server = &server.name;
                if let Some(error) = self.invalid_queues.get(queue) {
                    return format!("server {server:?}: queue {queue:?} is invalid: {error}");
                }
                format!(
                    "server {server:?}: queue {queue:?} is unknown; define it in \"queues\" of this \
                     file or in [handler.queues]"
                )
            })
        });
        repeated.chain(unknown).collect()
    }

    /// Reads the settings that apply to all servers.
    fn common(&mut self, settings: &Map<String, Value>) -> CommonSettings {
        let mut common = CommonSettings::default();
        for (key, value) in settings {
            let read = match key.as_str() {
                "queues" => Map::deserialize(value).map(|queues| {
                    for (name, queue) in queues {
                        match QueueConfig::deserialize(&queue) {
                            Ok(queue) => {
                                self.queues.insert(name, queue);
                            }
                            Err(error) => {
                                self.errors.push(format!("queue {name:?}: {error}"));
                                self.invalid_queues.insert(name, error.to_string());
                            }
                        }
                    }
                }),
                "toolTimeout" => {
                    optional_period_or_millis(value).map(|timeout| common.tool_timeout = timeout)
                }
                "traceMCP" | "traceMcp" => {
                    bool::deserialize(value).map(|trace| common.trace = trace)
                }
                _ => Ok(()),
            };
            if let Err(error) = read {
                self.errors.push(format!("{key}: {error}"));
            }
        }
        common
    }

    fn add(
        &mut self,
        name: &str,
        entry: Result<Map<String, Value>, String>,
        folder: &Path,
        lookup: &impl Fn(&str) -> Option<String>,
    ) {
        let shown: String = name.chars().take(80).collect();
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return self.reject(shown, error, false),
        };
        let required = entry.get("required").is_some_and(|required| *required == true);
        let is_api = openapi::is_api(&entry);
        let is_known = |key: &str| {
            if is_api { openapi::is_known(key) } else { KEYS.contains(&key) }
        };
        for key in entry.keys().filter(|key| !is_known(key)) {
            let key: String = key.chars().take(80).collect();
            self.warnings.push(format!("server {shown:?}: unknown key {key:?} has no effect"));
        }
        let raw = match RawServer::deserialize(&entry) {
            Ok(raw) => raw,
            Err(error) => return self.reject(shown, type_error(&entry, &error), required),
        };
        if raw.is_disabled() {
            return;
        }
        let api = is_api.then(|| openapi::api(&entry, folder, lookup)).transpose();
        match api.and_then(|api| raw.validate(name, api, lookup)) {
            Err(error) => self.reject(shown, error, required),
            Ok(_) if self.servers.len() >= MAX_SERVERS => {
                self.reject(shown, format!("the limit is {MAX_SERVERS} servers"), required);
            }
            Ok(server) => {
                if let Some(other) = self.servers.insert(name.to_lowercase(), server) {
                    self.errors.push(format!(
                        "server {shown:?}: it replaces {:?}; names must differ by more than case",
                        other.name
                    ));
                }
            }
        }
    }

    /// Records a server that is skipped because of an error.
    fn reject(&mut self, name: String, reason: String, required: bool) {
        self.errors.push(format!("server {name:?}: {reason}"));
        if self.invalid.len() < MAX_SERVERS {
            self.invalid.push(InvalidServer { name, reason, required });
        }
    }
}

/// Returns an error for an entry with a value of another type. It does not quote the value, which may be a
/// secret.
fn type_error(entry: &Map<String, Value>, error: &serde_json::Error) -> String {
    let has_error = |(key, value): &(&String, &Value)| {
        let one = Map::from_iter([((*key).clone(), (*value).clone())]);
        RawServer::deserialize(&one).is_err()
    };
    let key = entry.iter().find(has_error).map(|(key, _)| key.as_str()).unwrap_or_default();
    match error.to_string().rsplit_once(", expected ") {
        Some((_, expected)) => format!("{key} must be {expected}"),
        None => format!("{key} has an invalid value"),
    }
}

/// Settings that apply to all servers of a file.
#[derive(Debug, Default)]
struct CommonSettings {
    tool_timeout: Option<Period>,
    trace: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Transport, oauth::Grant};
    use rockbot_contracts::mcp::McpExposure;

    fn parse(text: &str) -> ServersFile {
        let lookup = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        ServersFile::parse(text.as_bytes(), lookup).unwrap()
    }

    #[test]
    fn both_forms_parse_to_the_same_servers() {
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
        assert!(map.errors.is_empty(), "{:?}", map.errors);
        let server = &map.servers["github"];
        assert!(server.permits("create") && !server.permits("delete"));
        assert!(!format!("{server:?}").contains("secret"));
    }

    #[test]
    fn common_settings_apply_to_all_servers() {
        let map = parse(
            r#"{"queues": {"slow": {"concurrent": 3}}, "toolTimeout": 30000, "traceMCP": true,
                "mcpServers": {"a": {"command": "x", "queue": "slow", "exposure": "eager"}}}"#,
        );
        let array = parse(
            r#"{"Mcp": {"Queues": {"slow": {"concurrency": 3}}, "ToolTimeout": "30s", "TraceMcp": true,
                "Servers": [{"Name": "a", "Command": "x", "Queue": "slow", "Exposure": "eager"}]}}"#,
        );
        assert_eq!(map, array);
        assert!(map.errors.is_empty(), "{:?}", map.errors);
        let server = &map.servers["a"];
        assert_eq!(server.tool_timeout, Some(std::time::Duration::from_secs(30)));
        assert!(server.trace && server.exposure == Some(McpExposure::Eager));
        assert!(map.queue_problems(|_| false).is_empty());
        assert!(map.queue_problems(|name| name == "slow")[0].contains("keep one"));
        let bad = parse(
            r#"{"queues": {"slow": {"concurrency": 0}, "odd": {"colour": 1}}, "toolTimeout": -1,
                "traceMCP": 1, "mcpServers": {"a": {"command": "x", "queue": "slow"}}}"#,
        );
        assert_eq!(bad.errors.len(), 4, "{:?}", bad.errors);
        let problems = bad.queue_problems(|_| false);
        assert!(problems[0].contains(r#"queue "slow" is invalid: invalid value"#), "{problems:?}");
        assert!(bad.queue_problems(|name| name == "slow").is_empty());
    }

    #[test]
    fn transport_is_derived_from_keys() {
        let read = parse(
            r#"{"mcpServers": {"a": {"url": "https://a/mcp"}, "b": {"url": "wss://b"},
                "c": {"type": "sse", "url": "https://c/sse"}, "d": {"disabled": true},
                "e": {"type": "http", "url": "https://e/mcp"}}}"#,
        );
        assert!(matches!(read.servers["a"].transport, Transport::HttpOrSse(_)));
        assert!(matches!(read.servers["b"].transport, Transport::WebSocket(_)));
        assert!(matches!(read.servers["c"].transport, Transport::Sse(_)));
        assert!(matches!(read.servers["e"].transport, Transport::Http(_)));
        assert_eq!(read.servers.len(), 4);
    }

    #[test]
    fn invalid_servers_do_not_affect_others() {
        let read = parse(
            r#"{"mcpServers": {"good": {"command": "x", "autoApprove": []}, "both": {"command": "x",
                "url": "https://x"}, "none": {}, "unset": {"command": "${NONE}"}, "odd": 7,
                "time": {"command": "x", "requestTimeoutMs": 1}, "": {"command": "x"},
                "Management": {"command": "x"},
                "kind": {"type": "pigeon", "url": "https://x"}, "GOOD": {"command": "y"}}}"#,
        );
        assert_eq!(read.servers.len(), 1);
        let all = read.errors.join("\n");
        for word in ["both", "neither", "NONE", "object", "Timeout", "name", "type"] {
            assert!(all.contains(word), "{word} in {all}");
        }
        assert_eq!(read.errors.len(), 9, "{all}");
        // One of the errors is of a valid server.
        let invalid: Vec<_> = read.invalid.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(invalid.len(), 8, "{invalid:?}");
        assert!(invalid.contains(&"unset") && !invalid.contains(&"GOOD"), "{invalid:?}");
        assert!(matches!(read.warnings.as_slice(), [one] if one.contains("autoApprove")));
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_parsed_or_rejected(text in ".{0,200}", entries in entries_with_any_keys()) {
            let _ = ServersFile::parse(text.as_bytes(), |_| None);
            let servers = Value::Object(entries);
            for file in [
                serde_json::json!({"mcpServers": servers.clone()}),
                serde_json::json!({"Mcp": {"Servers": [servers.clone(), {"Name": "x", "Url": servers}]}}),
            ] {
                let lookup = |name: &str| (name.len() < 3).then(|| "${A}".to_owned());
                let _ = ServersFile::parse(file.to_string().as_bytes(), lookup);
            }
        }
    }

    const USED_KEYS: [&str; 22] = [
        "exposure",
        "openapi",
        "auth",
        "include",
        "baseUrl",
        "type",
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "headers",
        "oauth",
        "toolsAllowed",
        "toolsDenied",
        "queue",
        "cache",
        "requestTimeoutMs",
        "required",
        "protocol",
        "disabled",
        "enabled",
    ];

    fn entries_with_any_keys() -> impl proptest::strategy::Strategy<Value = Map<String, Value>> {
        use proptest::prelude::*;
        let text = "(https?://|wss?://)?[a-z$\\\\{}:./-]{0,12}";
        let scalar = prop_oneof![
            text.prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        let value = prop_oneof![
            scalar.clone(),
            proptest::collection::vec(scalar.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[A-Za-z]{1,6}", scalar, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ];
        let entry =
            proptest::collection::vec((proptest::sample::select(&USED_KEYS[..]), value), 0..5);
        let entry = entry.prop_map(|members| {
            let members = members.into_iter().map(|(key, value)| (key.to_owned(), value));
            Value::Object(members.collect())
        });
        proptest::collection::btree_map("[A-Za-z /.]{0,6}", entry, 0..4)
            .prop_map(|entries| entries.into_iter().collect())
    }

    #[test]
    fn openapi_entry_has_keys_of_rest_tools_and_of_servers() {
        let read = parse(
            r#"{"mcpServers": {
                "GitHub": {"openapi": "github.json", "auth": {"key": {"token": "${TOKEN}"}},
                    "include": {"tags": ["repos"]}, "toolsDenied": ["repos/delete"],
                    "toolsReadOnly": ["search"], "requestTimeoutMs": 5000, "oauth": {}},
                "two": {"openapi": "a.json", "url": "https://a"},
                "times": {"openapi": "a.json", "timeoutMs": 500, "requestTimeoutMs": 500},
                "unset": {"openapi": "a.json", "baseUrl": "${NONE}"},
                "kind": {"openapi": "a.json", "type": "http"},
                "keys": {"openapi": "a.json", "auth": {"key": {"colour": 1}}}}}"#,
        );
        let github = &read.servers["github"];
        assert_eq!(github.transport.name(), "openapi");
        assert!(!github.permits("repos/delete") && github.is_read_only("search"));
        assert!(!github.requires_single_owner() && github.transport.remote().is_none());
        assert!(!format!("{github:?}").contains("secret"));
        assert_eq!(read.servers.len(), 1);
        assert_eq!(read.errors.len(), 5, "{:?}", read.errors);
        let is_oauth = |warning: &String| warning.contains("\"oauth\"");
        assert!(read.warnings.iter().any(is_oauth), "{:?}", read.warnings);
        let with = |token: &str| {
            let entry =
                r#"{"mcpServers": {"a": {"openapi": "a.json", "headers": {"K": "${TOKEN}"}}}}"#;
            ServersFile::parse(entry.as_bytes(), |_| Some(token.to_owned())).unwrap()
        };
        assert_eq!(with("one"), with("one"));
        assert_ne!(with("one"), with("two"), "a new secret restarts the server");
    }

    #[test]
    fn grant_is_derived_from_keys() {
        let read = parse(
            r#"{"mcpServers": {"plain": {"url": "https://a"},
                "machine": {"url": "https://b", "oauth": {"clientId": "x", "clientSecret": "${TOKEN}"}},
                "person": {"url": "https://c", "oauth": {"login": true, "clientId": "x",
                    "clientSecret": "y", "scopes": ["read"]}},
                "half": {"url": "https://d", "oauth": {"clientSecret": "y"}}}}"#,
        );
        let oauth = |name| &read.servers[name].transport.remote().unwrap().oauth;
        assert!(matches!(oauth("plain").grant, Grant::User { client_id: None, .. }));
        assert!(matches!(oauth("machine").grant, Grant::Machine { .. }));
        assert!(matches!(oauth("person").grant, Grant::User { client_secret: Some(_), .. }));
        assert_eq!(oauth("person").scopes, ["read"]);
        assert!(read.errors.len() == 1 && read.errors[0].contains("clientSecret"));
    }

    #[test]
    fn file_without_servers_is_rejected() {
        for text in ["", "{", "[]", "{}", r#"{"mcpServers": []}"#, r#"{"Mcp": {}}"#] {
            assert!(ServersFile::parse(text.as_bytes(), |_| None).is_err(), "{text}");
        }
    }
}
