//! What a script printed: read from the log of its pod, up to a limit.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{AsyncRead, AsyncReadExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use tracing::debug;

use crate::{
    api::{ApiError, ask},
    pod::CONTAINER,
};

/// `run.py` writes lines of base64 of at most 64 KiB; longer ones are a script's own.
const LONGEST_LINE: usize = 128 * 1024;

/// What was printed, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Whether there is more than the limit.
    pub(crate) is_over: bool,
}

/// Where the log of a pod is read.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pods: Api<Pod>,
    name: String,
    limit: usize,
}

impl Log {
    pub(crate) fn of(pods: Api<Pod>, name: String, limit: usize) -> Self {
        Self { pods, name, limit }
    }

    /// Reads while the script prints.
    pub(crate) fn follow(&self) -> Following {
        let lines = Arc::new(Mutex::new(Lines::up_to(self.limit)));
        let (log, read) = (self.clone(), lines.clone());
        let reading = Box::pin(async move {
            match log.open(true).await {
                Ok(stream) => log.read(stream, &read).await,
                Err(error) => debug!(%error, pod = log.name, "a log can't be followed"),
            }
        });
        Following { lines, reading }
    }

    /// Reads all that a script that ended has printed: `printed` bytes, where that is known.
    pub(crate) async fn whole(&self, followed: Output, printed: Option<usize>) -> Output {
        let mut output = followed;
        for _ in 0..3 {
            if output.is_over || printed.is_some_and(|printed| output.bytes.len() >= printed) {
                break;
            }
            match self.once().await {
                Ok(read) if read.bytes.len() >= output.bytes.len() => output = read,
                Ok(_) => {}
                Err(error) => debug!(%error, pod = self.name, "a log can't be read"),
            }
            if printed.is_none() {
                break;
            }
        }
        output
    }

    async fn once(&self) -> Result<Output, ApiError> {
        let stream = self.open(false).await?;
        let lines = Mutex::new(Lines::up_to(self.limit));
        let reading = async {
            self.read(stream, &lines).await;
            Ok(())
        };
        ask(reading).await?;
        Ok(lines.into_inner().unwrap_or_else(PoisonError::into_inner).finish())
    }

    async fn open(&self, follow: bool) -> Result<Pin<Box<dyn AsyncRead + Send>>, ApiError> {
        let container = Some(CONTAINER.to_owned());
        let how = LogParams { container, follow, ..LogParams::default() };
        Ok(Box::pin(ask(self.pods.log_stream(&self.name, &how)).await?))
    }

    async fn read(&self, mut stream: Pin<Box<dyn AsyncRead + Send>>, lines: &Mutex<Lines>) {
        let mut chunk = vec![0; 16 * 1024];
        loop {
            let count = match stream.read(&mut chunk).await {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) => {
                    debug!(%error, pod = self.name, "a log broke off");
                    return;
                }
            };
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.take(&chunk[..count]);
            if lines.output.is_over {
                return;
            }
        }
    }
}

/// A log that is read while the script prints. What was read so far is not lost with it.
pub(crate) struct Following {
    lines: Arc<Mutex<Lines>>,
    reading: BoxFuture<'static, ()>,
}

impl Following {
    /// Reads until the script ends, the limit is passed, or the connection is lost. Can be given up
    /// and taken up again.
    ///
    /// That the connection ended well does not mean that the script did: see [`Log::whole`].
    pub(crate) async fn read_to_its_end(&mut self) {
        (&mut self.reading).await;
    }

    /// What was read.
    pub(crate) fn output(self) -> Output {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = lines.limit;
        std::mem::replace(&mut *lines, Lines::up_to(limit)).finish()
    }
}

/// Turns lines of base64 into what was printed. What is none, nobody printed.
#[derive(Debug)]
struct Lines {
    output: Output,
    limit: usize,
    /// A line without its end yet.
    line: Vec<u8>,
    /// Bytes of lines that are no base64. A script can write such past the process that watches it.
    foreign: usize,
}

impl Lines {
    fn up_to(limit: usize) -> Self {
        Self { output: Output::default(), limit, line: Vec::new(), foreign: 0 }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.end_of(&line);
        }
        self.line.extend_from_slice(bytes);
        self.output.is_over |= self.line.len() > LONGEST_LINE || self.foreign > self.limit;
    }

    /// A script that was killed may have left half a line.
    fn finish(mut self) -> Output {
        let line = std::mem::take(&mut self.line);
        self.end_of(&line[..line.len() / 4 * 4]);
        self.output
    }

    fn end_of(&mut self, line: &[u8]) {
        let Ok(printed) = BASE64_STANDARD.decode(line) else {
            self.foreign += line.len() + 1;
            return;
        };
        let room = self.limit - self.output.bytes.len();
        self.output.bytes.extend_from_slice(&printed[..printed.len().min(room)]);
        self.output.is_over |= printed.len() > room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&str]) -> (String, bool) {
        let mut lines = Lines::up_to(8);
        chunks.iter().for_each(|chunk| lines.take(chunk.as_bytes()));
        let Output { bytes, is_over } = lines.finish();
        (String::from_utf8(bytes).unwrap(), is_over)
    }

    #[test]
    fn what_was_printed_is_put_together_from_lines() {
        assert_eq!(read(&[]), (String::new(), false));
        assert_eq!(read(&["YWI=\nY", "2Q=", "\n"]), ("abcd".to_owned(), false));
        // Whoever is killed leaves what it wrote.
        assert_eq!(read(&["YWJj\nZGVmZ2"]), ("abcdef".to_owned(), false));
        assert_eq!(read(&["YWI=\n!!!\nY2Q=\n"]), ("abcd".to_owned(), false));
    }

    #[test]
    fn what_is_over_the_limit_is_cut_and_told() {
        let eight = "YWJjZGVmZ2g=\n";
        assert_eq!(read(&[eight]), ("abcdefgh".to_owned(), false));
        assert_eq!(read(&[eight, "YQ==\n"]), ("abcdefgh".to_owned(), true));
        assert_eq!(read(&["not base64\n"]), (String::new(), true));
        assert!(read(&[&"A".repeat(LONGEST_LINE + 1)]).1);
    }
}
