//! OpenAPI documents in the servers file.

use std::path::Path;

use rockbot_rest::ApiEntry;
use serde_json::{Map, Value};

/// The keys that hold the location of a document.
const DOCUMENT_KEYS: [&str; 2] = ["openapi", "openApi"];
/// The keys of an API that are passed on, as in `openApi` of the file of REST tools.
const API_KEYS: [&str; 13] = [
    "auth",
    "baseUrl",
    "credentialOrigins",
    "deprecated",
    "exclude",
    "headers",
    "idempotencyKey",
    "include",
    "maxResponseBytes",
    "notReadOnly",
    "overrides",
    "serverVariables",
    "timeoutMs",
];
/// The keys that all servers have, in lower case.
const COMMON_KEYS: [&str; 13] = [
    "type",
    "transport",
    "toolsallowed",
    "toolsdenied",
    "toolsreadonly",
    "queue",
    "cache",
    "requesttimeoutms",
    "exposure",
    "required",
    "disabled",
    "enabled",
    "name",
];

/// Returns `true` if the entry names an OpenAPI document.
pub(super) fn is_api(entry: &Map<String, Value>) -> bool {
    DOCUMENT_KEYS.iter().any(|key| entry.contains_key(*key))
}

/// Returns `true` if the key has an effect in the entry of an API.
pub(super) fn is_known(key: &str) -> bool {
    let own = DOCUMENT_KEYS.iter().chain(&API_KEYS).chain(&["readOnly"]);
    own.into_iter().any(|own| own.eq_ignore_ascii_case(key))
        || COMMON_KEYS.contains(&key.to_lowercase().as_str())
}

/// Validates the entry of an API. `folder` is the folder that the path of a document refers to.
///
/// # Errors
/// A message for the operator.
pub(super) fn api(
    entry: &Map<String, Value>,
    folder: &Path,
    lookup: &impl Fn(&str) -> Option<String>,
) -> Result<ApiEntry, String> {
    let document = DOCUMENT_KEYS.iter().find_map(|key| entry.get(*key));
    let own = API_KEYS.iter().filter_map(|key| Some(((*key).to_owned(), entry.get(*key)?.clone())));
    let mut api: Map<String, Value> = own.collect();
    api.insert("spec".to_owned(), document.cloned().unwrap_or_default());
    if let Some(timeout) = entry.get("requestTimeoutMs")
        && api.insert("timeoutMs".to_owned(), timeout.clone()).is_some()
    {
        return Err("it has both requestTimeoutMs and timeoutMs; keep one".to_owned());
    }
    let read_only: Vec<Value> = ["readOnly", "toolsReadOnly"]
        .iter()
        .filter_map(|key| entry.get(*key)?.as_array())
        .flatten()
        .cloned()
        .collect();
    api.insert("readOnly".to_owned(), read_only.into());
    ApiEntry::new(&Value::Object(api), folder, &|name| lookup(name))
        .map_err(|error| with_document_key(&error))
}

/// Returns an error of an API with the key of its document as in the servers file.
pub(crate) fn with_document_key(error: &str) -> String {
    error.replace("spec: ", "openapi: ")
}
