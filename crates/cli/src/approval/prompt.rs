//! The prompt of an approval request, with the time that is left.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use crossterm::{
    event::{self, Event, KeyEventKind},
    terminal::{disable_raw_mode, enable_raw_mode},
};
use rockbot_contracts::{ApprovalAnswer, ApprovalDecision};

use super::key_line::{KeyLine, Pressed};
use crate::{render, terminal_size};

/// Interval between checks of the clock and of the request.
const POLL: Duration = Duration::from_millis(100);

/// Largest number of events that are dropped before a prompt; a terminal's buffer holds fewer.
const MAX_PENDING: usize = 64 * 1024;

/// The outcome of a prompt for a decision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// The user decided; a denial may have a reason.
    Decision(ApprovalDecision, Option<String>),
    /// Ctrl-C.
    Interrupted,
    /// The request expired, or was closed.
    Closed,
}

/// The outcome of a prompt for a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The user typed this line.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// The end of the input.
    EndOfInput,
    /// The request expired, or was closed.
    Closed,
}

/// Prompts until the input is valid, the request expires, or `is_closed`. The end of the input denies the
/// call. Blocks the thread.
pub(super) fn ask(expires: Instant, is_closed: &dyn Fn() -> bool) -> Typed {
    let Ok(_raw) = RawMode::enter() else { return Typed::Decision(ApprovalDecision::Deny, None) };
    loop {
        match read_line(expires, is_closed, &prompt) {
            Line::Interrupted => return Typed::Interrupted,
            Line::EndOfInput => return Typed::Decision(ApprovalDecision::Deny, None),
            Line::Closed => return Typed::Closed,
            Line::Text(line) => {
                if let Some((decision, reason)) = parse(&line) {
                    return Typed::Decision(decision, reason);
                }
            }
        }
    }
}

/// Prompts until the user typed yes or no. Returns `false` also for an interrupt, for the end of the input and
/// after `expires`. `long` and `short` are the question. Blocks the thread.
pub(super) fn confirm(long: &str, short: &str, expires: Instant) -> bool {
    let Ok(_raw) = RawMode::enter() else { return false };
    let prompt = |left, typed: &str, columns| line_prompt(long, short, left, typed, columns);
    loop {
        let Line::Text(line) = read_line(expires, &|| false, &prompt) else { return false };
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return true,
            "n" | "no" => return false,
            _ => {}
        }
    }
}

/// Reads a line after the prompt that `prompt` formats from the time that is left, what was typed, and the
/// width of the terminal. The terminal sends single keys: see [`RawMode`].
pub(super) fn read_line(
    expires: Instant,
    is_closed: &dyn Fn() -> bool,
    prompt: &dyn Fn(Duration, &str, usize) -> String,
) -> Line {
    let mut line = KeyLine::default();
    let mut shown = String::new();
    let end = loop {
        let left = expires.saturating_duration_since(Instant::now());
        if is_closed() || left.is_zero() {
            break Line::Closed;
        }
        let text = prompt(left, line.text(), terminal_size::columns());
        if text != shown {
            write(&format!("\r\u{1b}[K{text}"));
            shown = text;
        }
        let pressed = match event::poll(POLL.min(left)) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => line.press(key),
                Ok(Event::Paste(text)) => line.insert(&text),
                Ok(_) => continue,
                Err(_) => Pressed::EndOfInput,
            },
            Err(_) => Pressed::EndOfInput,
        };
        match pressed {
            Pressed::More => {}
            Pressed::Interrupt => break Line::Interrupted,
            Pressed::EndOfInput => break Line::EndOfInput,
            Pressed::Enter => break Line::Text(line.text().to_owned()),
        }
    };
    write("\r\n");
    end
}

/// Drops what was typed before the request was shown: it decides nothing.
fn drop_pending_input() {
    for _ in 0..MAX_PENDING {
        if !matches!(event::poll(Duration::ZERO), Ok(true)) || event::read().is_err() {
            return;
        }
    }
}

/// Formats the prompt for a decision.
fn prompt(left: Duration, typed: &str, columns: usize) -> String {
    let long = "run it? [y]es, [n]o REASON, [a]lways in this session";
    line_prompt(long, "run it? y/n/a", left, typed, columns)
}

/// Formats a prompt with as much of the end of the input as fits into the line; the short form in a narrow
/// terminal.
pub(super) fn line_prompt(
    long: &str,
    short: &str,
    left: Duration,
    typed: &str,
    columns: usize,
) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let long = format!("  {long} ({seconds} s): ");
    let short = format!("  {short} ({seconds} s): ");
    let prompt = if long.chars().count() + 16 < columns { long } else { short };
    let width = columns.saturating_sub(prompt.chars().count() + 1);
    let typed = render::visible_line(typed);
    let hidden = typed.chars().count().saturating_sub(width);
    prompt + &typed.chars().skip(hidden).collect::<String>()
}

/// Parses a decision. The text after `n` is the reason that the model reads.
fn parse(line: &str) -> Option<(ApprovalDecision, Option<String>)> {
    let line = line.trim();
    let (word, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let reason = reason.trim();
    let decision = match word.to_lowercase().as_str() {
        "y" | "yes" => ApprovalDecision::Allow,
        "n" | "no" => ApprovalDecision::Deny,
        "a" | "always" => ApprovalDecision::AllowInSession,
        _ => return None,
    };
    if reason.is_empty() {
        return Some((decision, None));
    }
    // A text after "yes" is a condition, which the model would not read.
    let end = reason.floor_char_boundary(ApprovalAnswer::MAX_REASON_BYTES);
    (decision == ApprovalDecision::Deny).then(|| (decision, Some(reason[..end].to_owned())))
}

/// Switches the terminal to single keys until it is dropped, and drops what was typed before.
pub(super) struct RawMode;

impl RawMode {
    pub(super) fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        // Line breaks in a pasted text are no Enter.
        write("\u{1b}[?2004h");
        drop_pending_input();
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        write("\u{1b}[?2004l");
        let _ = disable_raw_mode();
    }
}

/// Writes to the terminal. The sequences that move the cursor are not colors, which may be off.
fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_follows_a_denial_only() {
        use ApprovalDecision::{Allow, AllowInSession, Deny};
        for (line, expected) in [
            ("y", Some((Allow, None))),
            (" YES ", Some((Allow, None))),
            ("a", Some((AllowInSession, None))),
            ("n", Some((Deny, None))),
            ("no  use the other file ", Some((Deny, Some("use the other file")))),
            ("y but only once", None),
            ("", None),
            ("nope", None),
        ] {
            let expected = expected.map(|(decision, reason)| (decision, reason.map(str::to_owned)));
            assert_eq!(parse(line), expected, "{line:?}");
        }
        let long = format!("n {}", "ü".repeat(2_000));
        let (_, reason) = parse(&long).unwrap();
        assert!(reason.unwrap().len() <= ApprovalAnswer::MAX_REASON_BYTES);
    }

    #[test]
    fn prompt_counts_down_and_fits_into_the_line() {
        let text = prompt(Duration::from_millis(1_200), "n no\u{1b}", 100);
        assert!(text.contains("(2 s): n no\\u{1b}"), "{text}");
        let text = prompt(Duration::from_secs(9), &"x".repeat(200), 40);
        assert!(text.chars().count() < 40 && text.contains("(9 s)"), "{text}");
    }
}
