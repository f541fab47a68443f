//! `tool_output`: how a model reads what was kept.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    TOOL_OUTPUT,
    error::KeepError,
    grep::Search,
    keep::Outputs,
    pointer::value_at,
    read::{KeptOutput, Place},
};
use crate::{
    chunk::newlines,
    context::ToolContext,
    failure::ToolFailure,
    outline::{Outline, cut},
    result::ToolResult,
    tool::Tool,
};

/// Lines of `head`, `tail` and `lines` when the model doesn't say.
const LINES: usize = 100;
/// The most context lines around a match.
const CONTEXT: usize = 10;
/// The longest pattern, in characters.
const PATTERN_CHARS: usize = 1000;
/// Room for the line about what is shown.
const HEADER_BYTES: usize = 256;

/// Reads outputs that were kept for the conversation it is called in.
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
    /// Reads what `outputs` keeps.
    #[must_use]
    pub fn new(outputs: Arc<Outputs>) -> Self {
        let count = "How many; as many as fit when absent, for lines 100.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "As the result gave it."},
                "mode": {"type": "string",
                    "enum": ["outline", "head", "tail", "lines", "range", "grep", "json_pointer"]},
                "from": {"type": "integer", "minimum": 0, "description":
                    "lines: the first line, from 1. range: the first character or byte, from 0."},
                "count": {"type": "integer", "minimum": 1, "description": count},
                "unit": {"type": "string", "enum": ["chars", "bytes"],
                    "description": "range: what is counted; chars when absent."},
                "pattern": {"type": "string", "minLength": 1, "maxLength": PATTERN_CHARS,
                    "description": "grep: a regular expression, matched line by line."},
                "ignore_case": {"type": "boolean", "description": "grep"},
                "context": {"type": "integer", "minimum": 0, "maximum": CONTEXT,
                    "description": "grep: lines shown before and after a match; 0 when absent."},
                "skip": {"type": "integer", "minimum": 0,
                    "description": "grep: matches to leave out, those seen before."},
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
                 lines, by range, by a search (grep), by a JSON pointer, or its outline. An answer \
                 has at most {} bytes, and says how to go on.",
                outputs.answer_bytes()
            ),
            tool_description: None,
            parameters,
            source: ToolSource::Internal,
            hints: ToolHints::READ_ONLY,
            timeout_ms: None,
        };
        Self { registration, outputs }
    }

    async fn read(&self, arguments: Arguments, context: &ToolContext) -> Result<String, Problem> {
        let Arguments { handle, mode } = arguments;
        let output = self.outputs.open(context, &handle).await?.ok_or(Problem::Gone)?;
        let most = self.outputs.answer_bytes() - HEADER_BYTES;
        match mode {
            Mode::Outline => Ok(output.record.outline),
            Mode::Head { count } => by_line(&output, 0, count, most).await,
            Mode::Tail { count } => tail(&output, count.unwrap_or(LINES).max(1), most).await,
            Mode::Lines { from, count } => {
                by_line(&output, from.saturating_sub(1), count, most).await
            }
            Mode::Range { from, count, unit } => range(&output, from, count, unit, most).await,
            Mode::Grep { pattern, ignore_case, context, skip } => {
                let context = context.min(CONTEXT);
                let search = Search::new(&pattern, ignore_case, context, skip, most);
                grep(&output, search.map_err(Problem::Arguments)?).await
            }
            Mode::JsonPointer { pointer } => {
                // Held until the text is gone again.
                let _room = self.outputs.whole.acquire().await.map_err(|_| Problem::Gone)?;
                let text = output.whole().await?.ok_or(Problem::Gone)?;
                spawn_blocking(move || json_value(&text, &pointer, most))
                    .await
                    .map_err(|error| KeepError::Unusable(error.to_string()))?
                    .map_err(Problem::Arguments)
            }
        }
    }
}

/// Why there is no answer.
enum Problem {
    /// Never was, is over, or is somebody else's: nobody learns which.
    Gone,
    Arguments(String),
    Store(KeepError),
}

impl From<KeepError> for Problem {
    fn from(error: KeepError) -> Self {
        Self::Store(error)
    }
}

impl Problem {
    fn into_failure(self) -> ToolFailure {
        match self {
            Self::Gone => ToolFailure::failed(
                "no such output; outputs are kept for a limited time and for one conversation: \
                 call the tool that made it again",
            ),
            Self::Arguments(message) => ToolFailure::invalid(message),
            Self::Store(error) => {
                ToolFailure::failed_with_source("the output can't be read now; try again", error)
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
            let arguments = serde_json::from_value(arguments)
                .map_err(|error| ToolFailure::invalid(error.to_string()))?;
            // One store answer after the other, each as long as a store may take; a whole output
            // is no more than so many pieces.
            let within = (self.outputs.store_timeout() * 4).min(context.remaining());
            let read = timeout(within, self.read(arguments, context)).await;
            let read = read.unwrap_or(Err(KeepError::Slow(within).into()));
            read.map(ToolResult::text).map_err(Problem::into_failure)
        })
    }
}

/// Lines from one on, counted from 0, as many whole ones as fit; the beginning of one that does not.
async fn by_line(
    output: &KeptOutput,
    from: usize,
    count: Option<usize>,
    most: usize,
) -> Result<String, Problem> {
    let all = output.record.lines();
    let read = output.text(Place::Line(from), most).await?.ok_or(Problem::Gone)?;
    let count = count.unwrap_or(LINES).min(all.saturating_sub(from));
    let end = read.match_indices('\n').nth(count.saturating_sub(1)).map(|(at, _)| at + 1);
    let mut text = if count == 0 { "" } else { &read[..end.unwrap_or(read.len())] };
    let is_cut = end.is_none() && read.len() + 4 > most;
    if is_cut && let Some(last) = text.rfind('\n') {
        text = &text[..=last];
    }
    let shown = newlines(text) + usize::from(!text.is_empty() && !text.ends_with('\n'));
    let header = match shown {
        0 => format!("[no line {} in {all} lines]", from + 1),
        _ => format!("[lines {} to {} of {all}", from + 1, from + shown),
    };
    let rest = match from + shown {
        _ if shown == 0 => "",
        _ if is_cut && !text.contains('\n') => "; the line is longer: read it with mode range]",
        next if next < all => &format!("; go on with from = {}]", next + 1),
        _ => "; the end]",
    };
    Ok(format!("{header}{rest}\n{text}"))
}

/// The last lines, as many whole ones as fit; the end of the very last one if that does not.
async fn tail(output: &KeptOutput, count: usize, most: usize) -> Result<String, Problem> {
    let (all, bytes) = (output.record.lines(), output.record.extent().bytes);
    let start = bytes.saturating_sub(most);
    let read = output.text(Place::Byte(start), most).await?.ok_or(Problem::Gone)?;
    let lines = read.strip_suffix('\n').unwrap_or(&read);
    let begins = |line_end: usize| line_end + 1;
    let last = lines.rmatch_indices('\n').nth(count - 1).map(|(at, _)| begins(at));
    // Where the text before is not there, the first line may be the end of one.
    let first_whole = if start == 0 { Some(0) } else { lines.find('\n').map(begins) };
    let text = &read[last.or(first_whole).unwrap_or(0)..];
    if text.is_empty() {
        return Ok("[no line in 0 lines]\n".to_owned());
    }
    let from = all - newlines(text) + usize::from(text.ends_with('\n'));
    let rest = match last.or(first_whole) {
        None => "; the line is longer: read it with mode range]",
        _ if last.is_none() && start > 0 => "; the end, those before with mode lines]",
        _ => "; the end]",
    };
    Ok(format!("[lines {from} to {all} of {all}{rest}\n{text}"))
}

/// Characters or bytes from one on, as many as fit.
async fn range(
    output: &KeptOutput,
    from: usize,
    count: Option<usize>,
    unit: Unit,
    most: usize,
) -> Result<String, Problem> {
    let extent = output.record.extent();
    let count = count.unwrap_or(usize::MAX);
    let (place, all, words) = match unit {
        Unit::Chars => (Place::Char(from), extent.chars, "chars"),
        Unit::Bytes => (Place::Byte(from), extent.bytes, "bytes"),
    };
    if from >= all {
        return Ok(format!("[nothing at {from}: the output has {all} {words}]"));
    }
    let most = if let Unit::Bytes = unit { most.min(count.max(4)) } else { most };
    let mut text = output.text(place, most).await?.ok_or(Problem::Gone)?;
    if let Unit::Chars = unit
        && let Some((end, _)) = text.char_indices().nth(count)
    {
        text.truncate(end);
    }
    let next = from + if let Unit::Chars = unit { text.chars().count() } else { text.len() };
    let rest = match next {
        next if next < all => format!("; go on with from = {next}"),
        _ => "; the end".to_owned(),
    };
    Ok(format!("[{words} {from} to {next} of {all}{rest}]\n{text}"))
}

/// The lines that a pattern matches, with their numbers, as many as fit.
async fn grep(output: &KeptOutput, mut search: Search) -> Result<String, Problem> {
    let mut line = 1;
    for (number, extent) in output.record.pieces.iter().enumerate() {
        let piece = output.piece(number).await?.ok_or(Problem::Gone)?;
        // A pattern over a long text takes its time, and others wait for this thread.
        search = spawn_blocking(move || search.over(&piece, line))
            .await
            .map_err(|error| KeepError::Unusable(error.to_string()))?;
        if search.is_full() {
            break;
        }
        line += extent.newlines;
    }
    Ok(search.told())
}

/// The value that a pointer leads to, or the outline of one that is too long.
fn json_value(text: &str, pointer: &str, most: usize) -> Result<String, String> {
    let value = value_at(text, pointer)?;
    if value.len() <= most {
        return Ok(value.to_owned());
    }
    let outline = Outline::of(value, most / 2).text;
    let beginning = cut(value, most.saturating_sub(outline.len() + HEADER_BYTES));
    Ok(format!(
        "[{} bytes are too many: their outline, then their beginning; use a longer pointer]\n\
         {outline}\n\n{beginning}",
        value.len()
    ))
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, SessionId};
    use rockbot_store::{Clock, MemoryStore};

    use super::*;
    use crate::outputs::OutputsSection;

    async fn tail_of(text: &str, count: usize) -> String {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let outputs = Outputs::new(store, OutputsSection::default());
        let (session, agent) = (SessionId::generate(), AgentName::new("assistant").unwrap());
        let context = ToolContext::new(TOOL_OUTPUT, session, agent);
        let handle = outputs.keep(&context, text.to_owned()).await.unwrap().handle;
        let arguments = json!({"handle": handle, "mode": "tail", "count": count});
        let read = ToolOutput::new(outputs).call(arguments, &context).await.unwrap();
        read.to_text().into_owned()
    }

    #[tokio::test]
    async fn a_tail_that_is_too_long_loses_its_first_lines_and_never_its_last() {
        let text: String =
            (1..=2000).map(|line| format!("line {line} {}\n", "ü".repeat(50))).collect();
        let told = tail_of(&text, 1000).await;
        assert!(told.len() <= 12 * 1024);
        let (header, tail) = told.split_once('\n').unwrap();
        assert!(header.ends_with(" to 2000 of 2000; the end, those before with mode lines]"));
        let from = tail.split(' ').nth(1).unwrap();
        assert!(header.starts_with(&format!("[lines {from} to ")), "{header}");
        assert!(tail.starts_with("line ") && text.ends_with(tail));
        assert!(tail.len() > 11_000, "as many as fit");

        for text in ["one\ntwo\nthree", "one\ntwo\nthree\n"] {
            let (_, last) = text.split_once('\n').unwrap();
            assert_eq!(tail_of(text, 2).await, format!("[lines 2 to 3 of 3; the end]\n{last}"));
            assert_eq!(tail_of(text, 9).await, format!("[lines 1 to 3 of 3; the end]\n{text}"));
        }
        let told = tail_of(&format!("one\n{}end", "x".repeat(20_000)), 1).await;
        assert!(told.starts_with("[lines 2 to 2 of 2; the line is longer: "), "{told:.100}");
        assert!(told.ends_with("xend"));
    }
}
