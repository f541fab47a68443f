//! What entries of both kinds have in common.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::template::TemplateError;

/// Parses an entry. Returns warnings about keys that are not in `known`.
///
/// # Errors
/// When the entry is not an object, or a value has the wrong type.
pub(super) fn parse<T: DeserializeOwned>(
    entry: &Value,
    known: &[&str],
) -> Result<(T, Vec<String>), TemplateError> {
    let Value::Object(members) = entry else {
        return Err(TemplateError("it is not an object".to_owned()));
    };
    let unknown = members.keys().filter(|key| !known.contains(&key.as_str()));
    let warnings = unknown.map(|key| {
        let key: String = key.chars().take(80).collect();
        format!("unknown key {key:?} has no effect")
    });
    let warnings = warnings.collect();
    let parsed = T::deserialize(entry).map_err(|error| TemplateError(error.to_string()))?;
    Ok((parsed, warnings))
}

/// Returns `true` if the entry is switched off.
pub(crate) fn is_disabled(entry: &Value) -> bool {
    entry["disabled"] == Value::Bool(true)
}
