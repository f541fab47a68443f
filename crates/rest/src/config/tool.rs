//! One entry of `restTools`.

use std::collections::BTreeMap;

use rockbot_contracts::{Period, period::optional_period_or_millis};
use rockbot_tools::{ArgumentSchema, ToolHints};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    credentials::{
        credentials_in_body, credentials_in_header, credentials_in_query, credentials_in_url,
        secrets_in,
    },
    entry,
    settings::{CallSettings, hints},
};
use crate::{
    stream::StreamConfig,
    template::{
        BodyKind, Environment, ParameterPath, RequestTemplate, RequestTemplateParts, TemplateError,
    },
};

/// Maximum length of a tool's name, in bytes: providers accept no more.
const MAX_NAME_BYTES: usize = 64;

/// A validated tool.
#[derive(Debug)]
pub(crate) struct ToolConfig {
    pub(crate) description: String,
    pub(crate) parameters: Value,
    pub(crate) hints: ToolHints,
    pub(crate) request: RequestTemplate,
    pub(crate) settings: CallSettings,
    /// Values that are redacted in results.
    pub(crate) secrets: Vec<String>,
    /// Parts without effect.
    pub(crate) warnings: Vec<String>,
}

/// A tool as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTool {
    description: String,
    method: Option<String>,
    url: String,
    query: Option<Map<String, Value>>,
    headers: Option<BTreeMap<String, String>>,
    body: Option<Value>,
    #[serde(default)]
    body_type: BodyKind,
    parameters_schema: Option<Value>,
    read_only: Option<bool>,
    idempotent: Option<bool>,
    idempotency_key: Option<String>,
    timeout_ms: Option<u64>,
    max_response_bytes: Option<usize>,
    select: Option<String>,
    stream: Option<StreamConfig>,
    queue: Option<String>,
    #[serde(default, deserialize_with = "optional_period_or_millis")]
    cache: Option<Period>,
}

impl RawTool {
    /// Returns the credentials that are written into the file.
    fn literal_credentials(&self) -> Vec<String> {
        let headers = self.headers.iter().flatten().flat_map(credentials_in_header);
        let query = self.query.clone().map(Value::Object).unwrap_or_default();
        let body = self.body.as_ref().unwrap_or(&Value::Null);
        let members = credentials_in_query(&query).into_iter().chain(credentials_in_body(body));
        headers.chain(members).chain(credentials_in_url(&self.url)).collect()
    }
}

/// Keys of [`RawTool`], and `disabled`.
const KEYS: [&str; 18] = [
    "description",
    "method",
    "url",
    "query",
    "headers",
    "body",
    "bodyType",
    "parametersSchema",
    "readOnly",
    "idempotent",
    "idempotencyKey",
    "timeoutMs",
    "maxResponseBytes",
    "select",
    "stream",
    "queue",
    "cache",
    "disabled",
];

impl ToolConfig {
    /// Validates the entry called `name`. `lookup` returns the values of variables.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn new(
        name: &str,
        entry: &Value,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, TemplateError> {
        check_name(name)?;
        let (raw, mut warnings) = entry::parse::<RawTool>(entry, &KEYS)?;
        if raw.description.trim().is_empty() {
            return Err(TemplateError("its description is empty".to_owned()));
        }
        let mut environment = Environment::new(lookup);
        let parts = RequestTemplateParts {
            method: raw.method.as_deref(),
            url: &raw.url,
            query: raw.query.as_ref(),
            headers: raw.headers.as_ref(),
            body: raw.body.as_ref(),
            body_kind: raw.body_type,
        };
        let request = RequestTemplate::new(&parts, &mut environment);
        // An unset variable explains most other errors.
        let values = environment.finish()?;
        let request = request?;
        let mut secrets = secrets_in(values, request.origin().as_str());
        secrets.extend(raw.literal_credentials());
        secrets.sort();
        secrets.dedup();
        let parameters = schema(raw.parameters_schema, &request)?;
        warnings.extend(unused(&parameters, &request));
        let hints = hints(request.method(), raw.read_only, raw.idempotent)?;
        if raw.select.as_ref().is_some_and(|select| !select.is_empty() && !select.starts_with('/'))
        {
            return Err(TemplateError(
                "select: a JSON pointer is empty or begins with a slash".to_owned(),
            ));
        }
        let settings = CallSettings::new(raw.timeout_ms, raw.max_response_bytes)?;
        let settings = settings.with_idempotency_key(raw.idempotency_key.as_deref())?;
        let settings = CallSettings {
            select: raw.select,
            stream: raw.stream,
            is_repeatable: hints.read_only || hints.idempotent,
            queue: raw.queue,
            cache: raw.cache,
            ..settings
        };
        let description = raw.description;
        Ok(Self { description, parameters, hints, request, settings, secrets, warnings })
    }
}

fn check_name(name: &str) -> Result<(), TemplateError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_valid) {
        return Ok(());
    }
    Err(TemplateError(format!(
        "its name must be 1 to {MAX_NAME_BYTES} letters, digits, `_` or `-`"
    )))
}

/// Returns the schema of the arguments, which are those of the schema and no others.
fn schema(schema: Option<Value>, request: &RequestTemplate) -> Result<Value, TemplateError> {
    let problem = |what: String| Err(TemplateError(format!("parametersSchema: {what}")));
    let mut schema = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let Value::Object(members) = &mut schema else {
        return problem("it is not an object".to_owned());
    };
    members.entry("type").or_insert_with(|| json!("object"));
    members.entry("additionalProperties").or_insert(Value::Bool(false));
    for path in request.parameters() {
        if !is_declared(&schema, path) {
            return problem(format!("parameter {path} is used and not declared"));
        }
    }
    for path in request.path_parameters() {
        if !is_required(&schema, path) {
            return problem(format!("parameter {path} is a part of the path and must be required"));
        }
    }
    match ArgumentSchema::compile(&schema) {
        Ok(_) => Ok(schema),
        Err(error) => problem(error.to_string()),
    }
}

fn is_declared(schema: &Value, path: &ParameterPath) -> bool {
    let name = &path.names()[0];
    schema["properties"].get(name).is_some()
}

fn is_required(schema: &Value, path: &ParameterPath) -> bool {
    let mut schema = schema;
    path.names().iter().all(|name| {
        let required = schema["required"].as_array().into_iter().flatten();
        let is_required = required.into_iter().any(|one| one == name.as_str());
        schema = &schema["properties"][name];
        is_required
    })
}

/// Returns warnings about declared parameters that no part of the request uses.
fn unused(schema: &Value, request: &RequestTemplate) -> Vec<String> {
    let used: Vec<_> = request.parameters().into_iter().map(|path| &path.names()[0]).collect();
    let declared = schema["properties"].as_object().into_iter().flatten();
    let unused = declared.filter(|(name, _)| !used.contains(name));
    unused.map(|(name, _)| format!("parameter {name:?} is declared and not used")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entry: &Value) -> Result<ToolConfig, String> {
        let lookup = |name: &str| match name {
            "TOKEN" => Some("secret-token".to_owned()),
            "BASE" => Some("https://api.example.com/v1".to_owned()),
            _ => None,
        };
        ToolConfig::new("weather", entry, &lookup).map_err(|error| error.to_string())
    }

    fn with(key: &str, value: Value) -> Value {
        let mut entry = json!({
            "description": "Weather of a city.", "url": "${BASE}/${parameters.city}/now",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "parametersSchema": {"type": "object", "properties": {"city": {"type": "string"}},
                "required": ["city"]},
        });
        entry[key] = value;
        entry
    }

    #[test]
    fn entry_is_validated() {
        let config = config(&with("cache", json!("10m"))).unwrap();
        assert!(config.hints.read_only && config.settings.is_repeatable);
        assert_eq!(config.secrets, ["secret-token"], "an address is not a secret");
        assert_eq!(config.parameters["additionalProperties"], false);
        assert!(config.warnings.is_empty());
        assert!(
            !format!("{config:?}")
                .replace("secrets: [\"secret-token\"]", "")
                .contains("secret-token")
        );
    }

    #[test]
    fn invalid_entries_are_rejected_with_a_reason() {
        for (key, value, reason) in [
            ("url", json!("https://${parameters.city}/"), "placeholder"),
            ("url", json!("${NONE}/x"), "NONE is not set"),
            ("url", json!("https://a/${parameters.none}"), "not declared"),
            ("parametersSchema", json!({"properties": {"city": {}}}), "must be required"),
            (
                "parametersSchema",
                json!({"properties": {"city": 7}, "required": ["city"]}),
                "parametersSchema",
            ),
            ("parametersSchema", json!([]), "not an object"),
            ("method", json!("FETCH"), "method"),
            ("headers", json!({"Host": "x"}), "host"),
            ("description", json!(" "), "description"),
            ("timeoutMs", json!(1), "timeoutMs"),
            ("select", json!("a"), "select"),
            ("stream", json!({"mode": "x"}), "stream: expected one of"),
            ("cache", json!("soon"), "duration"),
            ("url", json!(7), "string"),
        ] {
            let error = config(&with(key, value)).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
        assert!(config(&json!(7)).is_err());
        assert!(ToolConfig::new("a b", &with("method", json!("GET")), &|_| None).is_err());
    }

    #[test]
    fn parts_without_effect_are_reported() {
        let mut entry = with("colour", json!(1));
        entry["parametersSchema"]["properties"]["zone"] = json!({});
        let warnings = config(&entry).unwrap().warnings.join(", ");
        assert!(warnings.contains("\"colour\"") && warnings.contains("\"zone\""), "{warnings}");
    }

    #[test]
    fn literal_credentials_are_secrets() {
        for (key, value) in [
            ("headers", json!({"authorization": "Bearer literal-token"})),
            ("headers", json!({"X-Api-Key": "literal-token"})),
            ("query", json!({"api_key": "literal-token"})),
            ("body", json!({"auth": {"token": "literal-token"}})),
            ("url", json!("https://a/${parameters.city}?access_token=literal-token")),
        ] {
            let secrets = config(&with(key, value)).unwrap().secrets;
            assert!(secrets.contains(&"literal-token".to_owned()), "{key}: {secrets:?}");
        }
    }
}
