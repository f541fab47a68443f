//! Canonical JSON, for comparison by bytes.

use serde_json::Value;

/// Writes JSON with sorted object keys. The parser's depth limit bounds the recursion.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::with_capacity(64);
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (at, (key, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_plain(key, text);
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        plain => write_plain(plain, text),
    }
}

fn write_plain(value: &(impl serde::Serialize + ?Sized), text: &mut String) {
    // Serializing strings and plain values cannot fail.
    text.push_str(&serde_json::to_string(value).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted() {
        assert_eq!(
            canonical(&json!({"b": [1, {"d": 1, "c": "ü\n"}], "a": "x"})),
            r#"{"a":"x","b":[1,{"c":"ü\n","d":1}]}"#
        );
    }
}
