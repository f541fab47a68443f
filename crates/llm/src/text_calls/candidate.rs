//! Unmarked texts that may be calls: JSON and fenced blocks at the start of a line.

/// The keys with which the objects of calls begin.
const FIRST_KEYS: [&str; 10] = [
    "name",
    "tool_name",
    "tool",
    "function",
    "type",
    "id",
    "arguments",
    "parameters",
    "tool_calls",
    "args",
];
/// The info strings of fenced blocks that may be calls.
const FENCE_INFOS: [&str; 6] = ["", "json", "tool", "tool_call", "tool_calls", "tool_code"];
/// The longest text before the first key, and the longest key or info string, in bytes.
const MAX_LEAD_BYTES: usize = 64;
/// The longest text that is checked, in bytes: more than a lead, a key and its quotes.
const MAX_CHECKED_BYTES: usize = 4 * MAX_LEAD_BYTES;

const FENCE: &str = "```";

/// The result of a check of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Candidate {
    /// It is something else.
    No,
    /// More of the text is needed.
    Incomplete,
    /// JSON that begins like a call, after this number of bytes.
    Yes(usize),
}

/// Checks JSON.
pub(super) fn json(text: &str) -> Candidate {
    let text = &text[..text.floor_char_boundary(MAX_CHECKED_BYTES)];
    match begins_like_call(text) {
        Some(true) => Candidate::Yes(0),
        Some(false) => Candidate::No,
        None => Candidate::Incomplete,
    }
}

/// Checks a fenced block.
pub(super) fn fence(text: &str) -> Candidate {
    let Some(rest) = text.strip_prefix(FENCE) else {
        return if FENCE.starts_with(text) { Candidate::Incomplete } else { Candidate::No };
    };
    let checked = &rest[..rest.floor_char_boundary(MAX_CHECKED_BYTES)];
    let Some((info, _)) = checked.split_once('\n') else {
        let is_long = rest.len() > MAX_LEAD_BYTES;
        return if is_long { Candidate::No } else { Candidate::Incomplete };
    };
    let content = &rest[info.len() + 1..];
    if !FENCE_INFOS.contains(&info.trim().to_ascii_lowercase().as_str()) {
        return Candidate::No;
    }
    match json(content) {
        Candidate::Yes(_) => Candidate::Yes(text.len() - content.len()),
        other => other,
    }
}

/// Returns `None` if more of the text is needed.
fn begins_like_call(text: &str) -> Option<bool> {
    let after_brackets = text.trim_start_matches(|c: char| c == '[' || c.is_whitespace());
    let object = after(after_brackets, '{', text)?;
    let Some(object) = object else { return Some(false) };
    let key = after(object.trim_start(), '"', text)?;
    let Some(key) = key else { return Some(false) };
    match key.find('"') {
        Some(end) => Some(FIRST_KEYS.contains(&&key[..end])),
        None => (key.len() > MAX_LEAD_BYTES).then_some(false),
    }
}

/// Returns the text after `expected`, `Some(None)` if another character is there, or `None` if the text ends
/// before it.
fn after<'a>(rest: &'a str, expected: char, whole: &str) -> Option<Option<&'a str>> {
    if whole.len() - rest.len() > MAX_LEAD_BYTES {
        return Some(None);
    }
    if rest.is_empty() { None } else { Some(rest.strip_prefix(expected)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_key_decides() {
        assert_eq!(json(r#"{"name": "#), Candidate::Yes(0));
        assert_eq!(json("[ {\n \"type\":"), Candidate::Yes(0));
        for text in ["[", "[{", "{ ", "{\"na", "{\"name"] {
            assert_eq!(json(text), Candidate::Incomplete, "{text}");
        }
        let spaces = format!("{{{}", " ".repeat(100));
        let key = format!("{{\"{}", "k".repeat(100));
        for text in ["{}", "[1", "{\"answer\":1", "{name", "[see", &spaces, &key] {
            assert!(matches!(json(text), Candidate::No | Candidate::Incomplete), "{text}");
        }
        assert_eq!(json(&key), Candidate::No);
        assert_eq!(json("{\"answer\":1"), Candidate::No);
    }

    #[test]
    fn info_string_of_fence_decides() {
        assert_eq!(fence("```json\n{\"name\":"), Candidate::Yes(8));
        assert_eq!(fence("```\n{\"name\":"), Candidate::Yes(4));
        for text in ["`", "``", "```", "```js", "```json\n", "```json\n{"] {
            assert_eq!(fence(text), Candidate::Incomplete, "{text}");
        }
        for text in ["`x`", "```python\n{\"name\":", "```json\n{\"a\":", "```json\ntext"] {
            assert_eq!(fence(text), Candidate::No, "{text}");
        }
        assert_eq!(fence(&format!("```{}", "x".repeat(100))), Candidate::No);
    }
}
