//! Forms as servers write them.
//!
//! rmcp reads the schema of a form by the types of the protocol, and drops every other keyword. A form that asks
//! for a secret by such a keyword is replaced by one that is always declined.

use std::collections::BTreeMap;

use rmcp::model::{ElicitationSchema, RequestId, ServerJsonRpcMessage};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

/// The method of a request for input.
pub(crate) const METHOD: &str = "elicitation/create";

/// The key of a result with its requests.
const REQUESTS: &str = "inputRequests";
/// The only field of a form that replaces one that asks for a secret. A server that sends it itself is declined.
const SECRET: &str = "rockbot/secret";

/// A response that may require input, or the state of a task.
#[derive(Deserialize)]
struct RawResponse<'a> {
    id: RequestId,
    #[serde(borrow)]
    result: BTreeMap<String, &'a RawValue>,
}

/// Reads a message with requests for input, whose forms may ask for secrets. Returns `None` for any other message.
pub(crate) fn read(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    request(bytes).or_else(|| response(bytes))
}

fn request(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    let mut message: Value = serde_json::from_slice(bytes).ok()?;
    if message.get("method")?.as_str()? != METHOD {
        return None;
    }
    replace_secret_form(message.get_mut("params")?);
    serde_json::from_value(message).ok()
}

fn response(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    let RawResponse { id, result } = serde_json::from_slice(bytes).ok()?;
    let requests = result.get(REQUESTS)?.get();
    let requests: BTreeMap<String, &RawValue> = serde_json::from_str(requests).ok()?;
    let requests: Option<Map<String, Value>> =
        requests.into_iter().map(|(key, raw)| Some((key, input_request(raw)?))).collect();
    let mut read = Map::from_iter([(REQUESTS.to_owned(), Value::Object(requests?))]);
    for (key, value) in result.into_iter().filter(|(key, _)| key != REQUESTS) {
        read.insert(key, serde_json::from_str(value.get()).ok()?);
    }
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": read})).ok()
}

/// Returns a request of a result.
fn input_request(raw: &RawValue) -> Option<Value> {
    let mut request: Value = serde_json::from_str(raw.get()).ok()?;
    if let Some(params) = request.get_mut("params") {
        replace_secret_form(params);
    }
    Some(request)
}

/// Returns why a form that replaces another is declined.
pub(super) fn refused(schema: &ElicitationSchema) -> Option<&'static str> {
    let is_secret = schema.properties.contains_key(SECRET);
    is_secret.then_some("it asks for a secret, which must not pass through agents")
}

/// Replaces the form if a field is declared to be a secret: by `"format": "password"` or `"writeOnly": true`.
fn replace_secret_form(params: &mut Value) {
    let Some(schema) = params.get_mut("requestedSchema") else { return };
    let is_secret = |field: &Value| {
        let format = field.get("format").and_then(Value::as_str).unwrap_or_default();
        format.eq_ignore_ascii_case("password") || field.get("writeOnly") == Some(&json!(true))
    };
    let fields = schema.get("properties").and_then(Value::as_object);
    if fields.is_some_and(|fields| fields.values().any(is_secret)) {
        *schema = form(SECRET);
    }
}

/// Returns the schema of a form with one field.
fn form(field: &str) -> Value {
    json!({"type": "object", "properties": {field: {"type": "boolean"}}})
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ElicitRequestParams, ServerRequest};

    use super::*;
    use crate::frame;

    #[test]
    fn declared_secret_replaces_the_form() {
        let declared = [
            json!({"type": "string", "format": "password"}),
            json!({"type": "string", "writeOnly": true}),
        ];
        for field in declared {
            let params = json!({"mode": "form", "message": "m", "requestedSchema":
                {"type": "object", "properties": {"x": field, "y": {"type": "integer"}}}});
            let request = json!({"jsonrpc": "2.0", "id": 1, "method": METHOD, "params": params});
            let message = frame::read(request.to_string().as_bytes()).unwrap();
            let ServerJsonRpcMessage::Request(request) = message else { panic!("{message:?}") };
            let ServerRequest::ElicitRequest(request) = request.request else {
                panic!("{request:?}")
            };
            let ElicitRequestParams::FormElicitationParams { requested_schema, .. } =
                request.params
            else {
                panic!("{field}")
            };
            assert!(refused(&requested_schema).unwrap().contains("secret"), "{field}");
        }
        let other = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        assert!(read(other.to_string().as_bytes()).is_none());
    }
}
