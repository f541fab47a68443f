//! Base URLs of operations.

use serde_json::Value;
use url::Url;

use super::options::ImportOptions;

/// Maximum length of a server's URL, in bytes.
const MAX_URL_BYTES: usize = 2048;
/// Maximum number of servers that are tried.
const MAX_SERVERS: usize = 20;
/// Maximum number of values of a variable.
const MAX_VALUES: usize = 1_000;

/// Returns the URL that the path of an operation is appended to, without a slash at the end: the first
/// usable server of the operation, its path or the document.
///
/// # Errors
/// Returns the reason why no server can be used, and what to configure.
pub(super) fn base_url<'a>(
    root: &'a Value,
    path_item: &'a Value,
    operation: &'a Value,
    options: &ImportOptions,
) -> Result<Url, String> {
    if let Some(base) = &options.base_url {
        return usable(base, options);
    }
    let listed = |holder: &'a Value| match holder.get("servers") {
        Some(Value::Array(servers)) if !servers.is_empty() => Some(servers),
        _ => None,
    };
    let servers = listed(operation).or_else(|| listed(path_item)).or_else(|| listed(root));
    let Some(servers) = servers else { return usable("/", options) };
    let mut reason = None;
    for server in servers.iter().take(MAX_SERVERS) {
        match server_url(server, options) {
            Ok(url) => return Ok(url),
            Err(error) => reason = reason.or(Some(error)),
        }
    }
    Err(reason.unwrap_or_else(|| "it has no server; set baseUrl".to_owned()))
}

/// Returns the URL of a server of the document. A document does not choose who receives a configured value
/// that it does not list itself.
fn server_url(server: &Value, options: &ImportOptions) -> Result<Url, String> {
    let Expanded { text, own_variable } = expanded(server, options)?;
    let url = usable(&text, options)?;
    if let Some(name) = own_variable
        && options.check_recipient(&url).is_err()
    {
        // The URL of the server with the value would show the value.
        let template: String = written_url(server).escape_debug().take(200).collect();
        return Err(format!(
            "the document puts serverVariables.{name} into {template}; if that server is right, list its \
             origin in credentialOrigins, or set baseUrl"
        ));
    }
    Ok(url)
}

/// Returns a server's URL in the form that paths are appended to.
fn usable(text: &str, options: &ImportOptions) -> Result<Url, String> {
    let mut url = endpoint(text, options.document_url.as_ref(), options)
        .map_err(|error| format!("its server's URL {error}; set baseUrl"))?;
    if url.query().is_some() {
        return Err("its server's URL has a query; set baseUrl".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Checks a URL that requests are sent to. A relative one refers to `base`.
///
/// # Errors
/// Returns the reason, to be continued with the remedy.
pub(super) fn endpoint(
    text: &str,
    base: Option<&Url>,
    options: &ImportOptions,
) -> Result<Url, String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("is longer than {MAX_URL_BYTES} bytes"));
    }
    let parsed = match (Url::parse(text), base) {
        (Err(url::ParseError::RelativeUrlWithoutBase), Some(base)) => base.join(text),
        (parsed, _) => parsed,
    };
    let mut url = match parsed {
        Ok(url) => url,
        Err(url::ParseError::RelativeUrlWithoutBase) => return Err("is relative".to_owned()),
        Err(error) => return Err(format!("is not valid: {error}")),
    };
    match url.scheme() {
        "https" => {}
        "http" if options.allow_plain_http => {}
        "http" => return Err("uses http and rest.allow_plain_http is not set".to_owned()),
        _ => return Err("is neither https nor http".to_owned()),
    }
    if !url.has_host() || !url.username().is_empty() || url.password().is_some() {
        return Err("has a user, or no host".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

/// The URL of a server with its variables replaced.
struct Expanded {
    text: String,
    /// Variable whose configured value is in the URL and is not one that the document lists.
    own_variable: Option<String>,
}

fn written_url(server: &Value) -> &str {
    server["url"].as_str().filter(|url| !url.is_empty()).unwrap_or("/")
}

fn expanded(server: &Value, options: &ImportOptions) -> Result<Expanded, String> {
    let mut rest = written_url(server);
    if rest.len() > MAX_URL_BYTES {
        return Err(format!("its server's URL is longer than {MAX_URL_BYTES} bytes; set baseUrl"));
    }
    let mut text = String::with_capacity(rest.len());
    let mut own_variable = None;
    while let Some((before, name, after)) = variable(rest) {
        text.push_str(before);
        match value(name, &server["variables"][name], options)? {
            VariableValue::Listed(value) => text.push_str(&value),
            VariableValue::Own { name, value } => {
                text.push_str(&value);
                own_variable = Some(name);
            }
        }
        if text.len() > MAX_URL_BYTES {
            return Err(format!(
                "its server's URL is longer than {MAX_URL_BYTES} bytes; set baseUrl"
            ));
        }
        rest = after;
    }
    text.push_str(rest);
    Ok(Expanded { text, own_variable })
}

fn variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

/// The value of a variable.
enum VariableValue {
    /// The document lists it.
    Listed(String),
    /// Only the configuration has it.
    Own { name: String, value: String },
}

fn value(name: &str, declared: &Value, options: &ImportOptions) -> Result<VariableValue, String> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let name: String = name.escape_debug().take(60).collect();
    let default = scalar(&declared["default"]);
    let Some(given) = options.server_variables.get(&name) else {
        return default.map(VariableValue::Listed).ok_or_else(|| {
            format!("its server has a variable {name}; set serverVariables.{name}")
        });
    };
    let permitted = declared["enum"].as_array().into_iter().flatten().take(MAX_VALUES);
    let permitted: Vec<_> = permitted.filter_map(scalar).collect();
    let value = given.clone();
    if permitted.contains(given) || (permitted.is_empty() && default.as_ref() == Some(given)) {
        return Ok(VariableValue::Listed(value));
    }
    if permitted.is_empty() {
        return Ok(VariableValue::Own { name, value });
    }
    Err(format!("the document does not permit this value of serverVariables.{name}"))
}
