//! JSON as the server wrote it: numbers keep their digits.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Returns valid JSON without white space between its tokens; `None` if the text is not JSON.
pub(super) fn compact(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let (mut in_string, mut escaped) = (false, false);
    let kept = text.chars().filter(|character| {
        if in_string {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            return true;
        }
        in_string = *character == '"';
        !matches!(character, ' ' | '\t' | '\n' | '\r')
    });
    Some(kept.collect())
}

/// Returns the value at a JSON pointer (RFC 6901) as it is written; `None` if it does not exist.
pub(super) fn select<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
    let mut found: &RawValue = serde_json::from_str(text).ok()?;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let text = found.get();
        found = match text.as_bytes().first() {
            Some(b'{') => {
                serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok()?.remove(&token)?
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                items.get(token.parse::<usize>().ok()?).copied()?
            }
            _ => return None,
        };
    }
    Some(found.get())
}

/// Returns the number of items of a JSON array; `None` for any other value.
pub(super) fn count(text: &str) -> Option<usize> {
    text.starts_with('[')
        .then(|| serde_json::from_str::<Vec<IgnoredAny>>(text).ok())?
        .map(|items| items.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        r#" { "a" : [ 1.50, {"b/c": {"~": 12345678901234567890123} } ], "s": "x \" y" } "#;

    #[test]
    fn compact_keeps_numbers_and_strings() {
        let expected = r#"{"a":[1.50,{"b/c":{"~":12345678901234567890123}}],"s":"x \" y"}"#;
        assert_eq!(compact(TEXT).unwrap(), expected);
        assert_eq!(compact("{\"a\":"), None);
        assert_eq!(compact(&"[".repeat(100_000)), None);
    }

    #[test]
    fn pointers_select_values_as_written() {
        assert_eq!(select(TEXT, "/a/1/b~1c/~0"), Some("12345678901234567890123"));
        assert_eq!(select(TEXT, "/a/0"), Some("1.50"));
        assert_eq!(select(TEXT, "").map(str::len), Some(TEXT.trim().len()));
        for missing in ["/b", "/a/2", "/a/x", "/s/0", "/a/0/0"] {
            assert_eq!(select(TEXT, missing), None, "{missing}");
        }
    }

    #[test]
    fn items_of_arrays_are_counted() {
        assert_eq!(count("[1,[2],{}]"), Some(3));
        assert_eq!(count("{}"), None);
    }
}
