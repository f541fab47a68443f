//! Lines of input, read on a thread of their own.

use std::{
    io::{self, BufRead, IsTerminal, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::mpsc;

use super::editor::{Edited, Editor, PromptName};

/// The longest message, in bytes.
pub(super) const MAX_LINE_BYTES: usize = 64 * 1024;

/// Returns the error for a longer message.
pub(super) fn too_long() -> String {
    format!(
        "the message is longer than {MAX_LINE_BYTES} bytes, and nothing of it was sent; write it to a file and \
         name the file"
    )
}

/// Result of reading.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A message of at most [`MAX_LINE_BYTES`].
    Line(String),
    /// A longer message, which was dropped.
    TooLong,
    /// A line that cannot be read, with the problem. Nothing follows.
    Unreadable(String),
    /// The editor left the terminal for output, see [`InputReader::pause`].
    Paused,
}

/// Reads lines from the standard input.
pub(super) struct InputReader {
    inputs: mpsc::Receiver<Item>,
    /// Makes the editor leave the terminal; `None` when the input is not a terminal.
    pause: Option<Arc<AtomicBool>>,
}

/// An input, and a sender that is dropped when the input has been processed.
type Item = (Input, std::sync::mpsc::Sender<()>);

impl InputReader {
    /// Starts to read. On a terminal the input has line editing, history and completion.
    pub(super) fn start(name: Option<PromptName>) -> Self {
        let pause = io::stdin().is_terminal().then(Arc::<AtomicBool>::default);
        let (sender, inputs) = mpsc::channel(1);
        let signal = pause.clone();
        // Reading a terminal blocks and must not keep the process from exiting.
        std::thread::spawn(move || {
            let mut next: Box<dyn FnMut() -> Option<Input>> = match signal {
                Some(signal) => edited(Editor::new(name, signal)),
                None => {
                    let mut lines =
                        Lines { source: io::stdin().lock(), max_bytes: MAX_LINE_BYTES, number: 0 };
                    Box::new(move || lines.next())
                }
            };
            while let Some(input) = next() {
                let (done, processed) = std::sync::mpsc::channel();
                if sender.blocking_send((input, done)).is_err() {
                    return;
                }
                // Returns an error when the sender is dropped, which is the expected signal.
                let _ = processed.recv();
            }
        });
        Self { inputs, pause }
    }

    /// Returns the next input, or `None` at its end. Until the returned sender is dropped, nothing is read
    /// and the terminal is free for output.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Item> {
        self.inputs.recv().await
    }

    /// Makes the editor leave the terminal; [`Input::Paused`] follows, unless a line was just completed.
    /// Returns `false` if there is no editor and output can be printed at once.
    pub(super) fn pause(&self) -> bool {
        let Some(pause) = &self.pause else { return false };
        pause.store(true, Ordering::Relaxed);
        true
    }
}

fn edited(mut editor: Editor) -> Box<dyn FnMut() -> Option<Input>> {
    Box::new(move || match editor.read()? {
        Edited::Line(line) if line.len() > MAX_LINE_BYTES => Some(Input::TooLong),
        Edited::Line(line) => Some(Input::Line(line)),
        Edited::Paused => Some(Input::Paused),
    })
}

/// Lines of at most `max_bytes`.
struct Lines<S> {
    source: S,
    max_bytes: usize,
    /// Number of the last line, from 1 on.
    number: u64,
}

impl<S: BufRead> Lines<S> {
    /// Reads the next line. The rest of a longer one is skipped.
    fn next(&mut self) -> Option<Input> {
        self.number += 1;
        self.read().unwrap_or_else(|error| {
            let problem = format!("line {} of the input cannot be read: {error}", self.number);
            Some(Input::Unreadable(problem))
        })
    }

    fn read(&mut self) -> io::Result<Option<Input>> {
        let mut line = Vec::new();
        let limit = self.max_bytes as u64 + 1;
        if self.source.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let is_complete = line.ends_with(b"\n");
        if !is_complete && line.len() > self.max_bytes {
            self.source.skip_until(b'\n')?;
            return Ok(Some(Input::TooLong));
        }
        if is_complete {
            line.pop();
        }
        Ok(Some(match String::from_utf8(line) {
            Ok(line) => Input::Line(line),
            Err(_) => Input::Unreadable(format!(
                "line {} of the input is not UTF-8, and neither it nor what follows was sent; convert the \
                 input, for example with iconv",
                self.number
            )),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Lines<&[u8]> {
        Lines { source: bytes, max_bytes: 6, number: 0 }
    }

    #[test]
    fn unreadable_line_is_named() {
        let mut lines = lines(b"a\n123456789\nb\xff\nc\n");
        assert_eq!(lines.next(), Some(Input::Line("a".to_owned())));
        assert_eq!(lines.next(), Some(Input::TooLong));
        let Some(Input::Unreadable(problem)) = lines.next() else { panic!("it is read") };
        assert!(problem.starts_with("line 3 of the input is not UTF-8"), "{problem}");
    }

    #[test]
    fn long_line_is_refused_whole() {
        let mut lines = lines(b"12345\n123456\n123456789\nab\nlast");
        let mut next = || lines.next();
        let line = |text: &str| Some(Input::Line(text.to_owned()));
        assert_eq!(next(), line("12345"));
        assert_eq!(next(), line("123456"));
        assert_eq!(next(), Some(Input::TooLong));
        assert_eq!(next(), line("ab"));
        assert_eq!(next(), line("last"));
        assert_eq!(next(), None);
    }
}
