//! The output of a script, read from the log of its pod up to a limit.

use std::{pin::Pin, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{AsyncRead, AsyncReadExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use parking_lot::Mutex;
use tracing::debug;

use crate::{
    api::{ApiError, request},
    pod::CONTAINER,
};

/// The longest accepted line of the log. `run.py` writes lines of base64 of at most 64 KiB; longer lines
/// are written by a script.
const MAX_LINE_BYTES: usize = 128 * 1024;

/// The output that was read.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Set when the output exceeds the limit.
    pub(crate) is_over_limit: bool,
}

/// The log of a pod.
#[derive(Debug, Clone)]
pub(crate) struct PodLog {
    pods: Api<Pod>,
    name: String,
    limit: usize,
}

impl PodLog {
    pub(crate) fn new(pods: Api<Pod>, name: String, limit: usize) -> Self {
        Self { pods, name, limit }
    }

    /// Reads the log while the script runs.
    pub(crate) fn follow(&self) -> LogFollower {
        let decoder = Arc::new(Mutex::new(LineDecoder::new(self.limit)));
        let (log, target) = (self.clone(), decoder.clone());
        let reading = Box::pin(async move {
            match log.open(true).await {
                Ok(stream) => log.read(stream, &target).await,
                Err(error) => debug!(%error, pod = log.name, "following a pod log failed"),
            }
        });
        LogFollower { decoder, reading }
    }

    /// Reads the rest of an exited script's output, of which `expected` bytes exist if that is known.
    pub(crate) async fn complete(&self, followed: Output, expected: Option<usize>) -> Output {
        let mut output = followed;
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
            self.read(stream, &decoder).await;
            Ok(())
        };
        request(reading).await?;
        Ok(decoder.into_inner().finish())
    }

    async fn open(&self, follow: bool) -> Result<Pin<Box<dyn AsyncRead + Send>>, ApiError> {
        let container = Some(CONTAINER.to_owned());
        let params = LogParams { container, follow, ..LogParams::default() };
        Ok(Box::pin(request(self.pods.log_stream(&self.name, &params)).await?))
    }

    async fn read(&self, mut stream: Pin<Box<dyn AsyncRead + Send>>, decoder: &Mutex<LineDecoder>) {
        let mut chunk = vec![0; 16 * 1024];
        loop {
            let count = match stream.read(&mut chunk).await {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) => {
                    debug!(%error, pod = self.name, "pod log interrupted");
                    return;
                }
            };
            let mut decoder = decoder.lock();
            decoder.push(&chunk[..count]);
            if decoder.output.is_over_limit {
                return;
            }
        }
    }
}

/// Reads a log while the script runs. Cancelling a read loses no output.
pub(crate) struct LogFollower {
    decoder: Arc<Mutex<LineDecoder>>,
    reading: BoxFuture<'static, ()>,
}

impl LogFollower {
    /// Reads until the script exits, the limit is exceeded, or the connection is lost. Cancel safe; may
    /// be called again.
    ///
    /// A closed connection does not imply that the script has exited: see [`PodLog::complete`].
    pub(crate) async fn read_to_end(&mut self) {
        (&mut self.reading).await;
    }

    /// Returns the output read so far.
    pub(crate) fn into_output(self) -> Output {
        let mut decoder = self.decoder.lock();
        let limit = decoder.limit;
        std::mem::replace(&mut *decoder, LineDecoder::new(limit)).finish()
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
            self.decode(&line);
        }
        self.line.extend_from_slice(bytes);
        self.output.is_over_limit |= self.line.len() > MAX_LINE_BYTES || self.foreign > self.limit;
    }

    /// Returns the output, including an incomplete last line of a killed script.
    fn finish(mut self) -> Output {
        let line = std::mem::take(&mut self.line);
        self.decode(&line[..line.len() / 4 * 4]);
        self.output
    }

    fn decode(&mut self, line: &[u8]) {
        let Ok(decoded) = BASE64_STANDARD.decode(line) else {
            self.foreign += line.len() + 1;
            return;
        };
        let capacity = self.limit - self.output.bytes.len();
        self.output.bytes.extend_from_slice(&decoded[..decoded.len().min(capacity)]);
        self.output.is_over_limit |= decoded.len() > capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&str]) -> (String, bool) {
        let mut decoder = LineDecoder::new(8);
        chunks.iter().for_each(|chunk| decoder.push(chunk.as_bytes()));
        let Output { bytes, is_over_limit } = decoder.finish();
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
