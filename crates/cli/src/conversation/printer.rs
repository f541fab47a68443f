//! The replies of one turn: streamed text, with lines for tool calls in between.

use std::io::{IsTerminal, Write};

use rockbot_contracts::{ReplyBody, TurnUsage};
use serde_json::json;

use super::{
    calls::CallLog,
    display::{Display, Show},
};
use crate::{call_view, failure::Failure, markdown::MarkdownStream, render};

/// Longest line of arguments of a call, in characters.
const MAX_ARGUMENT_CHARS: usize = 200;

/// Prints the replies of one turn.
pub(super) struct TurnPrinter<'a> {
    display: &'a Display,
    /// Draws Markdown on a terminal with colors; elsewhere the text is printed as it is.
    markdown: Option<MarkdownStream>,
    /// Set while the cursor is within a line of text.
    in_text: bool,
    /// The text of the answer so far, as the agent sent it.
    printed_text: String,
    /// Number of calls that crossed the bus.
    pub(super) calls: usize,
    lost: u64,
    pub(super) usage: Option<TurnUsage>,
}

impl<'a> TurnPrinter<'a> {
    pub(super) fn new(display: &'a Display) -> Self {
        let stdout = std::io::stdout();
        let has_colors = anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        let draws = !display.json && stdout.is_terminal() && has_colors;
        Self {
            display,
            markdown: draws.then(MarkdownStream::default),
            in_text: false,
            printed_text: String::new(),
            calls: 0,
            lost: 0,
            usage: None,
        }
    }

    /// Returns `true` if the cursor is at the beginning of a line.
    pub(super) fn is_between_lines(&self) -> bool {
        !self.in_text
    }

    /// Prints how many replies were lost since the last one, when there are any.
    pub(super) fn report_lost(&mut self, lost: u64) -> Result<(), Failure> {
        let missing = lost - std::mem::replace(&mut self.lost, lost);
        if missing == 0 {
            return Ok(());
        }
        let mut stdout = anstream::stdout().lock();
        if self.display.json {
            writeln!(stdout, "{}", json!({"kind": "replies_lost", "count": missing}))?;
            return Ok(());
        }
        self.end_line(&mut stdout)?;
        // The whole answer is printed at the end, because a part of it may be missing.
        self.printed_text.clear();
        writeln!(stdout, "{}", render::dim(&render::lost(missing)))?;
        Ok(())
    }

    /// Prints a reply and records calls.
    pub(super) fn print(&mut self, body: &ReplyBody, log: &mut CallLog) -> Result<(), Failure> {
        let mut stdout = anstream::stdout().lock();
        if let ReplyBody::ToolFinished { ran_on: Some(_), .. } = body {
            self.calls += 1;
        }
        log.record(body);
        if self.display.json {
            writeln!(stdout, "{}", render::json_line(&json!(body)))?;
            return Ok(());
        }
        match body {
            ReplyBody::TextDelta { text } => {
                self.printed_text.push_str(text);
                self.write_text(&mut stdout, text)?;
            }
            ReplyBody::Answer { text, usage, .. } => {
                self.usage = *usage;
                self.print_answer(&mut stdout, text)?;
                if let Some(usage) = usage.filter(|_| self.display.stats) {
                    writeln!(stdout, "{}", render::dim(&render::usage(&usage)))?;
                }
            }
            other => {
                if let Some(lines) = self.call_lines(other) {
                    self.end_line(&mut stdout)?;
                    self.printed_text.clear();
                    writeln!(stdout, "{lines}")?;
                }
            }
        }
        stdout.flush()?;
        Ok(())
    }

    /// Prints what was not streamed of an answer. Text of the model has been streamed already; text of the
    /// agent itself has not.
    fn print_answer(&mut self, stdout: &mut impl Write, text: &str) -> std::io::Result<()> {
        if !self.printed_text.ends_with(text) {
            match text.strip_prefix(self.printed_text.as_str()) {
                Some(rest) => self.write_text(stdout, rest)?,
                None => {
                    self.end_line(stdout)?;
                    self.write_text(stdout, text)?;
                }
            }
        }
        if self.markdown.is_some() {
            return self.end_line(stdout);
        }
        self.in_text = false;
        writeln!(stdout)
    }

    /// Returns the lines for an event of a call, if it has some.
    fn call_lines(&self, body: &ReplyBody) -> Option<String> {
        let line_with = |shown: String| {
            let mut body = body.clone();
            if let ReplyBody::ToolStarted { arguments, .. } = &mut body {
                *arguments = shown;
            }
            render::call_line(&body)
        };
        match (body, self.display.show) {
            (ReplyBody::ToolStarted { arguments, .. }, Show::Brief) => {
                line_with(render::short_line(arguments, MAX_ARGUMENT_CHARS))
            }
            (ReplyBody::ToolStarted { arguments, arguments_left_out, .. }, _) => {
                let line = line_with(String::new())?;
                let arguments = call_view::arguments(arguments, *arguments_left_out);
                let separator = if arguments.is_empty() { "" } else { "\n" };
                Some(format!("{line}{separator}{arguments}"))
            }
            (
                ReplyBody::ToolFinished { result: Some(result), result_left_out, .. },
                Show::Results,
            ) => {
                let line = render::call_line(body)?;
                Some(format!("{line}\n{}", call_view::result(result, *result_left_out)))
            }
            _ => render::call_line(body),
        }
    }

    /// Prints text of the model.
    fn write_text(&mut self, stdout: &mut impl Write, text: &str) -> std::io::Result<()> {
        let text = render::clean(text);
        let text = match &mut self.markdown {
            Some(markdown) => markdown.push(&text),
            None => text,
        };
        self.write_drawn(stdout, &text)
    }

    fn write_drawn(&mut self, stdout: &mut impl Write, text: &str) -> std::io::Result<()> {
        if !text.is_empty() {
            self.in_text = self.markdown.is_none() || !text.ends_with('\n');
            write!(stdout, "{text}")?;
        }
        Ok(())
    }

    /// Ends a text, so that the next output starts at the beginning of a line.
    pub(super) fn end_line(&mut self, stdout: &mut impl Write) -> std::io::Result<()> {
        let rest = self.markdown.as_mut().map(MarkdownStream::finish).unwrap_or_default();
        self.write_drawn(stdout, &rest)?;
        if std::mem::take(&mut self.in_text) {
            writeln!(stdout)?;
        }
        Ok(())
    }
}
