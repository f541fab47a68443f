//! What the first process of a container says: see `run.py` beside this.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

const HEAD_BYTES: usize = 5;
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// One thing said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// It is ready for the script.
    Ready,
    /// The script starts now.
    Started,
    /// The script printed.
    Printed(Vec<u8>),
    /// The script complained.
    Complained(Vec<u8>),
    /// The script ended.
    Ended { exit_code: i32, elapsed_ms: u64, out_of_memory: bool },
}

/// Frames out of a stream of bytes.
#[derive(Debug)]
pub(super) struct Frames<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn of(reader: R) -> Self {
        Self { reader, buffer: Vec::with_capacity(HEAD_BYTES + MAX_FRAME_BYTES) }
    }

    /// The next one; none at the end. Dropped, it loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take(&mut self) -> io::Result<Option<Frame>> {
        let Some(([kind, length @ ..], rest)) = self.buffer.split_first_chunk::<HEAD_BYTES>()
        else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_FRAME_BYTES {
            return Err(malformed());
        }
        let Some(said) = rest.get(..length) else { return Ok(None) };
        let frame = match kind {
            b'r' => Frame::Ready,
            b's' => Frame::Started,
            b'o' => Frame::Printed(said.to_vec()),
            b'e' => Frame::Complained(said.to_vec()),
            b'x' => ended(said).ok_or_else(malformed)?,
            _ => return Err(malformed()),
        };
        self.buffer.drain(..HEAD_BYTES + length);
        Ok(Some(frame))
    }
}

fn ended(said: &[u8]) -> Option<Frame> {
    let mut words = std::str::from_utf8(said).ok()?.split(' ');
    let exit_code = words.next()?.parse().ok()?;
    let elapsed_ms = words.next()?.parse().ok()?;
    let out_of_memory = words.next()? == "1";
    Some(Frame::Ended { exit_code, elapsed_ms, out_of_memory })
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the container speaks another language")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(bytes: &[u8]) -> Vec<io::Result<Frame>> {
        let mut frames = Frames::of(bytes);
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
    async fn frames_come_out_as_they_went_in() {
        let bytes = b"r\0\0\0\0s\0\0\0\0o\x02\0\0\0hix\x07\0\0\x00137 5 1";
        let said: Vec<_> = frames(&bytes[..]).await.into_iter().flatten().collect();
        let ended = Frame::Ended { exit_code: 137, elapsed_ms: 5, out_of_memory: true };
        assert_eq!(said, [Frame::Ready, Frame::Started, Frame::Printed(b"hi".to_vec()), ended]);
    }

    #[tokio::test]
    async fn what_is_no_frame_is_an_error_and_half_a_frame_is_none() {
        for bytes in [&b"?\0\0\0\0"[..], b"o\xff\xff\xff\xff", b"x\x01\0\0\0z"] {
            assert!(frames(bytes).await.pop().unwrap().is_err(), "{bytes:?}");
        }
        assert!(frames(b"o\x05\0\0\0half").await.is_empty());
    }
}
