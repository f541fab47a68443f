//! Batches: one call that makes several calls. The id of each inner call is derived from the outer call and the position,
//! so that a repeated batch makes the same calls.

use std::collections::HashSet;

use rockbot_contracts::ToolCallId;
use serde::Deserialize;
use serde_json::Value;

use super::entry::CallEntry;
use crate::derived_id::derived_id;

/// Maximum number of calls in a batch.
pub(crate) const MAX_BATCH_CALLS: usize = 20;
/// Longest id of a call within a batch, in bytes.
const MAX_ID_BYTES: usize = 64;
/// Length of the id of an inner call in hexadecimal digits.
const ID_CHARS: usize = 32;

/// A call in a batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BatchItem {
    /// Text or number that the model assigned.
    pub(crate) id: Value,
    pub(crate) call: CallEntry,
}

/// Error in the arguments of a batch. None of its calls was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchError {
    #[error("empty_batch: `calls` has no call; add 1 to {MAX_BATCH_CALLS}")]
    Empty,
    #[error(
        "invalid_batch_input: `calls` must be a list of at most {MAX_BATCH_CALLS} objects with `id`, a text or whole \
         number of at most {MAX_ID_BYTES} bytes, `tool` and the object `parameters`; nothing else, and in complete JSON"
    )]
    Invalid,
    #[error("duplicate_id: two calls of the batch have the same id; number them")]
    DuplicateId,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchArguments {
    calls: Vec<BatchCall>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchCall {
    id: Value,
    tool: String,
    #[serde(default)]
    parameters: serde_json::Map<String, Value>,
}

/// Returns the calls that a batch makes. Truncated JSON is not repaired: half a batch must not run.
///
/// # Errors
/// See [`BatchError`].
pub(crate) fn batch_items(outer: &CallEntry) -> Result<Vec<BatchItem>, BatchError> {
    let arguments: BatchArguments =
        serde_json::from_str(&outer.arguments).map_err(|_| BatchError::Invalid)?;
    match arguments.calls.len() {
        0 => return Err(BatchError::Empty),
        count if count > MAX_BATCH_CALLS => return Err(BatchError::Invalid),
        _ => {}
    }
    let mut seen = HashSet::new();
    let mut items = Vec::with_capacity(arguments.calls.len());
    for (position, BatchCall { id, tool, parameters }) in arguments.calls.into_iter().enumerate() {
        let is_id = id.is_u64() || id.is_i64() || id.is_string();
        let id_text = id.as_str().map_or_else(|| id.to_string(), ToOwned::to_owned);
        if !is_id || id_text.is_empty() || id_text.len() > MAX_ID_BYTES || tool.is_empty() {
            return Err(BatchError::Invalid);
        }
        if !seen.insert(id_text.clone()) {
            return Err(BatchError::DuplicateId);
        }
        let number = position.to_string();
        let call = derived_id(&["batch", outer.call.as_str(), &number], ID_CHARS);
        let call = ToolCallId::new(call).map_err(|_| BatchError::Invalid)?;
        let arguments = Value::Object(parameters).to_string();
        items.push(BatchItem {
            id,
            call: CallEntry { call, id: id_text, name: tool, tool: None, arguments },
        });
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn batch(arguments: &str) -> Result<Vec<BatchItem>, BatchError> {
        let call = ToolCallId::new("outer").unwrap();
        batch_items(&CallEntry {
            call,
            id: "1".to_owned(),
            name: "agent__batch".to_owned(),
            tool: None,
            arguments: arguments.to_owned(),
        })
    }

    #[test]
    fn repeated_batch_has_the_same_call_ids() {
        let text = json!({"calls": [{"id": 1, "tool": "a", "parameters": {"x": 1}},
            {"id": "two", "tool": "a"}]});
        let (first, second) =
            (batch(&text.to_string()).unwrap(), batch(&text.to_string()).unwrap());
        assert_eq!(first, second);
        assert_ne!(first[0].call.call, first[1].call.call);
        assert_eq!(first[0].call.arguments, r#"{"x":1}"#);
        assert_eq!((&first[0].id, &first[1].id), (&json!(1), &json!("two")));
    }

    #[test]
    fn invalid_batches_make_no_call() {
        let call = |id: Value| json!({"id": id, "tool": "a", "parameters": {}});
        let check = |calls: Value, error| {
            assert_eq!(batch(&json!({"calls": calls}).to_string()), Err(error));
        };
        check(json!([]), BatchError::Empty);
        check(json!([call(json!(1)), call(json!("1"))]), BatchError::DuplicateId);
        check(json!((0..21).map(|id| call(json!(id))).collect::<Vec<_>>()), BatchError::Invalid);
        for id in [json!(1.5), json!(null), json!(""), json!("x".repeat(65)), json!([])] {
            check(json!([call(id)]), BatchError::Invalid);
        }
        check(json!([{"id": 1, "tool": "a", "parameters": [], "more": 1}]), BatchError::Invalid);
        let truncated = r#"{"calls": [{"id": 1, "tool": "a", "parameters": {}}"#;
        assert_eq!(batch(truncated), Err(BatchError::Invalid));
    }
}
