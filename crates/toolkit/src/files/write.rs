//! `write_file`: writes a whole file.

use std::sync::Arc;

use rockbot_tools::{Executed, ToolFailure, ToolResult};
use serde::Deserialize;
use serde_json::json;

use super::{
    atomic::Target, config::FilesConfig, definition, file_tool::FileTool, path::RelativePath,
    root::Root, stop::StopCondition,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: String,
    content: String,
}

pub(super) fn write_file(root: Arc<Root>, config: &FilesConfig) -> FileTool<Arguments, usize> {
    let description = format!(
        "Write a text file of at most {} bytes. Creates missing parent directories and \
         replaces an existing file completely; use edit_file to change a part of a file.",
        config.max_write_bytes
    );
    let properties = json!({
        "path": {"type": "string", "description": "Path relative to the root of the files."},
        "content": {"type": "string", "description": "The whole content of the file."},
    });
    let registration = definition::registration(
        "write_file",
        "Write a file",
        &description,
        &properties,
        &["path", "content"],
        definition::changes_files(true),
    );
    FileTool { registration, root, limit: config.max_write_bytes, run: write }
}

fn write(
    root: &Root,
    arguments: &Arguments,
    max_bytes: usize,
    stop: &StopCondition,
) -> Result<ToolResult, ToolFailure> {
    let path = RelativePath::parse(&arguments.path)?;
    let bytes = arguments.content.len();
    if bytes > max_bytes {
        return Err(ToolFailure::invalid(format!(
            "the content has {bytes} bytes, above the limit of {max_bytes}; write a smaller file"
        )));
    }
    let _lock = root.lock_writes();
    stop.check(Executed::No)?;
    let target = Target::prepare(root, &path)?;
    target.replace(&path, arguments.content.as_bytes(), stop)?;
    let created = !target.exists();
    let verb = if created { "created" } else { "replaced" };
    let details = json!({"path": path.to_string(), "bytes": bytes, "created": created});
    Ok(ToolResult::text(format!("{verb} {path} ({bytes} bytes)")).with_details(details))
}
