//! Large results as resources that are read in ranges.

use rmcp::{
    ErrorData,
    model::{MetaObject, ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use rockbot_tools::{ToolCall, ToolContext, ToolScope, outputs::TOOL_OUTPUT};
use serde_json::json;

use crate::{
    client::McpClient,
    fleet::McpFleet,
    known_outputs::{KnownOutput, is_handle},
};

/// Start of the URIs.
const PREFIX: &str = "rockbot://outputs/";
/// Characters that one read returns unless the client asks for fewer.
const DEFAULT_CHARS: usize = 64 * 1024;
/// Characters that one read can return.
const MAX_CHARS: usize = 256 * 1024;
/// Requests to the fleet in one read, at most.
const MAX_REQUESTS: usize = 64;

/// A part of a large result.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    handle: String,
    /// First character, from 0.
    from: usize,
    /// Number of characters.
    count: usize,
}

/// A part of the text, and its place.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    text: String,
    /// First character that is not in the text.
    end: usize,
    /// Length of the whole text, in characters.
    total: usize,
}

/// Returns the resource of a large result.
pub(crate) fn resource(output: &KnownOutput) -> Resource {
    let KnownOutput { handle, tool, bytes, .. } = output;
    Resource::new(format!("{PREFIX}{handle}"), format!("output of {tool}"))
        .with_description(format!("The whole result of {tool}, {bytes} bytes of text."))
        .with_mime_type("text/plain")
        .with_size(*bytes)
}

/// Returns the template of the URIs.
pub(crate) fn template() -> ResourceTemplate {
    ResourceTemplate::new(format!("{PREFIX}{{handle}}{{?from,count}}"), "large result")
        .with_description(
            "A tool result that was too large to be shown, from the character `from` (counted from 0), \
             `count` characters (65536 by default, 262144 at most).",
        )
        .with_mime_type("text/plain")
}

/// Reads a part of a large result of a client.
///
/// # Errors
/// When the URI is not one of a large result of this client, or when it cannot be read.
pub(crate) async fn read(
    fleet: &McpFleet,
    client: &McpClient,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let range = Range::parse(uri).ok_or_else(|| not_found(uri))?;
    let Range { handle, from, count } = &range;
    let mut part = Part { end: *from, ..Part::default() };
    for _ in 0..MAX_REQUESTS {
        let missing = (from + count).saturating_sub(part.end);
        if missing == 0 || (part.total > 0 && part.end >= part.total) {
            break;
        }
        let next = read_part(fleet, client, handle, part.end, missing).await;
        let next = next.map_err(|message| unreadable(uri, message))?;
        let is_at_end = next.end <= part.end;
        part.text.push_str(&next.text);
        (part.end, part.total) = (next.end.max(part.end), next.total);
        if is_at_end {
            break;
        }
    }
    Ok(contents(uri, &range, part))
}

fn contents(uri: &str, range: &Range, part: Part) -> ReadResourceResult {
    let Part { text, end, total } = part;
    let mut meta = MetaObject::new();
    let place = [("rockbot/from", range.from), ("rockbot/end", end), ("rockbot/total", total)];
    for (key, value) in place {
        meta.0.insert(key.to_owned(), json!(value));
    }
    let mut contents = Vec::new();
    if end < total {
        let next = format!("{PREFIX}{}?from={end}", range.handle);
        meta.0.insert("rockbot/next".to_owned(), json!(next));
        let note =
            format!("[characters {} to {end} of {total}; the next part is {next}]", range.from);
        contents.push(ResourceContents::text(note, next));
    }
    contents.insert(0, ResourceContents::text(text, uri).with_meta(meta));
    ReadResourceResult::new(contents)
}

/// Reads characters with the tool of the fleet, which checks the owner.
///
/// # Errors
/// A message for the client.
async fn read_part(
    fleet: &McpFleet,
    client: &McpClient,
    handle: &str,
    from: usize,
    count: usize,
) -> Result<Part, String> {
    let context = ToolContext {
        // The client's filter is for the calls of its model. This is its own result.
        scope: ToolScope::everything(),
        ..fleet.context(client, TOOL_OUTPUT)
    };
    let arguments = json!({"handle": handle, "mode": "range", "from": from, "count": count});
    let call = ToolCall { context, arguments: arguments.to_string().into() };
    let result = fleet.executor.execute(call).await.map_err(|failure| failure.to_string())?;
    let text = result.to_text();
    if result.is_error {
        return Err(text.into_owned());
    }
    Part::parse(&text).ok_or_else(|| "the fleet returned no range of the output".to_owned())
}

impl Part {
    /// Parses the response of the tool: `[chars 0 to 10 of 20; …]` and the text, or `[nothing at …]`.
    fn parse(response: &str) -> Option<Self> {
        let (header, text) = response.split_once('\n').unwrap_or((response, ""));
        if let Some(rest) = header.strip_prefix("[nothing at ") {
            let (at, rest) = rest.split_once(": the output has ")?;
            let total = rest.split(' ').next()?.parse().ok()?;
            return Some(Self { text: String::new(), end: at.parse().ok()?, total });
        }
        let (_, range) = header.strip_prefix("[chars ")?.split_once(" to ")?;
        let (end, rest) = range.split_once(" of ")?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let total = rest[..digits].parse().ok()?;
        Some(Self { text: text.to_owned(), end: end.parse().ok()?, total })
    }
}

impl Range {
    fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(PREFIX)?;
        let (handle, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !is_handle(handle) {
            return None;
        }
        let mut range = Self { handle: handle.to_owned(), from: 0, count: DEFAULT_CHARS };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=')?;
            // A text can be longer than any address space; an output cannot.
            let value = value.parse::<u32>().ok()? as usize;
            match key {
                "from" => range.from = value,
                "count" => range.count = value.clamp(1, MAX_CHARS),
                _ => return None,
            }
        }
        Some(range)
    }
}

/// The error for a URI of no large result.
pub(crate) fn not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found(
        "no such resource; resources/list lists the large results of this client",
        Some(json!({"uri": uri.chars().take(256).collect::<String>()})),
    )
}

fn unreadable(uri: &str, message: String) -> ErrorData {
    ErrorData::resource_not_found(message, Some(json!({"uri": uri})))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: &str = "out-0123456789abcdef0123456789abcdef";

    #[test]
    fn uris_are_parsed_strictly() {
        let range = |from, count| Some(Range { handle: HANDLE.to_owned(), from, count });
        let uri = |rest: &str| Range::parse(&format!("{PREFIX}{HANDLE}{rest}"));
        assert_eq!(uri(""), range(0, DEFAULT_CHARS));
        assert_eq!(uri("?from=7&count=3"), range(7, 3));
        assert_eq!(uri("?count=0"), range(0, 1));
        assert_eq!(uri("?count=999999999"), range(0, MAX_CHARS));
        for rest in ["?from=-1", "?from=x", "?more=1", "/more", "?from", "?from=99999999999"] {
            assert_eq!(uri(rest), None, "{rest}");
        }
        assert_eq!(Range::parse("file:///etc/passwd"), None);
        assert_eq!(Range::parse(&format!("{PREFIX}../{HANDLE}")), None);
    }

    #[test]
    fn responses_of_the_tool_are_parsed() {
        let part = |text: &str, end, total| Some(Part { text: text.to_owned(), end, total });
        assert_eq!(
            Part::parse("[chars 0 to 2 of 9; continue with from = 2]\nab"),
            part("ab", 2, 9)
        );
        assert_eq!(Part::parse("[chars 7 to 9 of 9; the end]\na\n"), part("a\n", 9, 9));
        assert_eq!(Part::parse("[nothing at 9: the output has 9 chars]"), part("", 9, 9));
        assert_eq!(Part::parse("anything else"), None);
    }

    #[test]
    fn incomplete_read_names_next_part() {
        let range = Range { handle: HANDLE.to_owned(), from: 0, count: 2 };
        let part = Part { text: "ab".to_owned(), end: 2, total: 9 };
        let result = serde_json::to_value(contents("a:b", &range, part)).unwrap();
        let next = format!("{PREFIX}{HANDLE}?from=2");
        assert_eq!(result["contents"][0]["text"], "ab");
        assert_eq!(result["contents"][0]["_meta"]["rockbot/next"], next);
        assert_eq!(result["contents"][1]["uri"], next);
        let part = Part { text: "ab".to_owned(), end: 2, total: 2 };
        let result = serde_json::to_value(contents("a:b", &range, part)).unwrap();
        assert_eq!(result["contents"].as_array().unwrap().len(), 1);
    }
}
