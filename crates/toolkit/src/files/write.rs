//! `write_file`: a whole file at once.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_tools::{Executed, Tool, ToolContext, ToolFailure, ToolRegistration, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    atomic::Target,
    config::FilesConfig,
    definition,
    path::RelativePath,
    root::Root,
    stop::{Stop, off_runtime},
};

#[derive(Debug)]
pub(super) struct WriteFile {
    registration: ToolRegistration,
    root: Arc<Root>,
    max_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    content: String,
}

impl WriteFile {
    pub(super) fn new(root: Arc<Root>, config: &FilesConfig) -> Self {
        let description = format!(
            "Write a text file of at most {} bytes. Makes the directories that lead to it; \
             replaces the whole file if it exists, so use edit_file to change a part of one.",
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
        Self { registration, root, max_bytes: config.max_write_bytes }
    }
}

impl Tool for WriteFile {
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
            let (root, max_bytes) = (Arc::clone(&self.root), self.max_bytes);
            off_runtime(context, move |stop| write(&root, &arguments, max_bytes, stop)).await
        })
    }
}

fn write(
    root: &Root,
    arguments: &Arguments,
    max_bytes: usize,
    stop: &Stop,
) -> Result<ToolResult, ToolFailure> {
    let path = RelativePath::parse(&arguments.path)?;
    let bytes = arguments.content.len();
    if bytes > max_bytes {
        return Err(ToolFailure::invalid(format!(
            "the content has {bytes} bytes and a file may have {max_bytes}; write a smaller file"
        )));
    }
    let _alone = root.writing();
    stop.check(Executed::No)?;
    let target = Target::prepare(root, &path)?;
    target.replace(&path, arguments.content.as_bytes(), stop)?;
    let created = !target.exists();
    let what = if created { "created" } else { "replaced" };
    let details = json!({"path": path.to_string(), "bytes": bytes, "created": created});
    Ok(ToolResult::text(format!("{what} {path} ({bytes} bytes)")).with_details(details))
}
