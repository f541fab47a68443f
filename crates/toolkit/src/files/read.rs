//! `read_file`: reads a text file or a page of it, or an image.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    sync::Arc,
};

use rockbot_tools::{
    Executed, ToolFailure, ToolHints, ToolResult,
    images::{image_block, image_type, max_image_bytes},
};
use serde::Deserialize;
use serde_json::json;

use super::{
    config::FilesConfig,
    definition,
    file_tool::FileTool,
    path::RelativePath,
    root::{Root, access_failure},
    stop::StopCondition,
};

const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

pub(super) fn read_file(root: Arc<Root>, config: &FilesConfig) -> FileTool<Arguments, usize> {
    let description = format!(
        "Read a text file, or look at an image. Returns the unchanged text without line numbers, at most \
         {} bytes per call; if there is more, the last line, in brackets, gives the offset of the next \
         page. Images are PNG, JPEG, GIF and WebP files of at most {} bytes. Other binary files are \
         rejected.",
        config.max_read_bytes,
        max_image_bytes(config.max_read_bytes)
    );
    let properties = json!({
        "path": {"type": "string", "description": "Path relative to the root of the files."},
        "offset": {
            "type": "integer", "minimum": 1,
            "description": "First line to return; 1 is the first of the file. Default 1.",
        },
        "limit": {
            "type": "integer", "minimum": 1,
            "description": "Maximum number of lines to return. Default: as many as fit.",
        },
    });
    let registration = definition::registration(
        "read_file",
        "Read a file",
        &description,
        &properties,
        &["path"],
        ToolHints::READ_ONLY,
    );
    FileTool { registration, root, limit: config.max_read_bytes, run: read }
}

fn read(
    root: &Root,
    arguments: &Arguments,
    max_bytes: usize,
    stop: &StopCondition,
) -> Result<ToolResult, ToolFailure> {
    let path = RelativePath::parse(&arguments.path)?;
    let first = arguments.offset.unwrap_or(1).max(1);
    let limit = arguments.limit.unwrap_or(u64::MAX).max(1);
    let file = root.open_file(&path)?;
    let failed = |error| access_failure(&path, error);
    let size = file.metadata().map_err(failed)?.len();
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let start = reader.fill_buf().map_err(failed)?;
    if image_type(start).is_some() {
        return image(&path, reader, size, max_bytes);
    }
    if start.contains(&0) {
        return Err(binary(&path, size));
    }
    let skipped = skip_lines(&mut reader, first - 1, stop, &path)?;
    if first > 1 && (skipped < first - 1 || at_end(&mut reader).map_err(failed)?) {
        return Err(ToolFailure::failed(format!(
            "{path} has {skipped} lines; offset {first} is past its end"
        )));
    }
    let page = take_page(&mut reader, limit, max_bytes, stop, &path)?;
    if page.text.contains(&0) {
        return Err(binary(&path, size));
    }
    Ok(to_result(&path, page, first, size, max_bytes))
}

fn binary(path: &RelativePath, size: u64) -> ToolFailure {
    ToolFailure::failed(format!("{path} is a binary file of {size} bytes, not text"))
}

/// Returns an image, whose block has at most `max_bytes` bytes.
fn image(
    path: &RelativePath,
    mut reader: BufReader<fs::File>,
    size: u64,
    max_bytes: usize,
) -> Result<ToolResult, ToolFailure> {
    let limit = max_image_bytes(max_bytes);
    let mut bytes = Vec::new();
    // One more byte than may be shown: the file may grow.
    let read = reader.by_ref().take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| access_failure(path, error))?;
    if bytes.len() > limit {
        return Err(ToolFailure::failed(format!(
            "{path} is an image of {size} bytes, and at most {limit} can be shown; make a smaller copy of it"
        )));
    }
    let block = image_block(&bytes).ok_or_else(|| binary(path, size))?;
    let details = json!({"path": path.to_string(), "size": bytes.len()});
    Ok(ToolResult { content: vec![block], ..ToolResult::default() }.with_details(details))
}

/// A page of complete lines, or a part of the first line if that does not fit.
struct Page {
    text: Vec<u8>,
    lines: u64,
    /// `true` if the file continues after the page.
    more: bool,
    /// `true` if the only line is truncated.
    line_truncated: bool,
}

/// Skips up to `count` lines and returns the number of skipped ones, including a last line without a
/// line break.
fn skip_lines(
    reader: &mut BufReader<fs::File>,
    count: u64,
    stop: &StopCondition,
    path: &RelativePath,
) -> Result<u64, ToolFailure> {
    let (mut lines, mut in_line) = (0, false);
    while lines < count {
        stop.check(Executed::Yes)?;
        let buffer = reader.fill_buf().map_err(|error| access_failure(path, error))?;
        if buffer.is_empty() {
            return Ok(lines + u64::from(in_line));
        }
        let used = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                (lines, in_line) = (lines + 1, false);
                end + 1
            }
            None => {
                in_line = true;
                buffer.len()
            }
        };
        reader.consume(used);
    }
    Ok(lines)
}

fn take_page(
    reader: &mut BufReader<fs::File>,
    limit: u64,
    max_bytes: usize,
    stop: &StopCondition,
    path: &RelativePath,
) -> Result<Page, ToolFailure> {
    let mut page = Page { text: Vec::new(), lines: 0, more: false, line_truncated: false };
    let mut whole_lines_end = 0;
    while page.lines < limit {
        stop.check(Executed::Yes)?;
        let buffer = reader.fill_buf().map_err(|error| access_failure(path, error))?;
        if buffer.is_empty() {
            page.lines += u64::from(page.text.len() > whole_lines_end);
            return Ok(page);
        }
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let piece = &buffer[..newline.map_or(buffer.len(), |end| end + 1)];
        let remaining = max_bytes - page.text.len();
        if piece.len() > remaining {
            page.more = true;
            page.line_truncated = whole_lines_end == 0;
            if page.line_truncated {
                page.text.extend_from_slice(&piece[..remaining]);
                page.lines = 1;
                drop_partial_character(&mut page.text);
            } else {
                page.text.truncate(whole_lines_end);
            }
            return Ok(page);
        }
        page.text.extend_from_slice(piece);
        let used = piece.len();
        if newline.is_some() {
            page.lines += 1;
            whole_lines_end = page.text.len();
        }
        reader.consume(used);
    }
    page.more = !at_end(reader).map_err(|error| access_failure(path, error))?;
    Ok(page)
}

fn at_end(reader: &mut impl BufRead) -> io::Result<bool> {
    Ok(reader.fill_buf()?.is_empty())
}

fn drop_partial_character(text: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(text)
        && error.error_len().is_none()
    {
        text.truncate(error.valid_up_to());
    }
}

/// Replaces invalid UTF-8 and drops the last lines that then exceed the limit. Returns `true` if the text
/// was valid.
fn decode(page: &mut Page, max_bytes: usize) -> (String, bool) {
    let invalid = match String::from_utf8(std::mem::take(&mut page.text)) {
        Ok(text) => return (text, true),
        Err(error) => error.into_bytes(),
    };
    let mut text = String::from_utf8_lossy(&invalid).into_owned();
    if text.len() > max_bytes {
        let end = text.floor_char_boundary(max_bytes);
        let whole_lines = text[..end].rfind('\n').map(|newline| newline + 1);
        page.more = true;
        page.line_truncated = whole_lines.is_none();
        text.truncate(whole_lines.unwrap_or(end));
        page.lines = text.matches('\n').count().max(1) as u64;
    }
    (text, false)
}

fn to_result(
    path: &RelativePath,
    mut page: Page,
    first: u64,
    size: u64,
    max_bytes: usize,
) -> ToolResult {
    let is_empty = size == 0 && page.text.is_empty();
    let (mut text, valid) = decode(&mut page, max_bytes);
    let last = first + page.lines.saturating_sub(1);
    let details = json!({
        "path": path.to_string(),
        "size": size,
        "firstLine": first,
        "lines": page.lines,
        "truncated": page.more,
    });
    if is_empty {
        return ToolResult::text("[the file is empty]").with_details(details);
    }
    let mut notes = Vec::new();
    if page.line_truncated {
        notes.push(format!(
            "line {first} is too long and is truncated; continue with offset {}",
            first + 1
        ));
    } else if page.more {
        notes.push(format!(
            "lines {first} to {last} of a file of {size} bytes; continue with offset {}",
            last + 1
        ));
    }
    if !valid {
        notes.push("the file is not valid UTF-8; invalid bytes are shown as \u{fffd}".to_owned());
    }
    for note in notes {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[{note}]\n"));
    }
    ToolResult::text(text).with_details(details)
}
