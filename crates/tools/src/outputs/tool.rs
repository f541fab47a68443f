//! `tool_output`: reading of stored outputs by models.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    TOOL_OUTPUT,
    error::OutputError,
    grep::Search,
    pointer::value_at,
    storage::Outputs,
    stored_output::{Position, StoredOutput},
};
use crate::{
    chunk::newlines,
    context::ToolContext,
    failure::ToolFailure,
    outline::{Outline, truncate},
    result::ToolResult,
    tool::{Tool, parse_arguments},
};

/// Default number of lines of `head`, `tail` and `lines`.
const LINES: usize = 100;
/// Maximum number of context lines around a match.
const CONTEXT: usize = 10;
/// Maximum length of a pattern, in characters.
const PATTERN_CHARS: usize = 1000;
/// Size reserved for the header, in bytes.
const HEADER_BYTES: usize = 256;

/// Reads the outputs of the conversation that it is called in.
pub struct ToolOutput {
    registration: ToolRegistration,
    outputs: Arc<Outputs>,
}

#[derive(Debug, Clone, Deserialize)]
struct Arguments {
    handle: String,
    #[serde(flatten)]
    mode: Mode,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
enum Mode {
    Outline,
    Head {
        count: Option<usize>,
    },
    Tail {
        count: Option<usize>,
    },
    Lines {
        from: usize,
        count: Option<usize>,
    },
    Range {
        from: usize,
        count: Option<usize>,
        #[serde(default)]
        unit: Unit,
    },
    Grep {
        pattern: String,
        #[serde(default)]
        ignore_case: bool,
        #[serde(default)]
        context: usize,
        #[serde(default)]
        skip: usize,
    },
    JsonPointer {
        pointer: String,
    },
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    #[default]
    Chars,
    Bytes,
}

impl ToolOutput {
    /// Creates a tool that reads from `outputs`.
    #[must_use]
    pub fn new(outputs: Arc<Outputs>) -> Self {
        let count = "Number of items; for lines the default is 100, otherwise as many as fit.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "Handle from the result."},
                "mode": {"type": "string",
                    "enum": ["outline", "head", "tail", "lines", "range", "grep", "json_pointer"]},
                "from": {"type": "integer", "minimum": 0, "description":
                    "lines: the first line, from 1. range: the first character or byte, from 0."},
                "count": {"type": "integer", "minimum": 1, "description": count},
                "unit": {"type": "string", "enum": ["chars", "bytes"],
                    "description": "range: unit of from and count; default chars."},
                "pattern": {"type": "string", "minLength": 1, "maxLength": PATTERN_CHARS,
                    "description": "grep: a regular expression, matched line by line."},
                "ignore_case": {"type": "boolean", "description": "grep"},
                "context": {"type": "integer", "minimum": 0, "maximum": CONTEXT,
                    "description": "grep: lines shown before and after a match; default 0."},
                "skip": {"type": "integer", "minimum": 0,
                    "description": "grep: number of matches to skip, those already seen."},
                "pointer": {"type": "string",
                    "description": "json_pointer: such as /items/0/name; empty for the whole."},
            },
            "required": ["handle", "mode"],
            "additionalProperties": false,
        });
        let registration = ToolRegistration {
            name: TOOL_OUTPUT.to_owned(),
            label: Some("Read a large output".to_owned()),
            description: format!(
                "Read parts of a tool result that was too large to be shown and has a handle: by \
                 lines, by range, by a search (grep), by a JSON pointer, or its outline. A response \
                 has at most {} bytes and says how to continue.",
                outputs.response_bytes()
            ),
            tool_description: None,
            parameters,
            source: ToolSource::Internal,
            hints: ToolHints::READ_ONLY,
            timeout_ms: None,
        };
        Self { registration, outputs }
    }

    async fn read(&self, arguments: Arguments, context: &ToolContext) -> Result<String, ReadError> {
        let Arguments { handle, mode } = arguments;
        let output = self.outputs.open(context, &handle).await?.ok_or(ReadError::Gone)?;
        let max_bytes = self.outputs.response_bytes() - HEADER_BYTES;
        match mode {
            Mode::Outline => Ok(output.record.outline),
            Mode::Head { count } => lines(&output, 0, count, max_bytes).await,
            Mode::Tail { count } => tail(&output, count.unwrap_or(LINES).max(1), max_bytes).await,
            Mode::Lines { from, count } => {
                lines(&output, from.saturating_sub(1), count, max_bytes).await
            }
            Mode::Range { from, count, unit } => range(&output, from, count, unit, max_bytes).await,
            Mode::Grep { pattern, ignore_case, context, skip } => {
                let context = context.min(CONTEXT);
                let search = Search::new(&pattern, ignore_case, context, skip, max_bytes);
                grep(&output, search.map_err(ReadError::Arguments)?).await
            }
            Mode::JsonPointer { pointer } => {
                // Held until the text is dropped.
                let _permit =
                    self.outputs.load_permits.acquire().await.map_err(|_| ReadError::Gone)?;
                let text = output.load().await?.ok_or(ReadError::Gone)?;
                spawn_blocking(move || json_value(&text, &pointer, max_bytes))
                    .await
                    .map_err(|error| OutputError::Unusable(error.to_string()))?
                    .map_err(ReadError::Arguments)
            }
        }
    }
}

/// Reason why an output cannot be read.
enum ReadError {
    /// Unknown, expired, or owned by another conversation. The model cannot tell which.
    Gone,
    Arguments(String),
    Store(OutputError),
}

impl From<OutputError> for ReadError {
    fn from(error: OutputError) -> Self {
        Self::Store(error)
    }
}

impl ReadError {
    fn into_failure(self) -> ToolFailure {
        match self {
            Self::Gone => ToolFailure::failed(
                "no such output: outputs expire, and belong to one conversation; call the tool again \
                 that made it",
            ),
            Self::Arguments(message) => ToolFailure::invalid(message),
            Self::Store(error) => {
                ToolFailure::failed_with_source("the output cannot be read; try again", error)
            }
        }
    }
}

impl Tool for ToolOutput {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let arguments = parse_arguments(arguments)?;
            // A read makes several sequential requests, each bounded by the store's timeout. Even a whole
            // output has only a limited number of pieces.
            let within = (self.outputs.store_timeout() * 4).min(context.remaining());
            let read = timeout(within, self.read(arguments, context)).await;
            let read = read.unwrap_or(Err(OutputError::Slow(within).into()));
            read.map(ToolResult::text).map_err(ReadError::into_failure)
        })
    }
}

/// Returns whole lines starting at line `from`, counted from 0, as many as fit, or the beginning of a
/// line that does not fit.
async fn lines(
    output: &StoredOutput,
    from: usize,
    count: Option<usize>,
    max_bytes: usize,
) -> Result<String, ReadError> {
    let all = output.record.lines();
    let read = output.text(Position::Line(from), max_bytes).await?.ok_or(ReadError::Gone)?;
    let count = count.unwrap_or(LINES).min(all.saturating_sub(from));
    let end = read.match_indices('\n').nth(count.saturating_sub(1)).map(|(at, _)| at + 1);
    let mut text = if count == 0 { "" } else { &read[..end.unwrap_or(read.len())] };
    let is_truncated = end.is_none() && read.len() + 4 > max_bytes;
    if is_truncated && let Some(last) = text.rfind('\n') {
        text = &text[..=last];
    }
    let shown = newlines(text) + usize::from(!text.is_empty() && !text.ends_with('\n'));
    let header = match shown {
        0 => format!("[no line {} in {all} lines]", from + 1),
        _ => format!("[lines {} to {} of {all}", from + 1, from + shown),
    };
    let rest = match from + shown {
        _ if shown == 0 => "",
        _ if is_truncated && !text.contains('\n') => {
            "; the line is longer: read it with mode range]"
        }
        next if next < all => &format!("; continue with from = {}]", next + 1),
        _ => "; the end]",
    };
    Ok(format!("{header}{rest}\n{text}"))
}

/// Returns the last lines, as many whole ones as fit, or the end of the last line if it does not fit.
async fn tail(output: &StoredOutput, count: usize, max_bytes: usize) -> Result<String, ReadError> {
    let (all, bytes) = (output.record.lines(), output.record.extent().bytes);
    let start = bytes.saturating_sub(max_bytes);
    let read = output.text(Position::Byte(start), max_bytes).await?.ok_or(ReadError::Gone)?;
    let lines = read.strip_suffix('\n').unwrap_or(&read);
    let after_newline = |line_end: usize| line_end + 1;
    let last = lines.rmatch_indices('\n').nth(count - 1).map(|(at, _)| after_newline(at));
    // If the preceding text is missing, the first line may be incomplete.
    let first_whole = if start == 0 { Some(0) } else { lines.find('\n').map(after_newline) };
    let text = &read[last.or(first_whole).unwrap_or(0)..];
    if text.is_empty() {
        return Ok("[no line in 0 lines]\n".to_owned());
    }
    let from = all - newlines(text) + usize::from(text.ends_with('\n'));
    let rest = match last.or(first_whole) {
        None => "; the line is longer: read it with mode range]",
        _ if last.is_none() && start > 0 => "; the end; use mode lines for earlier lines]",
        _ => "; the end]",
    };
    Ok(format!("[lines {from} to {all} of {all}{rest}\n{text}"))
}

/// Returns characters or bytes starting at `from`, as many as fit.
async fn range(
    output: &StoredOutput,
    from: usize,
    count: Option<usize>,
    unit: Unit,
    max_bytes: usize,
) -> Result<String, ReadError> {
    let extent = output.record.extent();
    let count = count.unwrap_or(usize::MAX);
    let (position, all, unit_name) = match unit {
        Unit::Chars => (Position::Char(from), extent.chars, "chars"),
        Unit::Bytes => (Position::Byte(from), extent.bytes, "bytes"),
    };
    if from >= all {
        return Ok(format!("[nothing at {from}: the output has {all} {unit_name}]"));
    }
    let max_bytes = if let Unit::Bytes = unit { max_bytes.min(count.max(4)) } else { max_bytes };
    let mut text = output.text(position, max_bytes).await?.ok_or(ReadError::Gone)?;
    if let Unit::Chars = unit
        && let Some((end, _)) = text.char_indices().nth(count)
    {
        text.truncate(end);
    }
    let next = from + if let Unit::Chars = unit { text.chars().count() } else { text.len() };
    let rest = match next {
        next if next < all => format!("; continue with from = {next}"),
        _ => "; the end".to_owned(),
    };
    Ok(format!("[{unit_name} {from} to {next} of {all}{rest}]\n{text}"))
}

/// Returns the lines that match a pattern, with their numbers, as many as fit.
async fn grep(output: &StoredOutput, mut search: Search) -> Result<String, ReadError> {
    let mut line = 1;
    for (number, extent) in output.record.pieces.iter().enumerate() {
        let piece = output.piece(number).await?.ok_or(ReadError::Gone)?;
        // A search in a long text would block the runtime thread.
        search = spawn_blocking(move || search.search(&piece, line))
            .await
            .map_err(|error| OutputError::Unusable(error.to_string()))?;
        if search.is_full() {
            break;
        }
        line += extent.newlines;
    }
    Ok(search.into_output())
}

/// Returns the value at a pointer, or its outline if it is too long.
fn json_value(text: &str, pointer: &str, max_bytes: usize) -> Result<String, String> {
    let value = value_at(text, pointer)?;
    if value.len() <= max_bytes {
        return Ok(value.to_owned());
    }
    let outline = Outline::new(value, max_bytes / 2).text;
    let start = truncate(value, max_bytes.saturating_sub(outline.len() + HEADER_BYTES));
    Ok(format!(
        "[value of {} bytes too large: outline, then beginning; use a longer pointer]\n\
         {outline}\n\n{start}",
        value.len()
    ))
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_store::{Clock, MemoryStore};

    use super::*;
    use crate::outputs::OutputsSection;

    async fn read_tail(text: &str, count: usize) -> String {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let outputs = Outputs::new(store, OutputsSection::default());
        let (session, agent) = (SessionId::generate(), AgentName::new("assistant").unwrap());
        let context = ToolContext::new(TOOL_OUTPUT, session, agent);
        let handle = outputs.store(&context, text.to_owned()).await.unwrap().handle;
        let arguments = json!({"handle": handle, "mode": "tail", "count": count});
        let read = ToolOutput::new(outputs).call(arguments, &context).await.unwrap();
        read.to_text().into_owned()
    }

    #[tokio::test]
    async fn long_tail_drops_first_lines() {
        let text: String =
            (1..=2000).map(|line| format!("line {line} {}\n", "ü".repeat(50))).collect();
        let output = read_tail(&text, 1000).await;
        assert!(output.len() <= 12 * 1024);
        let (header, tail) = output.split_once('\n').unwrap();
        assert!(header.ends_with(" to 2000 of 2000; the end; use mode lines for earlier lines]"));
        let from = tail.split(' ').nth(1).unwrap();
        assert!(header.starts_with(&format!("[lines {from} to ")), "{header}");
        assert!(tail.starts_with("line ") && text.ends_with(tail));
        assert!(tail.len() > 11_000, "as many as fit");

        for text in ["one\ntwo\nthree", "one\ntwo\nthree\n"] {
            let (_, last) = text.split_once('\n').unwrap();
            assert_eq!(read_tail(text, 2).await, format!("[lines 2 to 3 of 3; the end]\n{last}"));
            assert_eq!(read_tail(text, 9).await, format!("[lines 1 to 3 of 3; the end]\n{text}"));
        }
        let output = read_tail(&format!("one\n{}end", "x".repeat(20_000)), 1).await;
        assert!(output.starts_with("[lines 2 to 2 of 2; the line is longer: "), "{output:.100}");
        assert!(output.ends_with("xend"));
    }
}
