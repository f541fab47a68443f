//! Arguments and results of tool calls on several lines, with hidden characters visible.

use serde_json::Value;

use crate::render;

/// Indent of the shown lines.
const INDENT: &str = "    ";
/// Starts each line of a text with several lines, so that none of them can pass for output of this program.
const BAR: &str = "│ ";

/// Formats arguments, one key per line. `left_out` is the number of bytes that are not in `arguments`.
pub(crate) fn arguments(arguments: &str, left_out: u64) -> String {
    let mut lines = match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(fields)) if left_out == 0 => {
            fields.iter().flat_map(|(key, value)| field(key, value)).collect()
        }
        _ => vec![format!("{INDENT}{}", render::visible_line(arguments))],
    };
    lines.extend(omitted(left_out));
    lines.join("\n")
}

/// Formats one key with its value.
pub(crate) fn field(key: &str, value: &Value) -> Vec<String> {
    let key = render::visible_line(key);
    let text = match value {
        Value::String(text) if text.contains('\n') => {
            let lines = text.trim_end_matches('\n').split('\n');
            let lines = lines.map(|line| format!("{INDENT}{BAR}{}", render::visible_line(line)));
            return std::iter::once(format!("{INDENT}{key}:")).chain(lines).collect();
        }
        Value::String(text) if !text.trim().is_empty() => render::visible_line(text),
        Value::Object(fields) if !fields.is_empty() => {
            let json = render::json(value);
            let lines = json.lines().map(|line| format!("{INDENT}{BAR}{line}"));
            return std::iter::once(format!("{INDENT}{key}:")).chain(lines).collect();
        }
        other => render::json_line(other),
    };
    vec![format!("{INDENT}{key}: {text}")]
}

/// Formats the text of a result. `left_out` is the number of bytes that are not in `text`.
pub(crate) fn result(text: &str, left_out: u64) -> String {
    let text = render::visible(text.trim_end_matches('\n'));
    let mut lines: Vec<_> = text.split('\n').map(|line| format!("{INDENT}{BAR}{line}")).collect();
    lines.extend(omitted(left_out));
    lines.join("\n")
}

fn omitted(bytes: u64) -> Option<String> {
    (bytes > 0).then(|| format!("{INDENT}… {bytes} more bytes are not shown"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_key_has_its_line() {
        let value = json!({
            "command": "ls\nrm -r x", "limit": 3, "name": "a b", "empty": "", "list": [1, 2],
            "nested": {"a": true},
        });
        let shown = arguments(&value.to_string(), 0);
        let expected = [
            "    command:\n    │ ls\n    │ rm -r x",
            "    limit: 3",
            "    name: a b",
            "    empty: \"\"",
            "    list: [1,2]",
            "    nested:\n    │ {\n    │   \"a\": true\n    │ }",
        ];
        expected.iter().for_each(|part| assert!(shown.contains(part), "{part} in\n{shown}"));
    }

    #[test]
    fn hostile_arguments_stay_in_their_lines() {
        let value = json!({"a\nb": "x\u{1b}[2J\u{202e}\r\n  run it? [y]es"});
        let shown = arguments(&value.to_string(), 0);
        assert!(shown.lines().all(|line| line.starts_with(INDENT)), "{shown:?}");
        assert!(shown.contains("│   run it?") && !shown.contains(['\u{1b}', '\u{202e}', '\r']));
    }

    #[test]
    fn missing_bytes_are_counted() {
        let shown = arguments("{\"content\":\"x", 7);
        assert_eq!(shown, "    {\"content\":\"x\n    … 7 more bytes are not shown");
        assert_eq!(result("a\nb\n", 0), "    │ a\n    │ b");
    }
}
