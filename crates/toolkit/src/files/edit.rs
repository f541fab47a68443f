//! `edit_file`: replaces exact text in a file.

use std::{io::Read, sync::Arc};

use rockbot_tools::{Executed, ToolFailure, ToolResult};
use serde::Deserialize;
use serde_json::json;

use super::{
    atomic::Target,
    config::FilesConfig,
    definition,
    file_tool::FileTool,
    path::RelativePath,
    root::{Root, access_failure},
    stop::StopCondition,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: String,
    old_text: String,
    new_text: String,
    #[serde(default)]
    replace_all: bool,
}

pub(super) fn edit_file(root: Arc<Root>, config: &FilesConfig) -> FileTool<Arguments, usize> {
    let properties = json!({
        "path": {"type": "string", "description": "Path relative to the root of the files."},
        "old_text": {
            "type": "string", "minLength": 1,
            "description": "The text to replace, exactly as in the file, including \
                indentation, with enough surrounding lines to be unique.",
        },
        "new_text": {"type": "string", "description": "The replacement text."},
        "replace_all": {
            "type": "boolean",
            "description": "Replace every occurrence. Default false: the text must occur \
                exactly once.",
        },
    });
    let registration = definition::registration(
        "edit_file",
        "Edit a file",
        "Replace text in a file. old_text must match exactly and occur exactly once, unless \
         replace_all is set. The rest of the file and its line endings are not changed. Read \
         the file first.",
        &properties,
        &["path", "old_text", "new_text"],
        definition::changes_files(false),
    );
    FileTool { registration, root, limit: config.max_write_bytes, run: edit }
}

fn edit(
    root: &Root,
    arguments: &Arguments,
    max_bytes: usize,
    stop: &StopCondition,
) -> Result<ToolResult, ToolFailure> {
    let path = RelativePath::parse(&arguments.path)?;
    let _lock = root.lock_writes();
    stop.check(Executed::No)?;
    let text = load(root, &path, max_bytes)?;
    let edited = replace(&text, arguments, max_bytes, &path)?;
    let target = Target::prepare(root, &path)?;
    target.replace(&path, edited.text.as_bytes(), stop)?;
    let Edited { text, count, line } = edited;
    let details =
        json!({"path": path.to_string(), "bytes": text.len(), "replacements": count, "line": line});
    let message = if count == 1 {
        format!("replaced 1 occurrence in {path}, at line {line}")
    } else {
        format!("replaced {count} occurrences in {path}, the first at line {line}")
    };
    Ok(ToolResult::text(message).with_details(details))
}

fn load(root: &Root, path: &RelativePath, max_bytes: usize) -> Result<String, ToolFailure> {
    let file = root.open_file(path)?;
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| access_failure(path, error))?;
    if bytes.len() > max_bytes {
        return Err(too_large(path, max_bytes));
    }
    String::from_utf8(bytes).map_err(|error| {
        let message = format!("{path} is not UTF-8 text and cannot be edited with this tool");
        ToolFailure::failed_with_source(message, error.utf8_error())
    })
}

fn too_large(path: &RelativePath, max_bytes: usize) -> ToolFailure {
    ToolFailure::failed(format!("{path} exceeds, or would exceed, the limit of {max_bytes} bytes"))
}

#[derive(Debug)]
struct Edited {
    text: String,
    count: usize,
    line: usize,
}

fn replace(
    text: &str,
    arguments: &Arguments,
    max_bytes: usize,
    path: &RelativePath,
) -> Result<Edited, ToolFailure> {
    let (mut old, mut new) = (arguments.old_text.clone(), arguments.new_text.clone());
    if old.is_empty() {
        return Err(ToolFailure::invalid("old_text is empty; use write_file for a new file"));
    }
    if old == new {
        return Err(ToolFailure::invalid("old_text and new_text are the same"));
    }
    if has_only_crlf(text) {
        (old, new) = (to_crlf(&old), to_crlf(&new));
    }
    let Some(first) = text.find(&old) else {
        return Err(ToolFailure::failed(format!(
            "old_text does not occur in {path}; read the file and copy the text exactly, with its \
             spaces and line breaks"
        )));
    };
    if !arguments.replace_all && text.rfind(&old) != Some(first) {
        let count = occurrences(text, &old);
        return Err(ToolFailure::failed(format!(
            "old_text occurs {count} times in {path}; add surrounding lines until it is unique, \
             or set replace_all"
        )));
    }
    let count = text.matches(&old).count();
    let grown = new.len().saturating_sub(old.len()).saturating_mul(count);
    let shrunk = old.len().saturating_sub(new.len()).saturating_mul(count);
    if text.len().saturating_add(grown).saturating_sub(shrunk) > max_bytes {
        return Err(too_large(path, max_bytes));
    }
    let line = text[..first].matches('\n').count() + 1;
    Ok(Edited { text: text.replace(&old, &new), count, line })
}

/// Counts occurrences, including overlapping ones, which are ambiguous as well.
fn occurrences(text: &str, wanted: &str) -> usize {
    let step = wanted.chars().next().map_or(1, char::len_utf8);
    let (mut count, mut from) = (0, 0);
    while let Some(at) = text[from..].find(wanted) {
        count += 1;
        from += at + step;
    }
    count
}

/// Returns whether every line ends with CRLF. Models write line feeds, which mean CRLF in such a file.
fn has_only_crlf(text: &str) -> bool {
    let breaks = text.matches('\n').count();
    breaks > 0 && breaks == text.matches("\r\n").count()
}

fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, old: &str, new: &str, replace_all: bool) -> Result<String, String> {
        let path = RelativePath::parse("x").unwrap();
        let arguments = Arguments {
            path: "x".to_owned(),
            old_text: old.to_owned(),
            new_text: new.to_owned(),
            replace_all,
        };
        replace(text, &arguments, 100, &path)
            .map(|edited| edited.text)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn single_occurrence_is_replaced() {
        assert_eq!(check("one two", "two", "three", false).unwrap(), "one three");
        assert!(check("one two", "four", "x", false).unwrap_err().contains("does not occur"));
        assert!(check("a b a b a", "a", "x", false).unwrap_err().contains("3 times"));
        assert_eq!(check("a b a", "a", "x", true).unwrap(), "x b x");
    }

    #[test]
    fn overlapping_occurrences_are_ambiguous() {
        assert!(check("äää", "ää", "x", false).unwrap_err().contains("2 times"));
    }

    #[test]
    fn line_endings_are_preserved() {
        let edited = check("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", false).unwrap();
        assert_eq!(edited, "x\r\ny\r\nc\r\n");
        assert_eq!(check("a\r\nb\nc\n", "b\n", "x\n", false).unwrap(), "a\r\nx\nc\n");
    }

    #[test]
    fn edit_respects_size_limit() {
        let failure = check(&"a".repeat(90), "a", "0123456789", true).unwrap_err();
        assert!(failure.contains("limit of 100 bytes"), "{failure}");
    }
}
