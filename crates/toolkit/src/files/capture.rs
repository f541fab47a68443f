//! Output of a command, within a bound: the beginning and the end.

use std::collections::VecDeque;

/// A line longer than this may be torn apart by the other stream.
const MAX_PENDING_BYTES: usize = 8 * 1024;
const MAX_PROGRESS_CHARS: usize = 200;
const PROGRESS_WINDOW_BYTES: usize = 2 * 1024;

/// Which end of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Takes both streams as they come, line by line, and keeps at most `cap` bytes of them.
#[derive(Debug)]
pub(super) struct Capture {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: bool,
    out: Pending,
    err: Pending,
}

/// A stream: the line that has begun, and all bytes there were.
#[derive(Debug, Default)]
struct Pending {
    line: Vec<u8>,
    bytes: u64,
}

/// All that is said of the output.
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
            left_out: false,
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
        // A line that begins before the window is too long to wait for its end.
        let window = chunk.len().saturating_sub(MAX_PENDING_BYTES);
        let newline = chunk[window..].iter().rposition(|byte| *byte == b'\n');
        let lines_end = newline.map_or(0, |end| window + end + 1);
        let (lines, rest) = chunk.split_at(lines_end);
        if !lines.is_empty() {
            self.keep(&line);
            self.keep(lines);
            line.clear();
        }
        if line.len() + rest.len() > MAX_PENDING_BYTES {
            self.keep(&line);
            self.keep(rest);
            line.clear();
        } else {
            line.extend_from_slice(rest);
        }
        match stream {
            Stream::Out => self.out.line = line,
            Stream::Err => self.err.line = line,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let last = &rest[rest.len().saturating_sub(self.half)..];
        let excess = (self.tail.len() + last.len()).saturating_sub(self.half);
        self.left_out |= excess > 0 || last.len() < rest.len();
        self.tail.drain(..excess);
        self.tail.extend(last);
    }

    /// The last line that says something, for people who watch.
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
            self.keep(&line);
        }
        let all_bytes = self.bytes();
        let (stdout_bytes, stderr_bytes) = (self.out.bytes, self.err.bytes);
        let (text, truncated) = self.into_text(all_bytes);
        Output { text, stdout_bytes, stderr_bytes, truncated }
    }

    fn into_text(self, all_bytes: u64) -> (String, bool) {
        let (half, mut head, tail) = (self.half, self.head, Vec::from(self.tail));
        let (head, tail) = if self.left_out {
            (
                String::from_utf8_lossy(&head).into_owned(),
                String::from_utf8_lossy(&tail).into_owned(),
            )
        } else {
            head.extend_from_slice(&tail);
            let text = String::from_utf8_lossy(&head).into_owned();
            // Wrong bytes grow to three when they are made text.
            if text.len() <= 2 * half {
                return (text, false);
            }
            (text.clone(), text)
        };
        let head = &head[..head.floor_char_boundary(half)];
        let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(half))..];
        let note = format!("[the output has {all_bytes} bytes; its middle is left out]");
        (format!("{head}\n{note}\n{tail}"), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_whole_and_lines_of_both_streams_stay_whole() {
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
    fn long_output_keeps_its_beginning_and_its_end() {
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
    fn one_chunk_larger_than_the_bound_is_cut() {
        let mut capture = Capture::new(1024);
        capture.take(Stream::Err, &[0xff; 100_000]);
        let output = capture.finish();
        assert!(output.truncated && output.text.len() < 1024 + 100);
        assert_eq!(output.stderr_bytes, 100_000);
    }

    #[test]
    fn wrong_bytes_do_not_grow_past_the_bound() {
        let mut capture = Capture::new(1024);
        capture.take(Stream::Out, &[0xff; 1000]);
        let output = capture.finish();
        assert!(output.truncated && output.text.len() < 1024 + 100);
    }
}
