//! Calls between the special tokens of Mistral and DeepSeek.

use super::{
    block_end::BlockEnd,
    json_call::{ParsedCall, marked_calls, with_unreadable},
};
use crate::json_depth::JsonDepth;

/// Mistral's mark before calls.
pub(super) const MISTRAL_MARK: &str = "[TOOL_CALLS]";

const DEEPSEEK_CALL: &str = "<｜tool▁call▁begin｜>";
const DEEPSEEK_CALL_END: &str = "<｜tool▁call▁end｜>";
const DEEPSEEK_SEPARATOR: &str = "<｜tool▁sep｜>";

/// Returns the calls after `[TOOL_CALLS]`: a JSON array, or a name and a JSON object, which are separated by
/// `[ARGS]` and sometimes a `[CALL_ID]`. Later models repeat the mark before each call.
pub(super) fn mistral_calls(text: &str) -> Vec<ParsedCall> {
    let mut parts = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        // A mark in JSON is a part of its text.
        let mark = BlockEnd::default().find(text, &[MISTRAL_MARK]);
        let (part, next) =
            mark.map_or((text, None), |(at, length)| (&text[..at], Some(&text[at + length..])));
        let part = part.trim();
        let is_json = part.starts_with(['[', '{']);
        parts.push((part, if is_json { marked_calls(part) } else { named_calls(part) }));
        rest = next;
    }
    with_unreadable(parts.into_iter())
}

/// Returns calls of the form `NAME{…}`, one after the other.
fn named_calls(text: &str) -> Vec<ParsedCall> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while let Some(start) = rest.find('{') {
        let head = &rest[..start];
        let name = head.split(['[', '\n', ' ']).find(|part| !part.is_empty()).unwrap_or("");
        let end = JsonDepth::default().read(&rest[start..]).map_or(rest.len(), |end| start + end);
        calls.extend(ParsedCall::new(name, rest[start..end].to_owned()));
        rest = rest[end..].trim();
    }
    calls
}

/// Returns the calls after `<｜tool▁calls▁begin｜>`. Up to version 3 the name follows the word `function` and
/// the arguments are a fenced block; later the name comes first and the arguments follow it.
pub(super) fn deepseek_calls(text: &str) -> Vec<ParsedCall> {
    let calls = text.split(DEEPSEEK_CALL).skip(1);
    with_unreadable(calls.map(|call| {
        let call = call.split(DEEPSEEK_CALL_END).next().unwrap_or(call);
        (call, deepseek_call(call))
    }))
}

fn deepseek_call(text: &str) -> Vec<ParsedCall> {
    let Some((first, second)) = text.split_once(DEEPSEEK_SEPARATOR) else {
        return marked_calls(text);
    };
    let (name, arguments) = if first.trim() == "function" {
        second.split_once('\n').unwrap_or((second, ""))
    } else {
        (first, second)
    };
    ParsedCall::new(name, unfenced(arguments).to_owned()).into_iter().collect()
}

/// Returns the content of a fenced block, or the whole text without a fence.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(block) = text.strip_prefix("```") else { return text };
    let block = block.split_once('\n').map_or("", |(_, block)| block);
    block.trim_end().strip_suffix("```").unwrap_or(block).trim()
}
