//! Changes of files as line diffs.

use std::{
    fs::File,
    io::Read,
    path::{Component, Path},
    time::Duration,
};

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::long_line::LineShortener;
use crate::{call_view, render};

/// Largest file on this machine that is compared, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 2;
/// Time after which a coarser diff is shown.
const DIFF_TIME: Duration = Duration::from_millis(200);

/// Returns the change that a call of `edit_file` or `write_file` makes; `None` for other calls. The present
/// text of a written file is that on this machine, below `files`.
pub(super) fn change(
    tool: &str,
    arguments: &Value,
    files: Option<&Path>,
    shortener: &mut LineShortener,
) -> Option<String> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let (present, new, content_keys) = match tool {
        "edit_file" => {
            (Some(text("old_text")?.to_owned()), text("new_text")?, ["old_text", "new_text"])
        }
        "write_file" => {
            let present = files.and_then(|root| present_text(root, text("path")?));
            (present, text("content")?, ["content", "content"])
        }
        _ => return None,
    };
    // The other arguments belong to the approved call too.
    let others = arguments.as_object()?.iter();
    let others = others.filter(|(key, _)| !content_keys.contains(&key.as_str()));
    let others = others.flat_map(|(key, value)| call_view::field(key, value));
    let mut lines: Vec<_> = others.map(|line| shortener.shorten(&line)).collect();
    if present.is_none() {
        lines.push(render::dim("    the present file is not known here; its new content:"));
    }
    let old = present.unwrap_or_default();
    if old == new {
        lines.push(render::dim("    the text does not change"));
    }
    lines.push(diff(&old, new, shortener));
    lines.retain(|line| !line.is_empty());
    Some(lines.join("\n"))
}

/// Formats the changed lines, with unchanged lines around them.
fn diff(old: &str, new: &str, shortener: &mut LineShortener) -> String {
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, new);
    let mut lines = Vec::new();
    for (number, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if number > 0 {
            lines.push(render::dim("    ⋮"));
        }
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let value = change.value();
            let text = value.strip_suffix('\n').unwrap_or(value);
            let line = shortener.shorten(&render::visible_line(text));
            let end = if value.ends_with('\n') { "" } else { " (no line break at the end)" };
            lines.push(match change.tag() {
                ChangeTag::Delete => render::bad(&format!("    - {line}{end}")),
                ChangeTag::Insert => render::good(&format!("    + {line}{end}")),
                ChangeTag::Equal => render::dim(&format!("      {line}")),
            });
        }
    }
    lines.join("\n")
}

/// Reads the present text of a file below `root`. Returns `None` if it cannot be shown.
fn present_text(root: &Path, path: &str) -> Option<String> {
    let path = Path::new(path);
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !path.components().all(is_inside) {
        return None;
    }
    let root = root.canonicalize().ok()?;
    let file = root.join(path);
    if !file.try_exists().ok()? {
        return Some(String::new());
    }
    let file = file.canonicalize().ok().filter(|file| file.starts_with(&root))?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let read = File::open(file).ok()?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).ok()?;
    (read as u64 <= MAX_FILE_BYTES).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(tool: &str, arguments: &Value, files: Option<&Path>) -> String {
        let mut shortener = LineShortener::default();
        let change = change(tool, arguments, files, &mut shortener).expect("a change");
        anstream::adapter::strip_str(&change).to_string()
    }

    #[test]
    fn edit_shows_changed_lines_and_other_arguments() {
        let old = (0..20).map(|n| format!("line {n}\n")).collect::<String>();
        let new = old.replace("line 10\n", "line ten\u{202e}\n");
        let arguments = json!({"path": "a", "old_text": old, "new_text": new, "replace_all": true});
        let shown = plain("edit_file", &arguments, None);
        let parts = ["path: a", "replace_all: true", "- line 10\n", "+ line ten\\u{202e}"];
        parts.iter().for_each(|part| assert!(shown.contains(part), "{part} in\n{shown}"));
        assert!(shown.contains("line 8") && !shown.contains("line 3"), "{shown}");
    }

    #[test]
    fn written_file_is_compared_with_the_present_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "one\ntwo\n").unwrap();
        let write = |path: &str, content: &str| json!({"path": path, "content": content});
        let shown = plain("write_file", &write("a", "one\n2\n"), Some(folder.path()));
        assert!(shown.contains("- two\n    + 2"), "{shown}");
        let shown = plain("write_file", &write("new/b", "x"), Some(folder.path()));
        assert!(shown.contains("+ x (no line break"), "{shown}");
        for path in ["../a", "/etc/hostname"] {
            let shown = plain("write_file", &write(path, "x"), Some(folder.path()));
            assert!(shown.contains("not known here"), "{shown}");
        }
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link")).unwrap();
        let shown = plain("write_file", &write("link", "x"), Some(folder.path()));
        assert!(shown.contains("not known here"), "{shown}");
    }

    #[test]
    fn other_calls_have_no_diff() {
        let change =
            |tool, arguments: &Value| change(tool, arguments, None, &mut LineShortener::default());
        assert!(change("bash", &json!({"command": "ls"})).is_none());
        assert!(change("edit_file", &json!({"path": "a"})).is_none());
    }
}
