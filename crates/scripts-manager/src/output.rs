//! What a script printed: read from the log of its pod, up to a limit.

use std::pin::Pin;

use futures_util::{AsyncRead, AsyncReadExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use tracing::debug;

use crate::{
    api::{ApiError, ask},
    pod::CONTAINER,
};

/// The log of a pod, as far as it was read.
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

    /// Reads while the script prints, until it ends, the limit is passed, or the connection is lost.
    ///
    /// That the connection ended well does not mean that the script did: see [`Self::whole`].
    pub(crate) fn follow(&self) -> BoxFuture<'static, Output> {
        let log = self.clone();
        Box::pin(async move {
            let mut output = Output::default();
            match log.open(true).await {
                Ok(mut stream) => log.read(stream.as_mut(), &mut output).await,
                Err(error) => debug!(%error, pod = log.name, "a log can't be followed"),
            }
            output
        })
    }

    /// Reads all that a script that ended has printed: `printed` bytes, where that is known.
    pub(crate) async fn whole(&self, followed: Output, printed: Option<usize>) -> Output {
        let enough = |output: &Output| {
            output.is_over || printed.is_some_and(|printed| output.bytes.len() >= printed)
        };
        let mut output = followed;
        for _ in 0..3 {
            if enough(&output) {
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
        if let Some(printed) = printed {
            // The node ends a last line that had no end.
            output.bytes.truncate(printed);
        }
        output
    }

    async fn once(&self) -> Result<Output, ApiError> {
        let mut stream = self.open(false).await?;
        let mut output = Output::default();
        ask(async {
            self.read(stream.as_mut(), &mut output).await;
            Ok(())
        })
        .await?;
        Ok(output)
    }

    async fn open(&self, follow: bool) -> Result<Pin<Box<dyn AsyncRead + Send>>, ApiError> {
        let container = Some(CONTAINER.to_owned());
        let how = LogParams { container, follow, ..LogParams::default() };
        Ok(Box::pin(ask(self.pods.log_stream(&self.name, &how)).await?))
    }

    async fn read(&self, mut stream: Pin<&mut (dyn AsyncRead + Send)>, output: &mut Output) {
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
            let room = self.limit - output.bytes.len();
            output.bytes.extend_from_slice(&chunk[..count.min(room)]);
            // One more is the end of a last line that had no end.
            if count > room + 1 || (count > room && chunk[room] != b'\n') {
                output.is_over = true;
                return;
            }
        }
    }
}
