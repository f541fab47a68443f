//! Calls written with XML-like tags. The texts are not XML: nothing is escaped.

use serde_json::{Map, Value};

use super::{
    json_call::{ParsedCall, with_unreadable},
    tool_set::ToolSet,
};

/// Returns the calls of `<function=NAME>`: with tags `<parameter=KEY>` (Qwen Coder), or with a JSON object
/// (Llama).
pub(super) fn function_calls(text: &str, tools: &ToolSet) -> Vec<ParsedCall> {
    element_calls(elements(text, "<function=", "</function>"), |element| {
        let (name, body) = element.split_once('>')?;
        let name = name.trim().trim_matches('"');
        let body = body.trim();
        if body.starts_with('{') {
            return ParsedCall::new(name, body.to_owned());
        }
        let pairs = elements(body, "<parameter=", "</parameter>").filter_map(|parameter| {
            let (key, value) = parameter.split_once('>')?;
            Some((key.trim().trim_matches('"'), value))
        });
        call(name, pairs, tools)
    })
}

/// Returns the calls of `<invoke name="NAME">` with tags `<parameter name="KEY">` (Anthropic's text format).
pub(super) fn invoke_calls(text: &str, tools: &ToolSet) -> Vec<ParsedCall> {
    element_calls(elements(text, "<invoke name=", "</invoke>"), |element| {
        let (name, body) = element.split_once('>')?;
        let pairs = elements(body, "<parameter name=", "</parameter>").filter_map(|parameter| {
            let (key, value) = parameter.split_once('>')?;
            Some((unquoted(key), value))
        });
        call(unquoted(name), pairs, tools)
    })
}

/// Returns the calls of elements, each of which has one.
fn element_calls<'a>(
    elements: impl Iterator<Item = &'a str>,
    read: impl Fn(&'a str) -> Option<ParsedCall>,
) -> Vec<ParsedCall> {
    with_unreadable(elements.map(|element| (element, read(element).into_iter().collect())))
}

/// Returns the call of a name that is followed by pairs of `<arg_key>` and `<arg_value>` (GLM).
pub(super) fn key_value_call(text: &str, tools: &ToolSet) -> Option<ParsedCall> {
    let (name, body) = text.split_once("<arg_key>")?;
    let pairs = body.split("<arg_key>").filter_map(|pair| {
        let (key, value) = pair.split_once("</arg_key>")?;
        let (_, value) = value.split_once("<arg_value>")?;
        Some((key.trim(), value.split("</arg_value>").next().unwrap_or(value)))
    });
    call(name, pairs, tools)
}

fn call<'a>(
    name: &str,
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
    tools: &ToolSet,
) -> Option<ParsedCall> {
    let mut arguments = Map::new();
    for (key, value) in pairs {
        let value = tools.argument(name.trim(), key, without_line_ends(value));
        if arguments.insert(key.to_owned(), value).is_some() {
            // Copied text may have tags: neither value is certain.
            let reason =
                format!("the argument {key} is given twice; call again with JSON arguments");
            return ParsedCall::new(name, Value::String(reason).to_string());
        }
    }
    ParsedCall::with_value(name, &Value::Object(arguments))
}

/// Removes one line end on each side: models put values on lines of their own.
fn without_line_ends(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// Removes white space around the text, and then quotes.
fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}

/// Returns the contents of elements. The last one may have no end: models omit it, or are cut off.
fn elements<'a>(
    text: &'a str,
    open: &'static str,
    close: &'static str,
) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).map(move |rest| rest.split(close).next().unwrap_or(rest))
}
