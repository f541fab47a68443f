//! The entry of a server in a client's file, rewritten to the keys of the servers file.

use serde_json::{Map, Value, json};

use super::{loose, openapi, placeholders::Placeholders, server::KEYS};

/// Differences between the forms of clients.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EntryOptions {
    /// `timeout` limits the start of a server, not its calls.
    pub(super) timeout_is_of_start: bool,
}

/// Other names of keys. Keys that restrict tools are in [`ALLOW_KEYS`] and [`DENY_KEYS`].
const ALIASES: [(&str, &str); 9] = [
    ("arguments", "args"),
    ("environment", "env"),
    ("environmentVariables", "env"),
    ("endpoint", "url"),
    ("serverUrl", "url"),
    ("http_headers", "headers"),
    ("transport", "type"),
    ("workingDirectory", "cwd"),
    ("auth", "oauth"),
];
/// Keys with the names of the only tools that may be used.
const ALLOW_KEYS: [&str; 5] =
    ["toolsAllowed", "includeTools", "enabledTools", "enabled_tools", "tools"];
/// Keys with the names of tools that may not be used.
const DENY_KEYS: [&str; 4] = ["toolsDenied", "excludeTools", "disabledTools", "disabled_tools"];
/// The smallest `timeout` that is certainly in milliseconds: some clients have seconds.
const MIN_TIMEOUT_MS: u64 = 1000;

/// Returns an entry in the form of the servers file.
///
/// # Errors
/// A message for the operator when a key that restricts the server is unusable, or when the server can
/// only run in its client.
pub(super) fn canonical_entry(
    entry: Map<String, Value>,
    options: &EntryOptions,
    placeholders: &Placeholders,
    warn: &mut impl FnMut(String),
) -> Result<Map<String, Value>, String> {
    let mut entry = camel_case(entry);
    restrict_tools(&mut entry)?;
    if openapi::is_api(&entry) {
        return Ok(entry);
    }
    if entry.get("source").and_then(Value::as_str) == Some("extension") {
        return Err("it is an extension of its client, without a command of its own".to_owned());
    }
    for (alias, key) in ALIASES {
        if !entry.contains_key(key)
            && let Some(value) = entry.remove(alias)
        {
            entry.insert(key.to_owned(), value);
        }
    }
    spread_command(&mut entry);
    rename_type(&mut entry);
    read_http_url(&mut entry)?;
    add_variables_of_codex(&mut entry);
    rewrite_oauth(&mut entry);
    rewrite_timeout(&mut entry, options, warn);
    for key in ["cwd", "envFile"] {
        // A path that begins with a variable is absolute.
        if let Some(path) = entry.get(key).and_then(Value::as_str)
            && !path.starts_with("${")
        {
            let path = placeholders.workspace.join(path);
            entry.insert(key.to_owned(), json!(path));
        }
    }
    loose::convert(&mut entry);
    Ok(entry)
}

/// Rewrites keys to the spelling of the servers file, and lowers the first letter of others: the array form
/// capitalizes them.
pub(super) fn camel_case(entry: Map<String, Value>) -> Map<String, Value> {
    let known = || KEYS.iter().chain(&ALLOW_KEYS).chain(&DENY_KEYS);
    let lower = |key: String| {
        if let Some(known) = known().find(|known| known.eq_ignore_ascii_case(&key)) {
            return (*known).to_owned();
        }
        let mut characters = key.chars();
        match characters.next() {
            Some(first) => first.to_lowercase().chain(characters).collect(),
            None => key,
        }
    };
    entry.into_iter().map(|(key, value)| (lower(key), value)).collect()
}

/// A command may be a list with its arguments, or an object.
fn spread_command(entry: &mut Map<String, Value>) {
    match entry.remove("command") {
        Some(Value::Array(mut words)) if !words.is_empty() => {
            let mut args = words.split_off(1);
            if let Some(Value::Array(more)) = entry.remove("args") {
                args.extend(more);
            }
            entry.insert("args".to_owned(), args.into());
            entry.insert("command".to_owned(), words.remove(0));
        }
        Some(Value::Object(mut command)) => {
            for (from, to) in [("path", "command"), ("args", "args"), ("env", "env")] {
                if let Some(value) = command.remove(from) {
                    entry.insert(to.to_owned(), value);
                }
            }
        }
        Some(command) => {
            entry.insert("command".to_owned(), command);
        }
        None => {}
    }
}

fn rename_type(entry: &mut Map<String, Value>) {
    let Some(kind) = entry.get("type").and_then(Value::as_str) else { return };
    let renamed = match kind {
        "local" => Some("stdio"),
        "streamable_http" | "streamable-http" | "streamableHttp" => Some("http"),
        "remote" => None,
        _ => return,
    };
    match renamed {
        Some(renamed) => entry.insert("type".to_owned(), json!(renamed)),
        None => entry.remove("type"),
    };
}

/// `httpUrl` is the URL of a server with streamable HTTP.
fn read_http_url(entry: &mut Map<String, Value>) -> Result<(), String> {
    let Some(url) = entry.remove("httpUrl") else { return Ok(()) };
    if entry.contains_key("url") {
        return Err("it has both httpUrl and url; keep one".to_owned());
    }
    entry.insert("url".to_owned(), url);
    entry.entry("type").or_insert_with(|| json!("http"));
    Ok(())
}

/// Keys of Codex that name variables instead of containing placeholders.
fn add_variables_of_codex(entry: &mut Map<String, Value>) {
    let token = entry.remove("bearer_token_env_var");
    if let Some(name) = token.as_ref().and_then(Value::as_str) {
        let header = json!(format!("Bearer ${{{name}}}"));
        add(entry, "headers", "Authorization", header);
    }
    if let Some(Value::Object(variables)) = entry.remove("env_http_headers") {
        for (header, name) in &variables {
            let name = name.as_str().unwrap_or_default();
            add(entry, "headers", header, json!(format!("${{{name}}}")));
        }
    }
    if let Some(Value::Array(names)) = entry.remove("env_vars") {
        for name in &names {
            let name = name.as_str().or_else(|| name.get("name")?.as_str());
            if let Some(name) = name {
                // Unset ones are not an error there.
                add(entry, "env", name, json!(format!("${{{name}:-}}")));
            }
        }
    }
}

/// Adds a value to the object of a key, unless that has another type, which is an error of its own.
fn add(entry: &mut Map<String, Value>, key: &str, name: &str, value: Value) {
    if let Value::Object(map) = entry.entry(key).or_insert_with(|| json!({})) {
        map.entry(name).or_insert(value);
    }
}

fn rewrite_oauth(entry: &mut Map<String, Value>) {
    let Some(value) = entry.remove("oauth") else { return };
    // `false` turns off the detection, which happens only when a server requires it.
    let Value::Object(mut oauth) = value else { return };
    for (from, to) in [("CLIENT_ID", "clientId"), ("CLIENT_SECRET", "clientSecret")] {
        if let Some(value) = oauth.remove(from) {
            oauth.insert(to.to_owned(), value);
        }
    }
    if let Some(Value::String(scopes)) = oauth.remove("scope") {
        let scopes: Vec<_> = scopes.split_whitespace().collect();
        oauth.insert("scopes".to_owned(), json!(scopes));
    }
    entry.insert("oauth".to_owned(), oauth.into());
}

/// Combines the keys that restrict tools. All of them apply: a tool must be in every list of allowed
/// ones and in no list of denied ones.
fn restrict_tools(entry: &mut Map<String, Value>) -> Result<(), String> {
    let mut allowed: Option<Vec<String>> = None;
    for key in ALLOW_KEYS {
        let Some(names) = names(entry, key)? else { continue };
        let is_all = |names: &[String]| names.iter().any(|name| name == "*");
        allowed = Some(match allowed {
            None => names,
            Some(others) if is_all(&others) => names,
            Some(others) if is_all(&names) => others,
            Some(others) => others.into_iter().filter(|name| names.contains(name)).collect(),
        });
    }
    let mut denied = Vec::new();
    for key in DENY_KEYS {
        denied.extend(names(entry, key)?.unwrap_or_default());
    }
    if let Some(allowed) = allowed {
        entry.insert("toolsAllowed".to_owned(), json!(allowed));
    }
    if !denied.is_empty() {
        entry.insert("toolsDenied".to_owned(), json!(denied));
    }
    Ok(())
}

/// Removes a list of names. A restriction that cannot be read must not be ignored.
fn names(entry: &mut Map<String, Value>, key: &str) -> Result<Option<Vec<String>>, String> {
    let Some(value) = entry.remove(key) else { return Ok(None) };
    let Value::Array(values) = value else {
        return Err(format!("{key} restricts its tools and must be a list of names"));
    };
    let name = |value: Value| match value {
        Value::String(name) => Ok(name),
        _ => Err(format!("{key} restricts its tools and must be a list of names")),
    };
    values.into_iter().map(name).collect::<Result<_, _>>().map(Some)
}

fn rewrite_timeout(
    entry: &mut Map<String, Value>,
    options: &EntryOptions,
    warn: &mut impl FnMut(String),
) {
    let in_seconds = entry.remove("tool_timeout_sec").and_then(|seconds| seconds.as_f64());
    let timeout = entry.remove("timeout");
    let in_millis = timeout
        .as_ref()
        .and_then(Value::as_u64)
        .filter(|timeout| !options.timeout_is_of_start && *timeout >= MIN_TIMEOUT_MS);
    if options.timeout_is_of_start && timeout.is_some() {
        warn("timeout has no effect: it limits the start".to_owned());
    } else if timeout.is_some() && in_millis.is_none() {
        warn("timeout has no effect: it may be in seconds; set requestTimeoutMs".to_owned());
    }
    // Out of range, it is an error of the key that it becomes.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let seconds = in_seconds.map(|seconds| (seconds * 1000.0) as u64);
    if let Some(timeout) = seconds.or(in_millis) {
        entry.entry("requestTimeoutMs").or_insert_with(|| json!(timeout));
    }
}
