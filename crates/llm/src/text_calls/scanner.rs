//! Separation of a streamed answer into text and calls.

use super::{
    block_end::BlockEnd,
    candidate::{self, Candidate},
    json_call::{ParsedCall, further_unmarked_calls, unmarked_calls},
    syntax::{RESULT_MARKS, SYNTAXES, Syntax},
    tool_set::ToolSet,
};
use crate::{
    assemble::{MAX_ARGUMENTS_BYTES, MAX_TOOL_CALLS},
    error::ChatError,
    json_depth::JsonDepth,
};

/// The largest block of marked calls, in bytes.
const MAX_BLOCK_BYTES: usize = 2 * MAX_ARGUMENTS_BYTES;
/// The largest unmarked text that is held back because it may be a call, in bytes.
const MAX_CANDIDATE_BYTES: usize = 256 * 1024;
/// The longest white space that is held back because a call may follow, in bytes.
const MAX_HELD_SPACE_BYTES: usize = 4096;

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const FENCE_END: &str = "\n```";

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Call(ParsedCall),
}

/// Reads an answer piece by piece. Text is returned at once, except where it may begin a call.
///
/// - Marked calls are found anywhere, but not in the reasoning at the start of an answer. Some templates begin
///   the reasoning themselves, so that its end is the only mark: calls are returned at the end of the answer,
///   and dropped if an end of reasoning without a beginning follows them.
/// - JSON without marks counts as a call only if it begins a line and calls known tools.
/// - A block without a readable call is text. After other calls, it is a call that fails with the reason, because
///   the model would otherwise believe that it ran.
/// - Text after a call is dropped: the model wrote it without the result. After a mark of results,
///   everything is dropped.
#[derive(Debug)]
pub(super) struct CallScanner {
    tools: ToolSet,
    may_call: bool,
    buffer: String,
    /// The position of the first unread byte of the buffer.
    start: usize,
    state: State,
    /// The line has had only white space so far.
    line_is_blank: bool,
    /// There was text other than white space.
    has_text: bool,
    calls: usize,
    /// The answer may be reasoning up to here: it had neither the beginning nor the end of one.
    may_be_reasoning: bool,
    held_calls: Vec<ParsedCall>,
    /// White space that is dropped if a call follows.
    held_space: String,
    pieces: Vec<Piece>,
    /// The answer reached its maximum length.
    is_cut: bool,
}

#[derive(Debug)]
enum State {
    Text,
    Reasoning,
    /// In a block whose marks are known.
    Block {
        syntax: &'static Syntax,
        end: BlockEnd,
    },
    /// In JSON that may be a call.
    Json {
        depth: JsonDepth,
        scanned: usize,
    },
    /// In a fenced block that may be a call. Its content starts at `content`.
    Fence {
        content: usize,
        scanned: usize,
    },
    /// After a mark of results.
    Ignored,
}

/// The beginning of something other than text.
enum Mark {
    Incomplete,
    Block(&'static Syntax),
    Reasoning,
    /// The beginning of reasoning within the answer, which is text.
    ReasoningInText,
    /// The end of reasoning that began before the answer.
    ReasoningEnd,
    Results,
    Json,
    Fence(usize),
}

impl CallScanner {
    /// Without `may_call`, calls are dropped.
    pub(super) fn new(tools: ToolSet, may_call: bool) -> Self {
        Self {
            tools,
            may_call,
            buffer: String::new(),
            start: 0,
            state: State::Text,
            line_is_blank: true,
            has_text: false,
            calls: 0,
            may_be_reasoning: true,
            held_calls: Vec::new(),
            held_space: String::new(),
            pieces: Vec::new(),
            is_cut: false,
        }
    }

    /// Reads more of the answer.
    ///
    /// # Errors
    /// [`ChatError::TooLarge`] for too many calls or too large a block.
    pub(super) fn push(&mut self, text: &str) -> Result<Vec<Piece>, ChatError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.push_str(text);
        while self.step(false)? {}
        Ok(std::mem::take(&mut self.pieces))
    }

    /// Reads the end of the answer. The end of a block may be missing. If the answer `is_cut` at its maximum
    /// length, the arguments of a call without an end are invalid JSON.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub(super) fn finish(&mut self, is_cut: bool) -> Result<Vec<Piece>, ChatError> {
        self.is_cut = is_cut;
        while self.step(true)? {}
        self.pieces.extend(self.held_calls.drain(..).map(Piece::Call));
        if self.calls == 0 && !self.held_space.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(&mut self.held_space)));
        }
        Ok(std::mem::take(&mut self.pieces))
    }

    /// Returns whether the answer has calls.
    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Reads on until the state changes. Returns `false` if more of the answer is needed.
    fn step(&mut self, is_end: bool) -> Result<bool, ChatError> {
        match &mut self.state {
            State::Text => Ok(self.step_text(is_end)),
            State::Reasoning => Ok(self.step_reasoning(is_end)),
            State::Block { .. } => self.step_block(is_end),
            State::Json { .. } => self.step_json(is_end),
            State::Fence { .. } => self.step_fence(is_end),
            State::Ignored => Ok(self.step_ignored()),
        }
    }

    fn step_ignored(&mut self) -> bool {
        let rest = &self.buffer[self.start..];
        let mut held = 0;
        if self.may_be_reasoning {
            if let Some(at) = rest.find(THINK_END) {
                self.start += at;
                self.state = State::Text;
                return true;
            }
            held = partial_mark(rest, THINK_END);
        }
        self.start = self.buffer.len() - held;
        false
    }

    fn step_text(&mut self, is_end: bool) -> bool {
        let rest = &self.buffer[self.start..];
        let mut line_is_blank = self.line_is_blank;
        let mut found = None;
        for (at, c) in rest.char_indices() {
            match self.mark(&rest[at..], line_is_blank) {
                Some(Mark::Incomplete) if is_end => {}
                Some(mark) => {
                    found = Some((at, mark));
                    break;
                }
                None => {}
            }
            line_is_blank = self.is_blank_after(line_is_blank, c);
        }
        let Some((at, mark)) = found else {
            self.emit_text(rest.len());
            return false;
        };
        self.emit_text(at);
        self.state = match mark {
            Mark::Incomplete => return false,
            Mark::Block(syntax) => State::Block { syntax, end: BlockEnd::default() },
            Mark::Reasoning => {
                self.may_be_reasoning = false;
                State::Reasoning
            }
            Mark::ReasoningInText => {
                self.may_be_reasoning = false;
                State::Text
            }
            Mark::ReasoningEnd => {
                self.may_be_reasoning = false;
                self.held_calls.clear();
                self.calls = 0;
                State::Text
            }
            Mark::Results => State::Ignored,
            Mark::Json => State::Json { depth: JsonDepth::default(), scanned: 0 },
            Mark::Fence(content) => State::Fence { content, scanned: content },
        };
        true
    }

    /// Returns the mark with which `rest` begins.
    fn mark(&self, rest: &str, line_is_blank: bool) -> Option<Mark> {
        if !rest.starts_with(['<', '[', '{', '`']) {
            return None;
        }
        let opened = SYNTAXES.iter().find(|syntax| rest.starts_with(syntax.open));
        if let Some(syntax) = opened {
            return Some(Mark::Block(syntax));
        }
        let is_start = !self.has_text && self.calls == 0 && line_is_blank;
        if is_start && rest.starts_with(THINK) {
            return Some(Mark::Reasoning);
        }
        if self.may_be_reasoning && rest.starts_with(THINK) {
            return Some(Mark::ReasoningInText);
        }
        if self.may_be_reasoning && rest.starts_with(THINK_END) {
            return Some(Mark::ReasoningEnd);
        }
        let result_marks = if self.calls > 0 { RESULT_MARKS.as_slice() } else { &[] };
        if result_marks.iter().any(|mark| rest.starts_with(mark)) {
            return Some(Mark::Results);
        }
        let marks = SYNTAXES.iter().map(|syntax| syntax.open);
        let reasoning_marks = if self.may_be_reasoning { &[THINK, THINK_END][..] } else { &[] };
        let mut marks = marks.chain(reasoning_marks.iter().chain(result_marks).copied());
        if marks.any(|mark| mark.starts_with(rest)) {
            return Some(Mark::Incomplete);
        }
        if !line_is_blank {
            return None;
        }
        let is_fence = rest.starts_with('`');
        match if is_fence { candidate::fence(rest) } else { candidate::json(rest) } {
            Candidate::No => None,
            Candidate::Incomplete => Some(Mark::Incomplete),
            Candidate::Yes(content) if is_fence => Some(Mark::Fence(content)),
            Candidate::Yes(_) => Some(Mark::Json),
        }
    }

    /// After a call, separators between calls do not count.
    fn is_blank_after(&self, was_blank: bool, c: char) -> bool {
        let is_separator = self.calls > 0 && matches!(c, ',' | ';');
        c == '\n' || (was_blank && (c.is_whitespace() || is_separator))
    }

    fn step_reasoning(&mut self, is_end: bool) -> bool {
        let rest = &self.buffer[self.start..];
        if let Some(at) = rest.find(THINK_END) {
            self.emit_text(at + THINK_END.len());
            self.state = State::Text;
            return true;
        }
        let held = if is_end { 0 } else { partial_mark(rest, THINK_END) };
        self.emit_text(rest.len() - held);
        false
    }

    fn step_block(&mut self, is_end: bool) -> Result<bool, ChatError> {
        let State::Block { syntax, end } = &mut self.state else { return Ok(false) };
        let syntax = *syntax;
        let rest = &self.buffer[self.start..];
        let content = &rest[syntax.open.len()..];
        let found = end.find(content, syntax.close);
        if found.is_none() && !is_end {
            if rest.len() > MAX_BLOCK_BYTES {
                return Err(ChatError::TooLarge {
                    what: "bytes in a block of tool calls",
                    limit: MAX_BLOCK_BYTES,
                });
            }
            return Ok(false);
        }
        let is_cut = found.is_none() && self.is_cut && end.has_tags();
        // JSON with an error may have no end: the first mark is the best guess, and nothing after it counts.
        let marks = syntax.close.iter().filter_map(|mark| Some((content.find(mark)?, mark.len())));
        let guess = if found.is_none() && !self.is_cut { marks.min() } else { None };
        let (end, mark) = found.or(guess).unwrap_or((content.len(), 0));
        let is_mention = self.may_be_reasoning && ends_reasoning_first(&content[..end]);
        let mut calls =
            if is_mention { Vec::new() } else { syntax.calls(&content[..end], &self.tools) };
        if calls.is_empty() && self.calls > 0 && !is_mention {
            calls.extend(ParsedCall::unreadable(&content[..end]));
        }
        if is_cut && let Some(last) = calls.last_mut() {
            last.invalidate_arguments();
        }
        let end = syntax.open.len() + end;
        let is_guess = guess.is_some() && !calls.is_empty();
        self.state = if is_guess { State::Ignored } else { State::Text };
        if calls.is_empty() {
            self.emit_no_calls(end + mark);
        } else {
            self.start += end + mark;
            self.emit_calls(calls)?;
        }
        Ok(true)
    }

    fn step_json(&mut self, is_end: bool) -> Result<bool, ChatError> {
        let State::Json { depth, scanned } = &mut self.state else { return Ok(false) };
        let rest = &self.buffer[self.start..];
        let end = depth.read(&rest[*scanned..]).map(|end| *scanned + end);
        *scanned = rest.len();
        self.complete_candidate(end, 0, is_end)
    }

    fn step_fence(&mut self, is_end: bool) -> Result<bool, ChatError> {
        let State::Fence { content, scanned } = &mut self.state else { return Ok(false) };
        let content = *content;
        let rest = &self.buffer[self.start..];
        let from = rest.floor_char_boundary(scanned.saturating_sub(FENCE_END.len()).max(content));
        let end = rest[from..].find(FENCE_END).map(|at| from + at + FENCE_END.len());
        *scanned = rest.len();
        self.complete_candidate(end, content, is_end)
    }

    /// Reads the candidate that ends at `end` and has its JSON from `content` on. `None` for `end` means that
    /// its end is not known yet.
    fn complete_candidate(
        &mut self,
        end: Option<usize>,
        content: usize,
        is_end: bool,
    ) -> Result<bool, ChatError> {
        let rest = &self.buffer[self.start..];
        let end = match end {
            None if is_end || rest.len() > MAX_CANDIDATE_BYTES => rest.len(),
            None => return Ok(false),
            Some(end) => end,
        };
        let json = &rest[content..end];
        let json = json.strip_suffix(FENCE_END).unwrap_or(json);
        let mut calls = unmarked_calls(json, &self.tools);
        if calls.is_none() && self.calls > 0 {
            calls = further_unmarked_calls(json, &self.tools);
        }
        self.state = State::Text;
        match calls {
            None => self.emit_no_calls(end),
            Some(calls) => {
                self.start += end;
                self.emit_calls(calls)?;
            }
        }
        Ok(true)
    }

    /// Emits the next `bytes`, which hold no calls, as text, but none after the end of reasoning: a mark that
    /// was only mentioned there does not hide the calls of the answer.
    fn emit_no_calls(&mut self, bytes: usize) {
        let rest = &self.buffer[self.start..self.start + bytes];
        let reasoning = self.may_be_reasoning.then(|| rest.find(THINK_END)).flatten();
        self.emit_text(reasoning.unwrap_or(bytes));
    }

    /// Emits the next `bytes` as text.
    fn emit_text(&mut self, bytes: usize) {
        let text = &self.buffer[self.start..self.start + bytes];
        self.start += bytes;
        let mut line_is_blank = self.line_is_blank;
        let (_, last_line) = text.rsplit_once('\n').unwrap_or(("", text));
        if last_line.len() < text.len() {
            line_is_blank = true;
        }
        for c in last_line.chars() {
            line_is_blank = self.is_blank_after(line_is_blank, c);
        }
        self.line_is_blank = line_is_blank;
        self.has_text |= !text.trim().is_empty();
        if self.calls > 0 || text.is_empty() {
            return;
        }
        let end = text.trim_end().len();
        if end > 0 || self.held_space.len() > MAX_HELD_SPACE_BYTES {
            let mut shown = std::mem::take(&mut self.held_space);
            shown.push_str(&text[..end]);
            self.pieces.push(Piece::Text(shown));
        }
        self.held_space.push_str(&text[end..]);
    }

    fn emit_calls(&mut self, calls: Vec<ParsedCall>) -> Result<(), ChatError> {
        self.line_is_blank = true;
        if !self.may_call {
            return Ok(());
        }
        self.calls += calls.len();
        if self.calls > MAX_TOOL_CALLS {
            return Err(ChatError::TooLarge { what: "tool calls", limit: MAX_TOOL_CALLS });
        }
        self.held_space.clear();
        if self.may_be_reasoning {
            self.held_calls.extend(calls);
        } else {
            self.pieces.extend(calls.into_iter().map(Piece::Call));
        }
        Ok(())
    }
}

/// Returns whether the end of reasoning comes before anything that a call consists of: the opening mark before
/// it was only mentioned.
fn ends_reasoning_first(content: &str) -> bool {
    let first = content.find(['{', '[', '<']);
    first.is_some_and(|at| content[at..].starts_with(THINK_END))
}

/// Returns the bytes at the end of a text that may begin `mark`.
fn partial_mark(text: &str, mark: &str) -> usize {
    let longest = (mark.len() - 1).min(text.len());
    (1..=longest).rev().find(|length| text.ends_with(&mark[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arguments of the only call of an answer that reached its maximum length.
    fn cut(output: &str) -> String {
        let mut scanner = CallScanner::new(ToolSet::new(&[]), true);
        let mut pieces = scanner.push(output).unwrap();
        pieces.extend(scanner.finish(true).unwrap());
        let [Piece::Call(call)] = &pieces[..] else { panic!("{pieces:?}") };
        call.arguments.clone()
    }

    #[test]
    fn cut_arguments_are_invalid() {
        for output in [
            "<function=bash>\n<parameter=command>rm -rf /data/tmp",
            "<function_calls><invoke name=\"bash\"><parameter name=\"command\">rm -rf /data",
            "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>rm -rf /data",
            "<tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"a</tool_call>",
        ] {
            let arguments = cut(output);
            assert!(serde_json::from_str::<serde_json::Value>(&arguments).is_err(), "{arguments}");
        }
    }
}
