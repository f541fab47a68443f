//! The output of a script, read from the log of its pod up to a limit.

use std::{pin::Pin, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{AsyncRead, AsyncReadExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use parking_lot::Mutex;
use rockbot_scripts::OutputProgress;
use tracing::debug;

use crate::{
    api::{ApiError, request},
    pod_parts::CONTAINER,
};

/// The longest accepted line of the log. `run.py` writes lines of base64 of at most 64 KiB; longer lines
/// are written by a script.
const MAX_LINE_BYTES: usize = 128 * 1024;

/// The output that was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Set when the output exceeds the limit.
    pub(crate) is_over_limit: bool,
}

impl Output {
    /// Returns the text, with replacement characters for invalid bytes.
    pub(crate) fn into_text(self) -> String {
        String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

/// The log of a pod.
#[derive(Debug, Clone)]
pub(crate) struct PodLog {
    pods: Api<Pod>,
    name: String,
    limit: usize,
    /// The log that was read while the script ran.
    followed: Arc<Mutex<LineDecoder>>,
}

impl PodLog {
    pub(crate) fn new(pods: Api<Pod>, name: String, limit: usize) -> Self {
        let followed = Arc::new(Mutex::new(LineDecoder::new(limit)));
        Self { pods, name, limit, followed }
    }

    /// Reads the log while the script runs, once, and reports the output as progress.
    pub(crate) fn follow(&self, mut progress: OutputProgress) -> LogFollower {
        let log = self.clone();
        let reading = Box::pin(async move {
            match log.open(true).await {
                Ok(stream) => log.read(stream, &log.followed, &mut progress).await,
                Err(error) => debug!(%error, pod = log.name, "following a pod log failed"),
            }
        });
        LogFollower { reading }
    }

    /// Returns the output that was read while the script ran.
    pub(crate) fn followed(&self) -> Output {
        self.followed.lock().output_so_far()
    }

    /// Reads the rest of an exited script's output, of which `expected` bytes exist if that is known.
    pub(crate) async fn complete(&self, expected: Option<usize>) -> Output {
        let mut output = self.followed();
        for _ in 0..3 {
            if output.is_over_limit
                || expected.is_some_and(|expected| output.bytes.len() >= expected)
            {
                break;
            }
            match self.read_all().await {
                Ok(read) if read.bytes.len() >= output.bytes.len() => output = read,
                Ok(_) => {}
                Err(error) => debug!(%error, pod = self.name, "reading a pod log failed"),
            }
            if expected.is_none() {
                break;
            }
        }
        output
    }

    async fn read_all(&self) -> Result<Output, ApiError> {
        let stream = self.open(false).await?;
        let decoder = Mutex::new(LineDecoder::new(self.limit));
        let reading = async {
            self.read(stream, &decoder, &mut OutputProgress::disabled()).await;
            Ok(())
        };
        request(reading).await?;
        Ok(decoder.into_inner().output_so_far())
    }

    async fn open(&self, follow: bool) -> Result<Pin<Box<dyn AsyncRead + Send>>, ApiError> {
        let container = Some(CONTAINER.to_owned());
        let params = LogParams { container, follow, ..LogParams::default() };
        Ok(Box::pin(request(self.pods.log_stream(&self.name, &params)).await?))
    }

    async fn read(
        &self,
        mut stream: Pin<Box<dyn AsyncRead + Send>>,
        decoder: &Mutex<LineDecoder>,
        progress: &mut OutputProgress,
    ) {
        let mut chunk = vec![0; 16 * 1024];
        loop {
            let read = tokio::select! {
                read = stream.read(&mut chunk) => read,
                () = progress.report() => continue,
            };
            let count = match read {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) => {
                    debug!(%error, pod = self.name, "pod log interrupted");
                    return;
                }
            };
            let mut decoder = decoder.lock();
            let known = decoder.output.bytes.len();
            decoder.push(&chunk[..count]);
            progress.push(&decoder.output.bytes[known..]);
            if decoder.output.is_over_limit {
                return;
            }
        }
    }
}

/// Reads a log while the script runs. Cancelling a read loses no output.
pub(crate) struct LogFollower {
    reading: BoxFuture<'static, ()>,
}

impl LogFollower {
    /// Reads until the script exits, the limit is exceeded, or the connection is lost. Cancel safe: may be
    /// called again until it has returned, and panics after that.
    ///
    /// A closed connection does not imply that the script has exited: see [`PodLog::complete`].
    pub(crate) async fn read_to_end(&mut self) {
        (&mut self.reading).await;
    }
}

/// Decodes lines of base64 to output. Other lines are not output.
#[derive(Debug)]
struct LineDecoder {
    output: Output,
    limit: usize,
    /// An incomplete line.
    line: Vec<u8>,
    /// Bytes of lines that are not base64, which a script can write past its parent process.
    foreign: usize,
}

impl LineDecoder {
    fn new(limit: usize) -> Self {
        Self { output: Output::default(), limit, line: Vec::new(), foreign: 0 }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.foreign += decode(&line, &mut self.output, self.limit);
        }
        self.line.extend_from_slice(bytes);
        self.output.is_over_limit |= self.line.len() > MAX_LINE_BYTES || self.foreign > self.limit;
    }

    /// Returns the output, including an incomplete last line, such as of a killed script.
    fn output_so_far(&self) -> Output {
        let mut output = self.output.clone();
        decode(&self.line[..self.line.len() / 4 * 4], &mut output, self.limit);
        output
    }
}

/// Appends a decoded line to the output, as far as the limit permits. Returns the bytes of a line that is
/// not base64.
fn decode(line: &[u8], output: &mut Output, limit: usize) -> usize {
    let Ok(decoded) = BASE64_STANDARD.decode(line) else { return line.len() + 1 };
    let capacity = limit - output.bytes.len();
    output.bytes.extend_from_slice(&decoded[..decoded.len().min(capacity)]);
    output.is_over_limit |= decoded.len() > capacity;
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&str]) -> (String, bool) {
        let mut decoder = LineDecoder::new(8);
        chunks.iter().for_each(|chunk| decoder.push(chunk.as_bytes()));
        let Output { bytes, is_over_limit } = decoder.output_so_far();
        (String::from_utf8(bytes).unwrap(), is_over_limit)
    }

    #[test]
    fn output_is_decoded_from_lines() {
        assert_eq!(read(&[]), (String::new(), false));
        assert_eq!(read(&["YWI=\nY", "2Q=", "\n"]), ("abcd".to_owned(), false));
        // A killed script leaves an incomplete line.
        assert_eq!(read(&["YWJj\nZGVmZ2"]), ("abcdef".to_owned(), false));
        assert_eq!(read(&["YWI=\n!!!\nY2Q=\n"]), ("abcd".to_owned(), false));
    }

    #[test]
    fn output_over_limit_is_cut() {
        let eight = "YWJjZGVmZ2g=\n";
        assert_eq!(read(&[eight]), ("abcdefgh".to_owned(), false));
        assert_eq!(read(&[eight, "YQ==\n"]), ("abcdefgh".to_owned(), true));
        assert_eq!(read(&["not base64\n"]), (String::new(), true));
        assert!(read(&[&"A".repeat(MAX_LINE_BYTES + 1)]).1);
    }
}
