//! The line that shows what a silent turn waits for.

use std::{
    future::pending,
    io::{IsTerminal, Write},
    time::Duration,
};

use rockbot_contracts::{ReplyBody, ToolCallId};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::{render, terminal_size};

/// Silence before the line is shown.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// Time between two frames.
const FRAME: Duration = Duration::from_millis(100);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Longest shown name of a model or tool, in characters.
const MAX_NAME_CHARS: usize = 40;
/// Number of running calls that are known; more are not counted.
const MAX_CALLS: usize = 128;

/// The status line of one turn. It is on standard error, and erased before anything else is printed.
pub(super) struct StatusLine {
    /// `None` where no line is shown.
    frames: Option<Interval>,
    model: Option<String>,
    /// The running calls, oldest first.
    calls: Vec<(ToolCallId, String, Instant)>,
    /// The last reply, or the start of the turn.
    since: Instant,
    frame: usize,
    /// Columns of the line on the screen.
    drawn: usize,
}

impl StatusLine {
    /// Creates the line of a turn that starts now. It is shown on a terminal only.
    pub(super) fn new(model: Option<String>, is_wanted: bool) -> Self {
        let is_shown =
            is_wanted && std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let frames = is_shown.then(|| {
            let mut frames = interval(FRAME);
            frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
            frames
        });
        let (calls, since) = (Vec::new(), Instant::now());
        Self { frames, model, calls, since, frame: 0, drawn: 0 }
    }

    /// Waits for the next frame; for ever where no line is shown.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(super) async fn next_frame(&mut self) {
        match &mut self.frames {
            Some(frames) => {
                frames.tick().await;
            }
            None => pending().await,
        }
    }

    /// Takes note of a reply.
    pub(super) fn observe(&mut self, body: &ReplyBody) {
        self.since = Instant::now();
        match body {
            ReplyBody::ToolStarted { tool_call_id, tool_name, .. }
                if self.calls.len() < MAX_CALLS =>
            {
                self.calls.push((tool_call_id.clone(), tool_name.clone(), self.since));
            }
            ReplyBody::ToolFinished { tool_call_id, .. } => {
                self.calls.retain(|(id, ..)| id != tool_call_id);
            }
            _ => {}
        }
    }

    /// Draws the next frame.
    pub(super) fn draw(&mut self) {
        let columns = terminal_size::columns();
        let Some(text) = self.text(Instant::now(), columns - 1) else { return };
        self.frame = (self.frame + 1) % FRAMES.len();
        let columns = text.chars().count();
        let rest = " ".repeat(self.drawn.saturating_sub(columns));
        write(&format!("\r{}{rest}", render::dim(&text)));
        self.drawn = self.drawn.max(columns);
    }

    /// Erases the line. Works without escape sequences, which may be off with the colors.
    pub(super) fn erase(&mut self) {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn > 0 {
            write(&format!("\r{}\r", " ".repeat(drawn)));
        }
    }

    /// Returns the text of the line, of at most `columns` characters; `None` while it is not to be shown.
    fn text(&self, now: Instant, columns: usize) -> Option<String> {
        if now.duration_since(self.since) < SHOWN_AFTER {
            return None;
        }
        let (since, what) = match self.calls.as_slice() {
            [] => (self.since, self.model.clone().unwrap_or_else(|| "the agent".to_owned())),
            [(_, name, since)] => (*since, name.clone()),
            [(_, name, since), others @ ..] => {
                (*since, format!("{name} and {} more", others.len()))
            }
        };
        let what = render::short_line(&what, MAX_NAME_CHARS);
        let seconds = now.duration_since(since).as_secs();
        let text = format!("{} {seconds} s · {what} · Ctrl-C cancels", FRAMES[self.frame]);
        Some(text.chars().take(columns).collect())
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.erase();
    }
}

/// Writes to standard error. Errors are ignored: the terminal may be closed.
fn write(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::Executed;
    use tokio::time::advance;

    use super::*;

    fn text(line: &StatusLine) -> Option<String> {
        line.text(Instant::now(), 79)
    }

    #[tokio::test(start_paused = true)]
    async fn line_shows_the_silent_model_then_the_running_calls() {
        let mut line = StatusLine::new(Some("gpt\u{1b}[2J-4o".to_owned()), false);
        assert_eq!(text(&line), None);
        advance(Duration::from_secs(3)).await;
        assert_eq!(text(&line).unwrap(), "⠋ 3 s · gpt-4o · Ctrl-C cancels");
        let ids = [ToolCallId::generate(), ToolCallId::generate()];
        for (id, tool_name) in ids.iter().zip(["bash", "search"]) {
            line.observe(&ReplyBody::ToolStarted {
                tool_call_id: id.clone(),
                tool_name: tool_name.to_owned(),
                arguments: String::new(),
                arguments_left_out: 0,
            });
            advance(Duration::from_secs(2)).await;
        }
        assert_eq!(text(&line).unwrap(), "⠋ 4 s · bash and 1 more · Ctrl-C cancels");
        line.observe(&ReplyBody::ToolFinished {
            tool_call_id: ids[0].clone(),
            tool_name: "bash".to_owned(),
            ran_on: None,
            elapsed_us: 1,
            bytes: 0,
            error: None,
            executed: Executed::Yes,
            child_loop_id: None,
            stages: None,
            result: None,
            result_left_out: 0,
        });
        assert_eq!(text(&line), None, "a reply was just printed");
        advance(Duration::from_secs(1)).await;
        assert_eq!(text(&line).unwrap(), "⠋ 3 s · search · Ctrl-C cancels");
        assert_eq!(line.text(Instant::now(), 5).unwrap(), "⠋ 3 s");
    }
}
