//! Arguments of earlier calls as JSON.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::json;

/// Wraps arguments that are not JSON in an object. Servers that render them with the model's template
/// (llama.cpp, vLLM) would fail every later request of the conversation, and the model still sees its
/// text.
pub(crate) fn readable_arguments(arguments: &str) -> Cow<'_, str> {
    if serde_json::from_str::<IgnoredAny>(arguments).is_ok() {
        Cow::Borrowed(arguments)
    } else {
        Cow::Owned(json!({ "invalid_json": arguments }).to_string())
    }
}
