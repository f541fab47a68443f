//! A script's container, removed when its owner drops it.

use std::{process::ExitStatus, time::Duration};

use rockbot_child::{Pipes, ProcessGroup};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
    runtime::Handle,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::{
    command::{DockerCli, MAX_STDERR_BYTES},
    error::DockerError,
    frame::{Frame, FrameReader},
};
use crate::permits::RunPermit;

/// Time limit for Docker to detect the exit of a container and to remove it.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts to remove a container.
const REMOVE_INTERVAL: Duration = Duration::from_millis(200);
/// Time limit for the removal of a container.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(60);

/// A container and the `docker run` process that is attached to it.
///
/// Killing the `docker run` process does not stop the container. The container stops at the end of its
/// standard input, which its first process reads; this also works when the runner is killed. Dropping
/// this closes standard input and spawns a task that removes the container. The permit is released
/// when the container is removed.
#[derive(Debug)]
pub(super) struct Container {
    stdin: Option<ChildStdin>,
    frames: Option<FrameReader<ChildStdout>>,
    stderr: Option<ChildStderr>,
    cleanup: Option<Cleanup>,
    cleanups: TaskTracker,
    has_exited: bool,
}

/// The resources to release after a container.
#[derive(Debug)]
struct Cleanup {
    process: Option<ProcessGroup>,
    docker: DockerCli,
    run: String,
    _permit: RunPermit,
}

impl Container {
    /// Starts a container with `arguments`, labelled with `run`. `cleanups` owns the removal tasks.
    pub(super) fn start(
        docker: &DockerCli,
        arguments: &[String],
        run: String,
        permit: RunPermit,
        cleanups: &TaskTracker,
    ) -> Result<Self, DockerError> {
        let (process, Pipes { stdin, stdout, stderr }) = docker.spawn(arguments)?;
        let cleanup =
            Cleanup { process: Some(process), docker: docker.clone(), run, _permit: permit };
        Ok(Self {
            stdin,
            frames: stdout.map(FrameReader::new),
            stderr,
            cleanup: Some(cleanup),
            cleanups: cleanups.clone(),
            has_exited: false,
        })
    }

    /// Returns the next frame of the first process, or `None` at the end.
    pub(super) async fn next_frame(&mut self) -> std::io::Result<Option<Frame>> {
        match &mut self.frames {
            Some(frames) => frames.next().await,
            None => Ok(None),
        }
    }

    /// Writes to the standard input of the first process.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        stdin.write_all(bytes).await?;
        stdin.flush().await
    }

    /// Records that the first process has exited regularly: Docker then removes the container.
    pub(super) fn mark_exited(&mut self) {
        self.has_exited = true;
    }

    /// Waits for the `docker run` process and returns its exit status and stderr.
    pub(super) async fn finish(&mut self) -> (Option<ExitStatus>, Vec<u8>) {
        let mut output = Vec::new();
        let Some(mut process) = self.cleanup.as_mut().and_then(|cleanup| cleanup.process.take())
        else {
            return (None, output);
        };
        if let Some(stderr) = self.stderr.take() {
            let mut stderr = stderr.take(MAX_STDERR_BYTES);
            let reading = timeout(EXIT_TIMEOUT, stderr.read_to_end(&mut output));
            if !matches!(reading.await, Ok(Ok(_))) {
                debug!("docker stderr incomplete");
            }
        }
        let exited = timeout(EXIT_TIMEOUT, process.wait_for_leader()).await.is_ok();
        let status = process.finish().await;
        (status.filter(|_| exited), output)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // First, so that the first process sees the end of its input and can't block on its output.
        drop((self.stdin.take(), self.frames.take()));
        let (stderr, has_exited) = (self.stderr.take(), self.has_exited);
        if let Some(cleanup) = self.cleanup.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let task = async move {
                // Kept open: `docker run` may still write to it.
                let _stderr = stderr;
                cleanup.run(has_exited).await;
            };
            drop(self.cleanups.spawn_on(task, &runtime));
        }
    }
}

impl Cleanup {
    async fn run(mut self, has_exited: bool) {
        let mut process = self.process.take();
        // With `--rm`, `docker run` exits once the container is removed.
        if has_exited
            && let Some(process) = &mut process
            && timeout(EXIT_TIMEOUT, process.wait_for_leader()).await.is_ok()
        {
            return;
        }
        if timeout(REMOVE_TIMEOUT, self.remove(process.as_mut())).await.is_err() {
            warn!(run = self.run, "container removal timed out; it stops at its deadline");
        }
        if let Some(process) = process {
            process.finish().await;
        }
    }

    /// Removes the container until none is left: while `docker run` is running, it may still create one.
    async fn remove(&self, mut process: Option<&mut ProcessGroup>) {
        loop {
            let has_exited = match &mut process {
                Some(process) => timeout(Duration::ZERO, process.wait_for_leader()).await.is_ok(),
                None => true,
            };
            match self.docker.remove(&self.run).await {
                Ok(0) if has_exited => return,
                Ok(_) => {}
                Err(
                    error
                    @ (DockerError::DaemonUnavailable { .. } | DockerError::CliMissing { .. }),
                ) => {
                    warn!(%error, run = self.run, "container removal failed");
                    return;
                }
                Err(error) => debug!(%error, run = self.run, "container removal attempt failed"),
            }
            sleep(REMOVE_INTERVAL).await;
        }
    }
}
