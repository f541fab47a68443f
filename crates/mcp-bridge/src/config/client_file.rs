//! The servers in the configuration files of MCP clients.
//!
//! Each client has a form of its own: another key for the servers, other keys in an entry, other
//! placeholders. [`ClientFile::parse`] rewrites all of them to the keys and placeholders of the servers
//! file.

use std::path::Path;

use rockbot_service::watch::read_bounded;
use serde_json::{Map, Value};

use super::{
    client_entry::{EntryOptions, camel_case, canonical_entry},
    file::{MAX_FILE_BYTES, ServersFileError},
    placeholders::{Placeholders, Syntax},
};

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
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(folder, &read_bounded(path, MAX_FILE_BYTES)?)
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
        let permitted = PermittedServers::of(&root);
        let found = find(&mut root, folder).ok_or(ServersFileError::UnknownForm)?;
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
            let entry = match entry {
                Value::Object(mut entry) => {
                    placeholders.rewrite(&mut entry);
                    canonical_entry(entry, &found.options, &placeholders)
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
    let table: toml::Table =
        toml::from_str(text).map_err(|error| ServersFileError::Toml(Box::new(error)))?;
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
    match map.get_mut(key) {
        Some(Value::Object(servers)) => Some(std::mem::take(servers).into_iter().collect()),
        _ => None,
    }
}

/// The names in `mcp.allowed` and `mcp.excluded`, beside `mcpServers`.
struct PermittedServers {
    allowed: Option<Vec<String>>,
    excluded: Vec<String>,
}

impl PermittedServers {
    fn of(root: &Map<String, Value>) -> Self {
        let names = |key: &str| {
            let names = root.get("mcpServers").and(root.get("mcp"))?.get(key)?.as_array()?;
            Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        Self { allowed: names("allowed"), excluded: names("excluded").unwrap_or_default() }
    }

    fn contains(&self, name: &str) -> bool {
        let listed = |names: &Vec<String>| names.iter().any(|other| other == name);
        self.allowed.as_ref().is_none_or(listed) && !listed(&self.excluded)
    }
}
