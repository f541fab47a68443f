//! Bounded capture of a command's output: the beginning and the end.

use std::collections::VecDeque;

/// A longer line may be interleaved with the other stream.
const MAX_PENDING_BYTES: usize = 8 * 1024;
const MAX_PROGRESS_CHARS: usize = 200;
const PROGRESS_WINDOW_BYTES: usize = 2 * 1024;

/// An output stream of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Captures both streams in order of arrival, line by line, and keeps at most `cap` bytes.
#[derive(Debug)]
pub(super) struct Capture {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: bool,
    out: Pending,
    err: Pending,
}

/// The state of a stream: its incomplete line and its number of bytes.
#[derive(Debug, Default)]
struct Pending {
    line: Vec<u8>,
    bytes: u64,
}

/// The captured output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) text: String,
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
    pub(super) truncated: bool,
}

impl Capture {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            half: cap / 2,
            head: Vec::new(),
            tail: VecDeque::new(),
            omitted: false,
            out: Pending::default(),
            err: Pending::default(),
        }
    }

    pub(super) fn take(&mut self, stream: Stream, chunk: &[u8]) {
        let pending = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        pending.bytes += chunk.len() as u64;
        let mut line = std::mem::take(&mut pending.line);
        // A line that starts before the window is too long to wait for its end.
        let window = chunk.len().saturating_sub(MAX_PENDING_BYTES);
        let newline = chunk[window..].iter().rposition(|byte| *byte == b'\n');
        let lines_end = newline.map_or(0, |end| window + end + 1);
        let (lines, rest) = chunk.split_at(lines_end);
        if !lines.is_empty() {
            self.append(&line);
            self.append(lines);
            line.clear();
        }
        if line.len() + rest.len() > MAX_PENDING_BYTES {
            self.append(&line);
            self.append(rest);
            line.clear();
        } else {
            line.extend_from_slice(rest);
        }
        match stream {
            Stream::Out => self.out.line = line,
            Stream::Err => self.err.line = line,
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let remaining = self.half - self.head.len();
        let (first, rest) = bytes.split_at(remaining.min(bytes.len()));
        self.head.extend_from_slice(first);
        let last = &rest[rest.len().saturating_sub(self.half)..];
        let excess = (self.tail.len() + last.len()).saturating_sub(self.half);
        self.omitted |= excess > 0 || last.len() < rest.len();
        self.tail.drain(..excess);
        self.tail.extend(last);
    }

    /// Returns the last non-empty line, for progress messages.
    pub(super) fn last_line(&self) -> Option<String> {
        let pending = [&self.err.line, &self.out.line].into_iter().find(|line| !line.is_empty());
        let recent: Vec<u8> = match pending {
            Some(line) => line.clone(),
            None if self.tail.is_empty() => {
                let from = self.head.len().saturating_sub(PROGRESS_WINDOW_BYTES);
                self.head[from..].to_vec()
            }
            None => {
                let from = self.tail.len().saturating_sub(PROGRESS_WINDOW_BYTES);
                self.tail.range(from..).copied().collect()
            }
        };
        let text = String::from_utf8_lossy(&recent);
        let line = text.rsplit(['\n', '\r']).find(|line| !line.trim().is_empty())?;
        let plain = line.trim().chars().filter(|character| !character.is_control());
        Some(plain.take(MAX_PROGRESS_CHARS).collect())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.out.bytes + self.err.bytes
    }

    pub(super) fn finish(mut self) -> Output {
        for line in [std::mem::take(&mut self.out.line), std::mem::take(&mut self.err.line)] {
            self.append(&line);
        }
        let all_bytes = self.bytes();
        let (stdout_bytes, stderr_bytes) = (self.out.bytes, self.err.bytes);
        let (text, truncated) = self.into_text(all_bytes);
        Output { text, stdout_bytes, stderr_bytes, truncated }
    }

    fn into_text(self, all_bytes: u64) -> (String, bool) {
        let (half, mut head, tail) = (self.half, self.head, Vec::from(self.tail));
        let (head, tail) = if self.omitted {
            (
                String::from_utf8_lossy(&head).into_owned(),
                String::from_utf8_lossy(&tail).into_owned(),
            )
        } else {
            head.extend_from_slice(&tail);
            let text = String::from_utf8_lossy(&head).into_owned();
            // An invalid byte becomes a replacement character of three bytes.
            if text.len() <= 2 * half {
                return (text, false);
            }
            (text.clone(), text)
        };
        let head = &head[..head.floor_char_boundary(half)];
        let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(half))..];
        let note = format!("[the output has {all_bytes} bytes; its middle is omitted]");
        (format!("{head}\n{note}\n{tail}"), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_complete() {
        let mut capture = Capture::new(1024);
        capture.take(Stream::Out, b"one, ");
        capture.take(Stream::Err, b"warning\n");
        capture.take(Stream::Out, b"two\nthr\xc3");
        capture.take(Stream::Out, b"\xa9\xc3\xa9");
        assert_eq!(capture.last_line().as_deref(), Some("thréé"));
        let output = capture.finish();
        assert_eq!(output.text, "warning\none, two\nthréé");
        assert_eq!((output.stdout_bytes, output.stderr_bytes), (16, 8));
        assert!(!output.truncated);
    }

    #[test]
    fn long_output_keeps_beginning_and_end() {
        let mut capture = Capture::new(1024);
        for number in 0..100_000 {
            capture.take(Stream::Out, format!("line {number}\n").as_bytes());
        }
        let output = capture.finish();
        assert!(output.truncated);
        assert!(output.text.starts_with("line 0\nline 1\n"));
        assert!(output.text.ends_with("line 99998\nline 99999\n"));
        assert!(output.text.len() < 1024 + 100);
    }

    #[test]
    fn chunk_above_limit_is_truncated() {
        let mut capture = Capture::new(1024);
        capture.take(Stream::Err, &[0xff; 100_000]);
        let output = capture.finish();
        assert!(output.truncated && output.text.len() < 1024 + 100);
        assert_eq!(output.stderr_bytes, 100_000);
    }

    #[test]
    fn invalid_bytes_stay_within_limit() {
        let mut capture = Capture::new(1024);
        capture.take(Stream::Out, &[0xff; 1000]);
        let output = capture.finish();
        assert!(output.truncated && output.text.len() < 1024 + 100);
    }
}
