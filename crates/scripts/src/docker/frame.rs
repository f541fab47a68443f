//! Frames that the first process of a container writes; see `run.py`.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

const HEADER_BYTES: usize = 5;
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// A message of the first process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The process is ready for the script.
    Ready,
    /// The script is starting.
    Started,
    /// The script wrote to stdout.
    Stdout(Vec<u8>),
    /// The script wrote to stderr.
    Stderr(Vec<u8>),
    /// The script has exited.
    Exited { exit_code: i32, elapsed_ms: u64, out_of_memory: bool },
}

/// Reads frames from a byte stream.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::with_capacity(HEADER_BYTES + MAX_FRAME_BYTES) }
    }

    /// Returns the next frame, or `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.parse()? {
                return Ok(Some(frame));
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn parse(&mut self) -> io::Result<Option<Frame>> {
        let Some(([kind, length @ ..], rest)) = self.buffer.split_first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_FRAME_BYTES {
            return Err(malformed());
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = match kind {
            b'r' => Frame::Ready,
            b's' => Frame::Started,
            b'o' => Frame::Stdout(payload.to_vec()),
            b'e' => Frame::Stderr(payload.to_vec()),
            b'x' => parse_exit(payload).ok_or_else(malformed)?,
            _ => return Err(malformed()),
        };
        self.buffer.drain(..HEADER_BYTES + length);
        Ok(Some(frame))
    }
}

fn parse_exit(payload: &[u8]) -> Option<Frame> {
    let mut fields = std::str::from_utf8(payload).ok()?.split(' ');
    let exit_code = fields.next()?.parse().ok()?;
    let elapsed_ms = fields.next()?.parse().ok()?;
    let out_of_memory = fields.next()? == "1";
    Some(Frame::Exited { exit_code, elapsed_ms, out_of_memory })
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed frame from the container")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(bytes: &[u8]) -> Vec<io::Result<Frame>> {
        let mut frames = FrameReader::new(bytes);
        let mut found = Vec::new();
        while let Some(frame) = frames.next().await.transpose() {
            let last = frame.is_err();
            found.push(frame);
            if last {
                break;
            }
        }
        found
    }

    #[tokio::test]
    async fn frames_are_parsed_in_order() {
        let bytes = b"r\0\0\0\0s\0\0\0\0o\x02\0\0\0hix\x07\0\0\x00137 5 1";
        let parsed: Vec<_> = frames(&bytes[..]).await.into_iter().flatten().collect();
        let exited = Frame::Exited { exit_code: 137, elapsed_ms: 5, out_of_memory: true };
        assert_eq!(parsed, [Frame::Ready, Frame::Started, Frame::Stdout(b"hi".to_vec()), exited]);
    }

    #[tokio::test]
    async fn malformed_frame_is_error_and_partial_frame_is_end() {
        for bytes in [&b"?\0\0\0\0"[..], b"o\xff\xff\xff\xff", b"x\x01\0\0\0z"] {
            assert!(frames(bytes).await.pop().unwrap().is_err(), "{bytes:?}");
        }
        assert!(frames(b"o\x05\0\0\0half").await.is_empty());
    }
}
