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
                None => Box::new(|| read_line(&mut io::stdin().lock(), MAX_LINE_BYTES)),
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

/// Reads a line of at most `max_bytes`. The rest of a longer one is skipped.
fn read_line(source: &mut impl BufRead, max_bytes: usize) -> Option<Input> {
    let mut line = Vec::new();
    let limit = max_bytes as u64 + 1;
    let read = source.by_ref().take(limit).read_until(b'\n', &mut line).ok()?;
    if read == 0 {
        return None;
    }
    let is_complete = line.ends_with(b"\n");
    if !is_complete && line.len() > max_bytes {
        source.skip_until(b'\n').ok()?;
        return Some(Input::TooLong);
    }
    if is_complete {
        line.pop();
    }
    String::from_utf8(line).ok().map(Input::Line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_refused_whole() {
        let mut source = io::Cursor::new(b"12345\n123456\n123456789\nab\nlast".to_vec());
        let mut next = || read_line(&mut source, 6);
        let line = |text: &str| Some(Input::Line(text.to_owned()));
        assert_eq!(next(), line("12345"));
        assert_eq!(next(), line("123456"));
        assert_eq!(next(), Some(Input::TooLong));
        assert_eq!(next(), line("ab"));
        assert_eq!(next(), line("last"));
        assert_eq!(next(), None);
    }
}
