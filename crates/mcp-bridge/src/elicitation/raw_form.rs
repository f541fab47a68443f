//! Forms as servers write them.
//!
//! rmcp reads the schema of a form by the types of the protocol, and drops every other keyword. One form with
//! another schema makes a result with requests for input unreadable. Here each request is read for itself: a form
//! that asks for a secret by a keyword, and a request that cannot be read, are replaced by forms that are always
//! declined.

use std::{collections::BTreeMap, fmt};

use rmcp::model::{ElicitationSchema, InputRequest, RequestId, ServerJsonRpcMessage};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};

use crate::raw_response::RawResponse;

/// The method of a request for input.
pub(crate) const METHOD: &str = "elicitation/create";

/// The maximum number of requests for input in a result: more than a user is asked for in a round or in a task. The
/// form that replaces an unreadable request is many times larger than that request.
pub(crate) const MAX_REQUESTS: usize = 64;

/// The reason why an unreadable form is declined.
pub(super) const UNREADABLE_REASON: &str = "its form is not one that can be shown";
/// The key of a result with its requests.
const REQUESTS: &str = "inputRequests";
/// The only field of a form that replaces one that asks for a secret. A server that sends it itself is declined.
const SECRET: &str = "rockbot/secret";
/// The only field of a form that replaces an unreadable one.
const UNREADABLE: &str = "rockbot/unreadable";

/// A result that may require input, or the state of a task.
type RawResult<'a> = BTreeMap<String, &'a RawValue>;

/// A request of a server.
#[derive(Deserialize)]
struct RawRequest<'a> {
    id: RequestId,
    method: String,
    #[serde(borrow)]
    params: &'a RawValue,
}

/// The requests of a result, by their keys.
struct RawRequests<'a> {
    first: BTreeMap<String, &'a RawValue>,
    /// The result has more than [`MAX_REQUESTS`].
    has_more: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawRequests<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Requests;

        impl<'de> Visitor<'de> for Requests {
            type Value = RawRequests<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut requests: A,
            ) -> Result<Self::Value, A::Error> {
                let mut first = BTreeMap::new();
                for _ in 0..MAX_REQUESTS {
                    let Some((key, request)) = requests.next_entry()? else {
                        return Ok(RawRequests { first, has_more: false });
                    };
                    first.insert(key, request);
                }
                let mut has_more = false;
                while requests.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    has_more = true;
                }
                Ok(RawRequests { first, has_more })
            }
        }

        deserializer.deserialize_map(Requests)
    }
}

/// A result has more than [`MAX_REQUESTS`] requests for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyRequests;

/// Reads a message with requests for input, whose forms may ask for secrets. Returns `None` for any other message.
///
/// # Errors
/// When a result has more than [`MAX_REQUESTS`].
pub(crate) fn read(bytes: &[u8]) -> Result<Option<ServerJsonRpcMessage>, TooManyRequests> {
    if let Some(request) = request(bytes) {
        return Ok(Some(request));
    }
    match raw_response(bytes) {
        Some((_, requests)) if requests.has_more => Err(TooManyRequests),
        Some((raw, requests)) => Ok(response(raw, requests.first)),
        None => Ok(None),
    }
}

fn request(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    let RawRequest { id, method, params } = serde_json::from_slice(bytes).ok()?;
    if method != METHOD {
        return None;
    }
    let mut params = serde_json::from_str(params.get()).unwrap_or_else(|_| unreadable());
    replace_secret_form(&mut params);
    let request = json!({"jsonrpc": "2.0", "id": id, "method": METHOD, "params": params});
    serde_json::from_value(request).ok()
}

/// Returns a response and its requests for input.
fn raw_response(bytes: &[u8]) -> Option<(RawResponse<RawResult<'_>>, RawRequests<'_>)> {
    let raw: RawResponse<RawResult<'_>> = serde_json::from_slice(bytes).ok()?;
    let requests = raw.result.get(REQUESTS).copied()?;
    let requests = serde_json::from_str(requests.get()).ok()?;
    Some((raw, requests))
}

fn response(
    raw: RawResponse<RawResult<'_>>,
    requests: BTreeMap<String, &RawValue>,
) -> Option<ServerJsonRpcMessage> {
    let RawResponse { id, result } = raw;
    let requests: Map<String, Value> =
        requests.into_iter().map(|(key, raw)| (key, input_request(raw))).collect();
    let mut read = Map::from_iter([(REQUESTS.to_owned(), Value::Object(requests))]);
    for (key, value) in result.into_iter().filter(|(key, _)| key != REQUESTS) {
        read.insert(key, serde_json::from_str(value.get()).ok()?);
    }
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": read})).ok()
}

/// Returns a readable request of a result.
fn input_request(raw: &RawValue) -> Value {
    let mut request: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    if let Some(params) = request.get_mut("params") {
        replace_secret_form(params);
    }
    if InputRequest::deserialize(&request).is_ok() {
        return request;
    }
    json!({"method": METHOD, "params": unreadable()})
}

/// Returns the parameters of a request that replaces an unreadable one.
fn unreadable() -> Value {
    json!({"mode": "form", "message": "", "requestedSchema": form(UNREADABLE)})
}

/// Returns the reason why a form that replaces another is declined.
pub(super) fn refused(schema: &ElicitationSchema) -> Option<&'static str> {
    if schema.properties.contains_key(SECRET) {
        Some("it asks for a secret, which must not pass through agents")
    } else if schema.properties.contains_key(UNREADABLE) {
        Some(UNREADABLE_REASON)
    } else {
        None
    }
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
    use rmcp::model::{ElicitRequestParams, ServerRequest, ServerResult, TaskPayload};

    use super::*;
    use crate::frame::{self, Unreadable};

    #[test]
    fn unreadable_request_of_a_result_is_replaced() {
        let form = |property: &str| {
            format!(
                r#"{{"method":"elicitation/create","params":{{"mode":"form","message":"m",
                    "requestedSchema":{{"type":"object","properties":{{"x":{property}}}}}}}}}"#
            )
        };
        let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
        let requests = [
            ("good", form(r#"{"type":"boolean"}"#)),
            ("nested", form(r#"{"type":"object","properties":{}}"#)),
            ("deep", form(&deep)),
            ("huge", form(&format!(r#"{{"type":"number","maximum":1{}}}"#, "0".repeat(400)))),
            ("text", r#""text""#.to_owned()),
            ("roots", r#"{"method":"roots/list"}"#.to_owned()),
        ];
        let requests = requests.map(|(key, request)| format!("{key:?}:{request}")).join(",");
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"input_required",
                "requestState":"state","inputRequests":{{{requests}}}}}}}"#
        );
        let message = frame::read(text.as_bytes()).unwrap();
        let ServerJsonRpcMessage::Response(response) = message else { panic!("{message:?}") };
        let ServerResult::InputRequiredResult(result) = response.result else {
            panic!("{response:?}")
        };
        assert_eq!(result.request_state.as_deref(), Some("state"));
        let requests = result.input_requests.unwrap();
        assert_eq!(requests.len(), 6);
        for (key, request) in requests {
            let reason = match &request {
                InputRequest::Elicitation(request) => match &request.params {
                    ElicitRequestParams::FormElicitationParams { requested_schema, .. } => {
                        refused(requested_schema)
                    }
                    other => panic!("{other:?}"),
                },
                _ => None,
            };
            let is_readable = matches!(key.as_str(), "good" | "roots");
            assert_eq!(reason, (!is_readable).then_some(UNREADABLE_REASON), "{key}");
        }
    }

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
        assert!(matches!(read(other.to_string().as_bytes()), Ok(None)));
    }

    #[test]
    fn number_of_requests_in_a_result_is_bounded() {
        let read = |head: &str, request: &str, count: usize| {
            let requests: Vec<_> = (0..count).map(|key| format!(r#""{key}":{request}"#)).collect();
            let requests = requests.join(",");
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{{head},"inputRequests":{{{requests}}}}}}}"#
            );
            frame::read(text.as_bytes())
        };
        let heads = [
            r#""resultType":"input_required""#,
            r#""resultType":"complete","taskId":"t","status":"input_required","createdAt":"",
                "lastUpdatedAt":"","ttlMs":null"#,
        ];
        for head in heads {
            for request in ["1", r#"{"method":"roots/list"}"#] {
                let message = read(head, request, MAX_REQUESTS).unwrap();
                let ServerJsonRpcMessage::Response(response) = message else {
                    panic!("{message:?}")
                };
                let requests = match response.result {
                    ServerResult::InputRequiredResult(result) => result.input_requests.unwrap(),
                    ServerResult::GetTaskResult(result) => match result.task.payload {
                        TaskPayload::InputRequired { input_requests } => input_requests,
                        other => panic!("{other:?}"),
                    },
                    other => panic!("{other:?}"),
                };
                assert_eq!(requests.len(), MAX_REQUESTS, "{head}: {request}");
                for count in [MAX_REQUESTS + 1, 5000] {
                    let error = read(head, request, count).unwrap_err();
                    assert_eq!(error, Unreadable::TooManyRequests, "{head}: {request}");
                }
            }
        }
    }
}
