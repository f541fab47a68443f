//! Calls written as JSON objects.

use serde_json::{Map, Value, json};

use super::tool_set::ToolSet;
use crate::assemble::MAX_NAME_BYTES;

/// Keys for the name of the tool.
const NAME_KEYS: [&str; 3] = ["name", "tool_name", "tool"];
/// Keys for the arguments.
const ARGUMENT_KEYS: [&str; 4] = ["arguments", "parameters", "args", "input"];
/// The name of a call that stands for an unreadable one after others. There is no such tool, so the call fails,
/// and the model finds the reason in its arguments.
const UNREADABLE: &str = "unreadable_tool_call";
/// The longest part of an unreadable call that the model is shown, in characters.
const MAX_UNREADABLE_CHARS: usize = 200;

/// A call found in a text. The name is valid; the arguments may be invalid JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedCall {
    pub(super) name: String,
    pub(super) arguments: String,
}

impl ParsedCall {
    /// Creates a call if the name can be one.
    pub(super) fn new(name: &str, arguments: String) -> Option<Self> {
        let name = name.trim();
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/'));
        is_name.then(|| Self { name: name.to_owned(), arguments })
    }

    /// Creates the call that stands for an unreadable one. Returns `None` for prose that only mentions the marks of
    /// calls.
    pub(super) fn unreadable(text: &str) -> Option<Self> {
        let text = text.trim();
        text.contains(['{', '[', '<']).then(|| {
            let shown: String = text.chars().take(MAX_UNREADABLE_CHARS).collect();
            let reason = "this call could not be read and did not run; write it again in the form of a tool \
                          call, with the name of a tool and valid JSON";
            let arguments = json!({"error": reason, "text": shown}).to_string();
            Self { name: UNREADABLE.to_owned(), arguments }
        })
    }

    /// Makes the arguments invalid JSON, because the model did not complete them.
    pub(super) fn invalidate_arguments(&mut self) {
        self.arguments.pop();
    }

    /// Creates a call from arguments that a model wrote.
    pub(super) fn with_value(name: &str, arguments: &Value) -> Option<Self> {
        Self::new(name, argument_text(arguments))
    }
}

/// Returns arguments as text. Some models write the object as a string.
fn argument_text(arguments: &Value) -> String {
    match arguments {
        Value::Null => "{}".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the calls of a marked text: JSON objects or arrays, one after the other, separated by nothing,
/// white space, commas or semicolons. A single object with a syntax error is a call with raw arguments if
/// its name is readable, so that the model learns of the error. So is an unreadable rest after other calls.
pub(super) fn marked_calls(text: &str) -> Vec<ParsedCall> {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';');
    let mut rest = text.trim_matches(is_separator);
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => match calls_in(&value) {
                Some(found) => calls.extend(found),
                None => {
                    calls.extend(unreadable_after(&calls, rest));
                    return calls;
                }
            },
            _ => {
                calls.extend(broken_call(rest).or_else(|| unreadable_after(&calls, rest)));
                return calls;
            }
        }
        rest = rest[values.byte_offset()..].trim_start_matches(is_separator);
    }
    calls
}

fn unreadable_after(calls: &[ParsedCall], rest: &str) -> Option<ParsedCall> {
    if calls.is_empty() { None } else { ParsedCall::unreadable(rest) }
}

/// Returns the calls of texts that have at least one each. If any is readable, a call stands for each text without a
/// readable one.
pub(super) fn with_unreadable<'a>(
    found: impl Iterator<Item = (&'a str, Vec<ParsedCall>)>,
) -> Vec<ParsedCall> {
    let found: Vec<_> = found.collect();
    if found.iter().all(|(_, calls)| calls.is_empty()) {
        return Vec::new();
    }
    let calls = found.into_iter().flat_map(|(text, mut calls)| {
        if calls.is_empty() {
            calls.extend(ParsedCall::unreadable(text));
        }
        calls
    });
    calls.collect()
}

/// Returns the calls of an unmarked text that follows other calls. Other text is dropped there, so that calls of
/// unknown tools and a call of a known tool with a syntax error are calls, from which the model learns of them.
pub(super) fn further_unmarked_calls(text: &str, tools: &ToolSet) -> Option<Vec<ParsedCall>> {
    match serde_json::from_str::<Value>(text.trim()) {
        Ok(value) => {
            let has_arguments = |object| find_call(object).is_some_and(|(_, args)| args.is_some());
            has_arguments(&value).then(|| calls_in(&value)).flatten()
        }
        Err(_) => {
            broken_call(text).filter(|call| tools.contains(&call.name)).map(|call| vec![call])
        }
    }
}

/// Returns the calls of an unmarked value: only calls of known tools, with arguments. Everything else is
/// an answer that happens to be JSON.
pub(super) fn unmarked_calls(text: &str, tools: &ToolSet) -> Option<Vec<ParsedCall>> {
    let value: Value = serde_json::from_str(text.trim()).ok()?;
    let objects: Vec<&Value> = match &value {
        Value::Array(objects) => objects.iter().collect(),
        one => vec![one],
    };
    let is_call = |object: &&Value| find_call(object).is_some_and(|(_, args)| args.is_some());
    let calls = calls_in(&value)?;
    let is_known = calls.iter().all(|call| tools.contains(&call.name));
    (is_known && (objects.iter().all(is_call) || value.get("tool_calls").is_some()))
        .then_some(calls)
}

/// Returns the calls of an object, an array, or an object with `tool_calls`; `None` without a call.
fn calls_in(value: &Value) -> Option<Vec<ParsedCall>> {
    let objects = match value {
        Value::Array(objects) => objects.as_slice(),
        Value::Object(object) => match object.get("tool_calls") {
            Some(Value::Array(objects)) => objects.as_slice(),
            _ => std::slice::from_ref(value),
        },
        _ => return None,
    };
    let call = |object: &Value| {
        let (name, arguments) = find_call(object)?;
        ParsedCall::with_value(name, arguments.unwrap_or(&Value::Null))
    };
    let calls: Option<Vec<_>> = objects.iter().map(call).collect();
    calls.filter(|calls| !calls.is_empty())
}

/// Returns the name and the arguments of a call. They may be in an object `function`.
fn find_call(value: &Value) -> Option<(&str, Option<&Value>)> {
    let object = value.as_object()?;
    match object.get("function") {
        Some(Value::Object(function)) => name_and_arguments(function),
        Some(Value::String(name)) => Some((name, first_of(object, &ARGUMENT_KEYS))),
        _ => name_and_arguments(object),
    }
}

fn name_and_arguments(object: &Map<String, Value>) -> Option<(&str, Option<&Value>)> {
    let name = first_of(object, &NAME_KEYS)?.as_str()?;
    Some((name, first_of(object, &ARGUMENT_KEYS)))
}

fn first_of<'a>(object: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().find_map(|key| object.get(*key))
}

/// Returns the call of an object with a syntax error or without its end.
fn broken_call(text: &str) -> Option<ParsedCall> {
    let name = NAME_KEYS.iter().find_map(|key| value_after(text, key))?.strip_prefix('"')?;
    let name = &name[..name.find('"')?];
    let arguments = ARGUMENT_KEYS.iter().find_map(|key| value_after(text, key)).unwrap_or("{}");
    let arguments = arguments.trim_end();
    let arguments = arguments.strip_suffix('}').unwrap_or(arguments).trim_end();
    ParsedCall::new(name, arguments.to_owned())
}

/// Returns the text after a key and its colon.
fn value_after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\"{key}\""))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ToolDefinition;

    fn marked(text: &str) -> Vec<(String, String)> {
        marked_calls(text).into_iter().map(|call| (call.name, call.arguments)).collect()
    }

    fn one(name: &str, arguments: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), arguments.to_owned())]
    }

    #[test]
    fn all_spellings_of_a_call_are_read() {
        for text in [
            r#"{"name":"add","arguments":{"a":1}}"#,
            r#"{"type":"function","name":"add","parameters":{"a":1}}"#,
            r#"{"type":"function","function":{"name":"add","arguments":{"a":1}}}"#,
            r#"{"function":"add","args":{"a":1}}"#,
            r#"{"tool":"add","input":{"a":1}}"#,
            r#"{"name":"add","arguments":"{\"a\":1}"}"#,
            r#"{"tool_calls":[{"id":"x","function":{"name":"add","arguments":{"a":1}}}]}"#,
            r#" [{"name":"add","arguments":{"a":1}}] "#,
        ] {
            assert_eq!(marked(text), one("add", r#"{"a":1}"#), "{text}");
        }
        assert_eq!(marked(r#"{"name":"now"}"#), one("now", "{}"));
        assert_eq!(marked(r#"{"name":"a"}; {"name":"b"}"#).len(), 2);
    }

    #[test]
    fn broken_arguments_stay_raw() {
        let text = "{\"name\": \"write\", \"arguments\": {\"text\": \"two\nlines\"}}";
        assert_eq!(marked(text), one("write", "{\"text\": \"two\nlines\"}"));
        let cut = r#"{"name": "write", "arguments": {"text": "cut"#;
        assert_eq!(marked(cut), one("write", r#"{"text": "cut"#));
        assert_eq!(marked("{nonsense"), []);
        let further = marked(r#"{"name": "now"}, {nonsense"#);
        assert_eq!(further.len(), 2, "{further:?}");
        assert_eq!(further[1].0, UNREADABLE);
        assert!(further[1].1.contains("{nonsense"), "{further:?}");
        assert_eq!(marked(r#"{"name": "now"}, and that is all"#), one("now", "{}"));
        assert_eq!(marked("[1, 2]"), []);
        assert_eq!(marked(&"[".repeat(100_000)), []);
    }

    #[test]
    fn invalid_names_are_no_calls() {
        let long = format!(r#"{{"name":"{}"}}"#, "n".repeat(MAX_NAME_BYTES + 1));
        for text in [r#"{"name":""}"#, r#"{"name":"a b"}"#, r#"{"name":"a\u0007"}"#, &long] {
            assert_eq!(marked(text), [], "{text}");
        }
    }

    #[test]
    fn unmarked_values_are_calls_in_known_tools_only() {
        let tools = ToolSet::new(&[ToolDefinition {
            name: "add".to_owned(),
            description: String::new(),
            parameters: json!({}),
        }]);
        let calls = |text| unmarked_calls(text, &tools).map(|calls| calls.len());
        assert_eq!(calls(r#"{"name":"add","parameters":{}}"#), Some(1));
        assert_eq!(
            calls(r#"[{"name":"add","arguments":{}},{"name":"add","arguments":{}}]"#),
            Some(2)
        );
        for text in [
            r#"{"name":"add"}"#,
            r#"{"name":"Ada","arguments":{}}"#,
            r#"[{"name":"add","arguments":{}},{"name":"other","arguments":{}}]"#,
            r#"{"answer":42}"#,
            "[]",
            r#"{"name":"add","arguments":{"#,
        ] {
            assert_eq!(calls(text), None, "{text}");
        }
    }
}
