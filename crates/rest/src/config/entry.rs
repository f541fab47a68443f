//! What entries of both kinds have in common.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

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
    Ok((typed(members)?, warnings))
}

/// Converts the members of an entry.
///
/// # Errors
/// Names the member with a value of another type. The value itself, which may be a secret, is not quoted.
fn typed<T: DeserializeOwned>(members: &Map<String, Value>) -> Result<T, TemplateError> {
    let convert = |members: &Map<String, Value>| T::deserialize(members);
    let error = match convert(members) {
        Ok(converted) => return Ok(converted),
        Err(error) => error.to_string(),
    };
    let is_error = |members: &Map<String, Value>| {
        convert(members).is_err_and(|other| other.to_string() == error)
    };
    let has_error = |(key, value): &(&String, &Value)| {
        is_error(&Map::from_iter([((*key).clone(), (*value).clone())]))
    };
    // A key that is missing in the entry is in none of its values.
    let is_absent = is_error(&Map::new());
    let key = members.iter().find(|member| !is_absent && has_error(member));
    let key = key.map(|(key, _)| format!("{key}: ")).unwrap_or_default();
    // These errors have names of keys only.
    if error.starts_with("missing field") || error.starts_with("unknown field") {
        return Err(TemplateError(format!("{key}{error}")));
    }
    let expected = error.rsplit_once(", expected ").map(|(_, expected)| expected);
    Err(TemplateError(match expected {
        // The name of a type is of no use to an operator.
        Some(expected) if expected.starts_with("struct ") => format!("{key}expected an object"),
        Some(expected) => format!("{key}expected {expected}"),
        None => format!("{key}its value is not valid"),
    }))
}

/// Returns `true` if the entry is switched off.
pub(crate) fn is_disabled(entry: &Value) -> bool {
    entry["disabled"] == Value::Bool(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Inner {
        _password: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        #[serde(rename = "url")]
        _url: String,
        #[serde(rename = "limit")]
        _limit: Option<u64>,
        #[serde(rename = "headers")]
        _headers: Option<BTreeMap<String, String>>,
        #[serde(rename = "auth")]
        _auth: Option<BTreeMap<String, Inner>>,
    }

    #[test]
    fn type_errors_name_the_key_and_not_the_value() {
        for (key, value, expected) in [
            ("url", json!(["hunter2"]), "url: expected a string"),
            ("limit", json!("hunter2, expected nothing"), "limit: expected u64"),
            ("headers", json!("Bearer hunter2"), "headers: expected a map"),
            ("auth", json!({"bearer": "hunter2"}), "auth: expected an object"),
            ("auth", json!({"bearer": {"pasword": "hunter2"}}), "auth: unknown field `pasword`"),
        ] {
            let mut entry = json!({"url": "x"});
            entry[key] = value;
            let error = parse::<Entry>(&entry, &[]).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = parse::<Entry>(&json!({"limit": 1}), &[]).unwrap_err().to_string();
        assert_eq!(error, "missing field `url`");
    }
}
