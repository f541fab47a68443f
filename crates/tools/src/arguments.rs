//! Parsing and repair of the arguments that a model wrote.

use rockbot_contracts::json;
use serde_json::Value;

use crate::failure::ToolFailure;

/// Maximum size of arguments, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// Parsed arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments {
    /// JSON object.
    pub value: Value,
    /// `true` if the text was not valid JSON and had to be repaired.
    pub repaired: bool,
}

/// Parses the arguments of a call: a JSON object, or empty text for a tool without parameters.
///
/// It repairs truncated text, code fences, an object inside a JSON string, and trailing commas. Text
/// that allows more than one meaning is rejected.
///
/// # Errors
/// [`ToolFailure::InvalidArguments`] with the expected form.
pub fn parse(text: &str) -> Result<Arguments, ToolFailure> {
    if text.len() > MAX_ARGUMENT_BYTES {
        let (bytes, limit) = (text.len(), MAX_ARGUMENT_BYTES);
        return Err(ToolFailure::invalid(format!(
            "{bytes} bytes of arguments; send at most {limit}"
        )));
    }
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed == "null" {
        return Ok(Arguments { value: Value::Object(serde_json::Map::new()), repaired: false });
    }
    let error = match serde_json::from_str(trimmed) {
        Ok(value @ Value::Object(_)) => return Ok(Arguments { value, repaired: false }),
        // Some models send the object as a JSON string.
        Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
            Ok(value @ Value::Object(_)) => return Ok(Arguments { value, repaired: true }),
            _ => return Err(ToolFailure::invalid("expected a JSON object, got a string")),
        },
        Ok(_) => return Err(ToolFailure::invalid("expected a JSON object")),
        Err(error) if json::is_too_deep(&error) => {
            let limit = json::MAX_DEPTH;
            return Err(ToolFailure::invalid(format!("arguments nest deeper than {limit} levels")));
        }
        Err(error) => error,
    };
    match repair(trimmed) {
        Some(value @ Value::Object(_)) => Ok(Arguments { value, repaired: true }),
        _ => Err(ToolFailure::invalid(format!("not valid JSON: {}", json::describe_error(&error)))),
    }
}

/// Applies the repairs that have a single meaning: removes fences and trailing commas, and closes
/// open brackets. Text that ends inside a string, a number or a key could have continued, so it is
/// not repaired.
fn repair(text: &str) -> Option<Value> {
    let text = text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).unwrap_or(text);
    let text = text.strip_suffix("```").unwrap_or(text).trim();
    let mut repaired = String::with_capacity(text.len() + 8);
    let mut open = Vec::new();
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            match c {
                '"' => in_string = true,
                '{' => open.push('}'),
                '[' => open.push(']'),
                '}' | ']' => {
                    if open.pop() != Some(c) {
                        return None;
                    }
                    drop_trailing_comma(&mut repaired);
                }
                _ => {}
            }
        }
        repaired.push(c);
    }
    let complete = |c: char| matches!(c, '"' | '}' | ']' | '{' | '[' | ',');
    if in_string || !repaired.trim_end().ends_with(complete) {
        return None;
    }
    drop_trailing_comma(&mut repaired);
    repaired.extend(open.iter().rev());
    serde_json::from_str(&repaired).ok()
}

fn drop_trailing_comma(text: &mut String) {
    let end = text.trim_end();
    if let Some(rest) = end.strip_suffix(',') {
        text.truncate(rest.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the cases below read better without `&`")]
    fn check(text: &str, expected: Option<(Value, bool)>) {
        let parsed = parse(text).ok().map(|arguments| (arguments.value, arguments.repaired));
        assert_eq!(parsed, expected, "{text}");
    }

    #[test]
    fn valid_objects_are_unchanged() {
        check(r#"{"a": 1}"#, Some((json!({"a": 1}), false)));
        check("", Some((json!({}), false)));
        check(" null ", Some((json!({}), false)));
    }

    #[test]
    fn unambiguous_damage_is_repaired() {
        check(r#"{"a": "x"#, None);
        check(r#"{"a": "x""#, Some((json!({"a": "x"}), true)));
        check(r#"{"a": [1, 2], "#, Some((json!({"a": [1, 2]}), true)));
        check(r#"{"a": {"b": []"#, Some((json!({"a": {"b": []}}), true)));
        check(r#"{"a": 1,}"#, Some((json!({"a": 1}), true)));
        check("```json\n{\"a\": 1}\n```", Some((json!({"a": 1}), true)));
        check(r#""{\"a\": 1}""#, Some((json!({"a": 1}), true)));
    }

    #[test]
    fn ambiguous_damage_is_rejected() {
        check(r#"{"a": 1"#, None); // 1 may have been 12
        check(r#"{"a"#, None);
        check(r#"{"a":"#, None);
        check(r#"{"a": tru"#, None);
        check("[1]", None);
        check("7", None);
        check(r#"{"a": 1}}"#, None);
        check("rm -rf /", None);
        check(&"[".repeat(10_000), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn repair_adds_no_content(length in 0_usize..60) {
            let whole = r#"{"path": "notes/a.md", "lines": [1, 22, 333], "deep": {"x": true}}"#;
            let text: String = whole.chars().take(length).collect();
            if let Ok(Arguments { value, .. }) = parse(&text) {
                let whole: Value = serde_json::from_str(whole).unwrap();
                prop_assert!(is_part_of(&value, &whole), "{} became {}", text, value);
            }
        }
    }

    fn is_part_of(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => part
                .iter()
                .all(|(key, value)| whole.get(key).is_some_and(|of| is_part_of(value, of))),
            (Value::Array(part), Value::Array(whole)) => {
                part.len() <= whole.len() && part.iter().zip(whole).all(|(a, b)| is_part_of(a, b))
            }
            (part, whole) => part == whole,
        }
    }
}
