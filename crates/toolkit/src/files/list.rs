//! `list_files`: lists a directory.

use std::{fmt::Write, sync::Arc};

use rockbot_tools::{ToolFailure, ToolHints, ToolResult};
use serde::Deserialize;
use serde_json::json;

use super::{
    config::FilesConfig,
    definition,
    file_tool::FileTool,
    path::{RelativePath, escaped},
    root::{Root, access_failure},
    stop::StopCondition,
    walk::{Entry, Flow, Kind, Walk},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    entries: usize,
    bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: Option<String>,
    #[serde(default)]
    recursive: bool,
    pattern: Option<String>,
}

pub(super) fn list_files(root: Arc<Root>, config: &FilesConfig) -> FileTool<Arguments, Limits> {
    let description = format!(
        "List a directory in sorted order, at most {} entries. Directories end with /, files \
         have their size. Entries hidden by .gitignore are omitted; symbolic links are shown \
         but not followed.",
        config.max_entries
    );
    let properties = json!({
        "path": {
            "type": "string",
            "description": "Directory, relative to the root of the files. Default: the root.",
        },
        "recursive": {
            "type": "boolean",
            "description": "Include subdirectories. Default false.",
        },
        "pattern": {
            "type": "string", "maxLength": 1024,
            "description": "Only entries that match this glob, such as `*.rs` (at any depth) or \
                `/src/**/*.rs` (from the root).",
        },
    });
    let registration = definition::registration(
        "list_files",
        "List files",
        &description,
        &properties,
        &[],
        ToolHints::READ_ONLY,
    );
    let limit = Limits { entries: config.max_entries, bytes: config.max_output_bytes };
    FileTool { registration, root, limit, run: list }
}

fn list(
    root: &Root,
    arguments: &Arguments,
    limits: Limits,
    stop: &StopCondition,
) -> Result<ToolResult, ToolFailure> {
    let path = RelativePath::parse(arguments.path.as_deref().unwrap_or("."))?;
    let metadata =
        root.dir().metadata(path.as_path()).map_err(|error| access_failure(&path, error))?;
    if !metadata.is_dir() {
        return Err(ToolFailure::failed(format!("{path} is not a directory")));
    }
    let mut walk = Walk::new(stop, arguments.pattern.as_deref())?;
    walk.recursive = arguments.recursive;
    let (mut text, mut count, mut truncated) = (String::new(), 0, false);
    walk.run(root, &path, &mut |entry| {
        let line = describe(entry);
        if count == limits.entries || text.len() + line.len() > limits.bytes {
            truncated = true;
            return Ok(Flow::End);
        }
        count += 1;
        text.push_str(&line);
        Ok(Flow::Continue)
    })?;
    if count == 0 && !truncated {
        let note = if arguments.pattern.is_some() { "no entry matches" } else { "empty directory" };
        let _ = writeln!(text, "[{note}]");
    }
    if truncated {
        let _ = writeln!(
            text,
            "[only the first {count} entries; narrow the listing with path or pattern]"
        );
    }
    if walk.incomplete_directories > 0 {
        let _ =
            writeln!(text, "[directories not read completely: {}]", walk.incomplete_directories);
    }
    let details = json!({"path": path.to_string(), "entries": count, "truncated": truncated});
    Ok(ToolResult::text(text).with_details(details))
}

fn describe(entry: Entry<'_>) -> String {
    let path = escaped(entry.path);
    match entry.kind {
        Kind::Directory => format!("{path}/\n"),
        Kind::Symlink => format!("{path} (symbolic link)\n"),
        Kind::Special => format!("{path} (special file)\n"),
        Kind::File => match entry.parent.symlink_metadata(entry.name) {
            Ok(metadata) => format!("{path} ({} bytes)\n", metadata.len()),
            Err(_) => format!("{path}\n"),
        },
    }
}
