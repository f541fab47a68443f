//! `list_files`: what is in a directory.

use std::{fmt::Write, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    config::FilesConfig,
    definition,
    path::{RelativePath, shown},
    root::{Root, refused},
    stop::{Stop, off_runtime},
    walk::{Entry, Flow, Kind, Walk},
};

#[derive(Debug)]
pub(super) struct ListFiles {
    registration: ToolRegistration,
    root: Arc<Root>,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    entries: usize,
    bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: Option<String>,
    #[serde(default)]
    recursive: bool,
    pattern: Option<String>,
}

impl ListFiles {
    pub(super) fn new(root: Arc<Root>, config: &FilesConfig) -> Self {
        let description = format!(
            "List a directory, sorted, at most {} entries: directories end with /, files have \
             their size. What .gitignore hides is left out; symbolic links are shown and not \
             followed.",
            config.max_entries
        );
        let properties = json!({
            "path": {
                "type": "string",
                "description": "Directory, relative to the root of the files. Default: the root.",
            },
            "recursive": {
                "type": "boolean",
                "description": "List what is in the directories below as well. Default false.",
            },
            "pattern": {
                "type": "string", "maxLength": 1024,
                "description": "Only what matches this glob, such as `*.rs` (at any depth) or \
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
        let limits = Limits { entries: config.max_entries, bytes: config.max_output_bytes };
        Self { registration, root, limits }
    }
}

impl Tool for ListFiles {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let arguments: Arguments = definition::arguments(arguments)?;
            let (root, limits) = (Arc::clone(&self.root), self.limits);
            off_runtime(context, move |stop| list(&root, &arguments, limits, stop)).await
        })
    }
}

fn list(
    root: &Root,
    arguments: &Arguments,
    limits: Limits,
    stop: &Stop,
) -> Result<ToolResult, ToolFailure> {
    let path = RelativePath::parse(arguments.path.as_deref().unwrap_or("."))?;
    let metadata = root.dir().metadata(path.as_path()).map_err(|error| refused(&path, error))?;
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
        let what = if arguments.pattern.is_some() { "matches" } else { "is here" };
        let _ = writeln!(text, "[nothing {what}]");
    }
    if truncated {
        let _ =
            writeln!(text, "[only the first {count} entries; narrow it down with path or pattern]");
    }
    if walk.unread > 0 {
        let _ = writeln!(text, "[directories not read in full: {}]", walk.unread);
    }
    let details = json!({"path": path.to_string(), "entries": count, "truncated": truncated});
    Ok(ToolResult::text(text).with_details(details))
}

fn describe(entry: Entry<'_>) -> String {
    let path = shown(entry.path);
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
