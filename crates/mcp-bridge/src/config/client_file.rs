//! The servers in the configuration files of MCP clients.
//!
//! Each client has a form of its own: another key for the servers, other keys in an entry, other
//! placeholders. [`ClientFile::parse`] rewrites all of them to the keys and placeholders of the servers
//! file.

use std::path::Path;

use rockbot_service::watch::read_bounded;
use serde_json::{Map, Value, json};

use super::{
    client_entry::{EntryOptions, camel_case, canonical_entry},
    error::ServersFileError,
    paths::absolute,
    placeholders::{Placeholders, Syntax},
};

/// The largest configuration file of a client, in bytes. Some clients keep their state in it.
const MAX_CLIENT_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The servers of an MCP client's configuration file, in the form of the servers file. Nothing is expanded
/// yet: secrets are variables where the client has variables.
#[derive(Debug, Default)]
pub struct ClientFile {
    /// The servers, in the order of the file.
    pub servers: Vec<ClientServer>,
    /// The keys beside the servers in the own forms of the servers file.
    pub(super) settings: Map<String, Value>,
    /// Parts of the file without effect.
    pub warnings: Vec<String>,
}

/// A server of a client's file.
#[derive(Debug)]
pub struct ClientServer {
    /// Its name.
    pub name: String,
    /// Its entry with the keys of the servers file, or why the entry is unusable.
    pub entry: Result<Map<String, Value>, String>,
}

/// The servers of a file as they are written, and what their client's form means.
struct Found {
    servers: Vec<(String, Value)>,
    options: EntryOptions,
    syntax: Syntax,
}

impl ClientFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or has no servers in a known form.
    pub fn read(path: &Path) -> Result<Self, ServersFileError> {
        let path = absolute(path);
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(folder, &read_bounded(&path, MAX_CLIENT_FILE_BYTES)?)
    }

    /// Parses JSON, JSON with comments and trailing commas, or TOML. `folder` is the folder of the file.
    ///
    /// # Errors
    /// When the text has another syntax, or no known key for servers.
    pub(super) fn parse(folder: &Path, text: &[u8]) -> Result<Self, ServersFileError> {
        let Value::Object(mut root) = document(text)? else {
            return Err(ServersFileError::UnknownForm);
        };
        let mut file = Self::default();
        let permitted = PermittedServers::of(&root)?;
        let mut found = find(&mut root, folder).ok_or(ServersFileError::UnknownForm)?;
        if find(&mut root.clone(), folder).is_some_and(|other| !other.servers.is_empty()) {
            file.warnings.push("servers in a second key are not read".to_owned());
        }
        if found.syntax == Syntax::Opencode
            && let Some(Value::Object(tools)) = root.remove("tools")
        {
            file.warnings.extend(deny_tools(&mut found.servers, &tools));
        }
        if root.contains_key("projects") {
            file.warnings.push("the servers of \"projects\" are not read".to_owned());
        }
        file.settings = match root.remove("Mcp") {
            Some(Value::Object(settings)) => camel_case(settings),
            _ => root,
        };
        let placeholders = Placeholders::new(found.syntax, folder);
        for (name, entry) in found.servers {
            if !permitted.contains(&name) {
                continue;
            }
            let mut warn = |text: String| file.warnings.push(format!("server {name:?}: {text}"));
            let entry = match entry {
                Value::Object(mut entry) => {
                    placeholders.rewrite(&mut entry);
                    canonical_entry(entry, &found.options, &placeholders, &mut warn)
                }
                _ => Err("it is not an object".to_owned()),
            };
            file.servers.push(ClientServer { name, entry });
        }
        Ok(file)
    }
}

/// Parses the syntax. A text that does not begin with `{` or a comment of JSON is TOML.
fn document(text: &[u8]) -> Result<Value, ServersFileError> {
    let text = std::str::from_utf8(text).map_err(ServersFileError::Encoding)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() || text.trim_start().starts_with(['{', '/']) {
        let mut json = text.to_owned();
        // Comments become white space, so positions in errors stay.
        json_strip_comments::strip(&mut json).map_err(ServersFileError::Comment)?;
        return Ok(serde_json::from_str(&json)?);
    }
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
        ServersFileError::Toml(format!("{} in line {line}", error.message()))
    })?;
    Ok(serde_json::to_value(table)?)
}

/// Removes the servers from the document.
fn find(root: &mut Map<String, Value>, folder: &Path) -> Option<Found> {
    let found = |servers, options, syntax| Some(Found { servers, options, syntax });
    let plain = EntryOptions::default();
    if let Some(servers) = take_object(root, "mcpServers") {
        let is_gemini = folder.file_name().is_some_and(|name| name == ".gemini");
        let syntax = if is_gemini { Syntax::Gemini } else { Syntax::Common };
        return found(servers, plain, syntax);
    }
    if let Some(servers) = take_object(root, "servers") {
        return found(servers, plain, Syntax::Common);
    }
    if let Some(servers) = take_object(root, "context_servers") {
        return found(servers, plain, Syntax::Common);
    }
    if let Some(servers) = take_object(root, "mcp_servers") {
        return found(servers, plain, Syntax::Common);
    }
    if let Some(Value::Array(servers)) = root.get_mut("Mcp").and_then(|mcp| mcp.get_mut("Servers"))
    {
        let named = |entry: Value| {
            let name = entry.get("Name").or_else(|| entry.get("name")).and_then(Value::as_str);
            (name.unwrap_or_default().to_owned(), entry)
        };
        return found(
            std::mem::take(servers).into_iter().map(named).collect(),
            plain,
            Syntax::Common,
        );
    }
    let mcp = root.get_mut("mcp")?.as_object_mut()?;
    if let Some(servers) = take_object(mcp, "servers") {
        return found(servers, plain, Syntax::Common);
    }
    let servers = take_object(root, "mcp")?;
    let options = EntryOptions { timeout_is_of_start: true };
    let is_opencode = servers.iter().any(|(_, entry)| entry.get("type").is_some());
    is_opencode.then_some(Found { servers, options, syntax: Syntax::Opencode })
}

fn take_object(map: &mut Map<String, Value>, key: &str) -> Option<Vec<(String, Value)>> {
    map.get(key)?.as_object()?;
    match map.remove(key) {
        Some(Value::Object(servers)) => Some(servers.into_iter().collect()),
        _ => None,
    }
}

/// The names in `mcp.allowed` and `mcp.excluded`, beside `mcpServers`.
struct PermittedServers {
    allowed: Option<Vec<String>>,
    excluded: Vec<String>,
}

impl PermittedServers {
    /// # Errors
    /// When a value is not a list of names: a restriction that cannot be read must not be ignored.
    fn of(root: &Map<String, Value>) -> Result<Self, ServersFileError> {
        let list = |key: &str, error: &'static str| {
            let value = root.get("mcpServers").and(root.get("mcp")).and_then(|mcp| mcp.get(key));
            let Some(value) = value else { return Ok(None) };
            let names = value.as_array().and_then(|names| {
                names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
            });
            names.map(Some).ok_or(ServersFileError::Restriction(error))
        };
        let allowed: Option<Vec<String>> = list("allowed", "mcp.allowed")?;
        let excluded: Option<Vec<String>> = list("excluded", "mcp.excluded")?;
        Ok(Self { allowed, excluded: excluded.unwrap_or_default() })
    }

    fn contains(&self, name: &str) -> bool {
        let listed = |names: &Vec<String>| names.iter().any(|other| other == name);
        self.allowed.as_ref().is_none_or(listed) && !listed(&self.excluded)
    }
}

/// Adds the tools that opencode turns off beside its servers, as `{"SERVER_TOOL": false}` with `*` for any
/// text, to the denied ones. Where only some tools of a server match, all of them are denied. Returns
/// warnings.
fn deny_tools(servers: &mut [(String, Value)], tools: &Map<String, Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (pattern, _) in tools.iter().filter(|(_, is_on)| **is_on == Value::Bool(false)) {
        let mut is_matched = false;
        for (name, entry) in &mut *servers {
            let prefix =
                name.replace(|c: char| !(c.is_ascii_alphanumeric() || c == '-'), "_") + "_";
            let denied = match (pattern.strip_prefix(&prefix), pattern.find('*')) {
                (Some(tool), None) => tool,
                (Some(_), Some(_)) => "*",
                (None, Some(at)) if prefix.starts_with(&pattern[..at]) => "*",
                (None, _) => continue,
            };
            is_matched = true;
            let Value::Object(entry) = entry else { continue };
            if let Value::Array(names) = entry.entry("toolsDenied").or_insert_with(|| json!([])) {
                names.push(json!(denied));
            }
        }
        if !is_matched {
            let pattern: String = pattern.chars().take(80).collect();
            warnings.push(format!("the tools {pattern:?} are of no server of the file"));
        }
    }
    warnings
}
