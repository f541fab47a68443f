//! A run of a script in its container.

use std::time::Duration;

use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{Executed, ToolFailure};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::{container::Container, error::DockerError, frame::Frame, options::DockerOptions};
use crate::{
    finished::FinishedScript,
    output::{HeadBuffer, TailBuffer},
    output_progress::OutputProgress,
    runner::Script,
    stopped::with_output,
};

/// The time beyond the runner's timeout after which the container stops the script.
const CONTAINER_TIMEOUT_MARGIN: Duration = Duration::from_secs(10);
/// The exit code of a killed process.
const KILLED: i32 = 137;
/// The exit code of `docker run` for Docker's own errors.
const DOCKER_FAILED: i32 = 125;

/// The request that is sent to the first process of the container.
#[derive(Serialize)]
struct Request<'a> {
    script: &'a str,
    input: Option<&'a str>,
    /// Set when the input also fits into a variable.
    variable: bool,
    seconds: u64,
}

/// Follows one script.
#[derive(Debug)]
pub(super) struct Run<'a> {
    script: &'a Script,
    options: &'a DockerOptions,
    container: Container,
    deadline: Instant,
    requested_at: Instant,
    /// The time at which the next frame is overdue.
    next_frame_due: Instant,
    started: Option<Instant>,
    executed: Executed,
    stdout: HeadBuffer,
    stderr: TailBuffer,
    progress: OutputProgress,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        script: &'a Script,
        options: &'a DockerOptions,
        container: Container,
        deadline: Instant,
        progress: OutputProgress,
    ) -> Self {
        let requested_at = Instant::now();
        Self {
            script,
            options,
            container,
            deadline,
            requested_at,
            next_frame_due: deadline.min(requested_at + options.start_timeout),
            started: None,
            executed: Executed::No,
            stdout: HeadBuffer::new(options.stdout_bytes),
            stderr: TailBuffer::new(options.stderr_bytes),
            progress,
        }
    }

    /// Returns the failure of a cancelled script.
    pub(super) fn cancelled(mut self) -> ToolFailure {
        let failure = ToolFailure::Cancelled { executed: self.executed };
        self.with_output(failure)
    }

    /// Waits until the script has finished or reaches a limit. Dropping this stops it.
    pub(super) async fn follow(&mut self) -> Result<FinishedScript, ToolFailure> {
        loop {
            let next = tokio::select! {
                next = timeout_at(self.next_frame_due, self.container.next_frame()) => next,
                () = self.progress.report() => continue,
            };
            let Ok(next) = next else {
                return Err(self.timeout_failure());
            };
            let frame = match next {
                Ok(Some(frame)) => frame,
                Ok(None) => return self.container_exited().await,
                Err(error) => {
                    debug!(%error, "container output unreadable");
                    return self.container_exited().await;
                }
            };
            match frame {
                Frame::Ready => self.send().await?,
                Frame::Started => {
                    let now = Instant::now();
                    (self.started, self.executed) = (Some(now), Executed::Yes);
                    self.next_frame_due = self.deadline.min(now + self.script.timeout());
                }
                Frame::Stdout(bytes) => {
                    self.progress.push(&bytes);
                    if !self.stdout.push(&bytes) {
                        let elapsed = self.elapsed();
                        return Ok(self.finished(KILLED, Some(ScriptLimit::Output), elapsed));
                    }
                }
                Frame::Stderr(bytes) => self.stderr.push(&bytes),
                Frame::Exited { exit_code, elapsed_ms, out_of_memory } => {
                    self.container.mark_exited();
                    let limit = out_of_memory.then_some(ScriptLimit::Memory);
                    let elapsed = Duration::from_millis(elapsed_ms);
                    return Ok(self.finished(exit_code, limit, elapsed));
                }
            }
        }
    }

    /// Sends the script to a container that is ready. Before this, the script can't have run.
    async fn send(&mut self) -> Result<(), ToolFailure> {
        let request = Request {
            script: self.script.code(),
            input: self.script.input(),
            variable: self.script.environment_input().is_some(),
            seconds: (self.script.timeout() + CONTAINER_TIMEOUT_MARGIN).as_secs(),
        };
        let mut line = serde_json::to_vec(&request).map_err(|error| {
            ToolFailure::failed_with_source("the script could not be encoded", error)
        })?;
        line.push(b'\n');
        self.executed = Executed::Unknown;
        match timeout_at(self.next_frame_due, self.container.send(&line)).await {
            Ok(Ok(())) => Ok(()),
            // The cause is found when its output is read.
            Ok(Err(error)) => {
                debug!(%error, "sending a script to its container failed");
                Ok(())
            }
            Err(_) => Err(self.timeout_failure()),
        }
    }

    fn timeout_failure(&mut self) -> ToolFailure {
        let now = Instant::now();
        if self.started.is_none() && now < self.deadline {
            return DockerError::Timeout { after: self.options.start_timeout }
                .into_failure(self.executed);
        }
        let after = now.saturating_duration_since(self.started.unwrap_or(self.requested_at));
        let failure = ToolFailure::TimedOut { after, executed: self.executed, repeatable: false };
        self.with_output(failure)
    }

    /// Adds what the script printed to a failure.
    fn with_output(&mut self, failure: ToolFailure) -> ToolFailure {
        let (stdout, stderr) = self.take_output();
        with_output(failure, &stdout, &stderr)
    }

    fn take_output(&mut self) -> (String, String) {
        let stdout = std::mem::replace(&mut self.stdout, HeadBuffer::new(0)).into_text();
        let stderr = std::mem::replace(&mut self.stderr, TailBuffer::new(0)).into_text();
        (stdout, stderr)
    }

    /// The first process exited without a final frame, or never started.
    async fn container_exited(&mut self) -> Result<FinishedScript, ToolFailure> {
        let (status, stderr) = self.container.finish().await;
        let code = status.and_then(|status| status.code()).unwrap_or(DOCKER_FAILED);
        if self.started.is_none() || code == DOCKER_FAILED {
            return Err(DockerError::from_stderr(&stderr).into_failure(self.executed));
        }
        // A script can make the first process exit, which counts as its own exit. It can't kill it:
        // only the kernel does, when it is out of memory.
        let limit = (code == KILLED).then_some(ScriptLimit::Memory);
        let elapsed = self.elapsed();
        Ok(self.finished(code, limit, elapsed))
    }

    fn elapsed(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    fn finished(
        &mut self,
        exit_code: i32,
        ended_by: Option<ScriptLimit>,
        elapsed: Duration,
    ) -> FinishedScript {
        let (stdout, stderr) = self.take_output();
        FinishedScript { stdout, stderr, exit_code, ended_by, elapsed }
    }
}
