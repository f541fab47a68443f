//! One entry of `openApi`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use rockbot_contracts::{Period, period::optional_period_or_millis};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{
    credentials::{credentials_in_header, credentials_in_url, secrets_in},
    entry,
    settings::CallSettings,
};
use crate::{
    openapi::ImportOptions,
    template::{Environment, TemplateError, expand, header_name},
};

/// A validated entry. Its document is read later.
#[derive(Debug, Clone)]
pub(crate) struct ApiConfig {
    /// Entry with the values of its variables.
    pub(crate) expanded: Value,
    pub(crate) spec: SpecLocation,
    /// Headers of every request, marked as sensitive.
    pub(crate) headers: HeaderMap,
    pub(crate) settings: CallSettings,
    pub(crate) import: ImportOptions,
    /// Values that are redacted in results.
    pub(crate) secrets: Vec<String>,
    /// Parts without effect.
    pub(crate) warnings: Vec<String>,
}

/// Location of the document of an API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpecLocation {
    File(PathBuf),
    Url(Url),
}

/// An entry as it is written, without the settings of the import.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawApi {
    spec: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    idempotency_key: Option<String>,
    timeout_ms: Option<u64>,
    max_response_bytes: Option<usize>,
    queue: Option<String>,
    #[serde(default, deserialize_with = "optional_period_or_millis")]
    cache: Option<Period>,
}

/// Keys of [`RawApi`] and of [`ImportOptions`], and `disabled`.
const KEYS: [&str; 19] = [
    "spec",
    "headers",
    "idempotencyKey",
    "timeoutMs",
    "maxResponseBytes",
    "queue",
    "cache",
    "disabled",
    "baseUrl",
    "credentialOrigins",
    "serverVariables",
    "toolNamePrefix",
    "include",
    "exclude",
    "deprecated",
    "auth",
    "overrides",
    "readOnly",
    "notReadOnly",
];

impl ApiConfig {
    /// Validates an entry. `lookup` returns the values of variables, and `folder` is the folder of the
    /// file, which relative paths refer to.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn new(
        entry: &Value,
        folder: &Path,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, TemplateError> {
        let mut environment = Environment::new(lookup);
        let expanded = expand(entry.clone(), &mut environment)?;
        let mut secrets = secrets_in(environment.finish()?, "");
        let (raw, warnings) = entry::parse::<RawApi>(&expanded, &KEYS)?;
        let (mut import, _) = entry::parse::<ImportOptions>(&expanded, &KEYS)?;
        secrets.extend(raw.headers.iter().flat_map(credentials_in_header));
        secrets.extend(auth_secrets(&expanded["auth"]));
        let addresses = [Some(&raw.spec), import.base_url.as_ref()].into_iter().flatten();
        secrets.extend(addresses.flat_map(|address| credentials_in_url(address)));
        secrets.sort();
        secrets.dedup();
        import.check().map_err(TemplateError)?;
        let headers = headers(&raw.headers)?;
        import.configured_headers = headers.keys().map(|name| name.as_str().to_owned()).collect();
        let spec = spec(&raw.spec, folder)?;
        if let SpecLocation::Url(url) = &spec {
            import.document_url = Some(url.clone());
        }
        let settings = CallSettings::new(raw.timeout_ms, raw.max_response_bytes)?;
        let settings = settings.with_idempotency_key(raw.idempotency_key.as_deref())?;
        let settings = CallSettings { queue: raw.queue, cache: raw.cache, ..settings };
        Ok(Self { expanded, spec, headers, settings, import, secrets, warnings })
    }
}

fn spec(spec: &str, folder: &Path) -> Result<SpecLocation, TemplateError> {
    if spec.is_empty() {
        return Err(TemplateError("spec: it is empty; name a file or a URL".to_owned()));
    }
    if !spec.contains("://") {
        return Ok(SpecLocation::File(folder.join(spec)));
    }
    let url = Url::parse(spec).map_err(|error| TemplateError(format!("spec: {error}")))?;
    Ok(SpecLocation::Url(url))
}

fn headers(headers: &BTreeMap<String, String>) -> Result<HeaderMap, TemplateError> {
    let parsed = headers.iter().map(|(name, value)| -> Result<(HeaderName, _), _> {
        let name = header_name(name)?;
        if name == CONTENT_TYPE {
            return Err(TemplateError(
                "headers: the body of an operation has its own Content-Type; remove this one"
                    .to_owned(),
            ));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| TemplateError(format!("headers: the value of {name} is not valid")))?;
        value.set_sensitive(true);
        Ok((name, value))
    });
    parsed.collect()
}

/// Returns the secrets of security schemes, also those that are written into the file.
fn auth_secrets(auth: &Value) -> Vec<String> {
    const SECRETS: [&str; 4] = ["value", "token", "password", "clientSecret"];
    let mut secrets = Vec::new();
    for scheme in auth.as_object().into_iter().flatten().map(|(_, scheme)| scheme) {
        let text = |key: &str| scheme[key].as_str().map(str::to_owned);
        secrets.extend(SECRETS.into_iter().filter_map(text));
        if let (Some(user), Some(password)) = (text("user"), text("password")) {
            secrets.push(BASE64_STANDARD.encode(format!("{user}:{password}")));
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(entry: &Value) -> Result<ApiConfig, String> {
        let lookup = |name: &str| (name == "TOKEN").then(|| "secret-token".to_owned());
        let config = ApiConfig::new(entry, Path::new("/etc/rockbot"), &lookup);
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn entry_is_validated_and_expanded() {
        let config = config(&json!({
            "spec": "github.json", "toolNamePrefix": "github", "headers": {"X-Key": "${TOKEN}"},
            "auth": {"basic": {"user": "me", "password": "literal-password"}}, "colour": 1,
            "idempotencyKey": "Idempotency-Key",
        }));
        let config = config.unwrap();
        assert_eq!(config.spec, SpecLocation::File("/etc/rockbot/github.json".into()));
        let basic = BASE64_STANDARD.encode("me:literal-password");
        assert_eq!(config.secrets, [&basic, "literal-password", "secret-token"]);
        assert!(config.headers["x-key"].is_sensitive());
        assert!(config.import.configured_headers.contains("x-key"));
        assert!(matches!(config.warnings.as_slice(), [one] if one.contains("colour")));
    }

    #[test]
    fn invalid_entries_are_rejected() {
        for entry in [
            json!({}),
            json!({"spec": ""}),
            json!({"spec": "https://"}),
            json!({"spec": "a", "headers": {"Host": "x"}}),
            json!({"spec": "a", "headers": {"X": "a\nb"}}),
            json!({"spec": "a", "headers": {"content-type": "text/xml"}}),
            json!({"spec": "${NONE}"}),
            json!({"spec": "${parameters.x}"}),
            json!({"spec": "a", "include": 7}),
            json!({"spec": "a", "timeoutMs": 0}),
            json!({"spec": "a", "credentialOrigins": ["api.example.com"]}),
            json!({"spec": "a", "credentialOrigins": ["https://api.example.com/v1"]}),
            json!({"spec": "a", "overrides": {"x": {"readOnly": true, "idempotent": false}}}),
        ] {
            assert!(config(&entry).is_err(), "{entry}");
        }
    }
}
