//! One script, from its container to its end.

use std::time::Duration;

use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{Executed, ToolFailure};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::{container::Container, failure::DockerError, frame::Frame, options::DockerOptions};
use crate::{
    ended::Ended,
    output::{Beginning, End},
    runner::Script,
};

/// How much longer than we the container itself waits before it ends the script.
const MARGIN: Duration = Duration::from_secs(10);
/// The code of a process that was killed.
const KILLED: i32 = 137;
/// Docker's own failures, as the exit code of its command line.
const DOCKER_FAILED: i32 = 125;

/// What the first process of a container is told.
#[derive(Serialize)]
struct Request<'a> {
    script: &'a str,
    input: Option<&'a str>,
    /// Whether the input fits into a variable.
    variable: bool,
    seconds: u64,
}

/// Follows a script.
#[derive(Debug)]
pub(super) struct Run<'a> {
    script: &'a Script,
    options: &'a DockerOptions,
    container: Container,
    deadline: Instant,
    asked: Instant,
    /// Until when the next thing must have been said.
    limit: Instant,
    started: Option<Instant>,
    executed: Executed,
    stdout: Beginning,
    stderr: End,
}

impl<'a> Run<'a> {
    pub(super) fn of(
        script: &'a Script,
        options: &'a DockerOptions,
        container: Container,
        deadline: Instant,
    ) -> Self {
        let asked = Instant::now();
        Self {
            script,
            options,
            container,
            deadline,
            asked,
            limit: deadline.min(asked + options.start_timeout),
            started: None,
            executed: Executed::No,
            stdout: Beginning::new(options.stdout_bytes),
            stderr: End::new(options.stderr_bytes),
        }
    }

    /// Whether the script ran, as far as that is known.
    pub(super) fn executed(&self) -> Executed {
        self.executed
    }

    /// Returns when the script has ended, or must: dropping this ends it.
    pub(super) async fn follow(&mut self) -> Result<Ended, ToolFailure> {
        loop {
            let Ok(said) = timeout_at(self.limit, self.container.next()).await else {
                return Err(self.late());
            };
            let frame = match said {
                Ok(Some(frame)) => frame,
                Ok(None) => return self.lost().await,
                Err(error) => {
                    debug!(%error, "a container can't be understood");
                    return self.lost().await;
                }
            };
            match frame {
                Frame::Ready => self.send().await?,
                Frame::Started => {
                    let now = Instant::now();
                    (self.started, self.executed) = (Some(now), Executed::Yes);
                    self.limit = self.deadline.min(now + self.script.timeout());
                }
                Frame::Printed(bytes) => {
                    if !self.stdout.take(&bytes) {
                        let elapsed = self.elapsed();
                        return Ok(self.ended(KILLED, Some(ScriptLimit::Output), elapsed));
                    }
                }
                Frame::Complained(bytes) => self.stderr.take(&bytes),
                Frame::Ended { exit_code, elapsed_ms, out_of_memory } => {
                    self.container.ended();
                    let memory = out_of_memory.then_some(ScriptLimit::Memory);
                    return Ok(self.ended(exit_code, memory, Duration::from_millis(elapsed_ms)));
                }
            }
        }
    }

    /// Only what is ready for it is sent the script: until then it can't have run.
    async fn send(&mut self) -> Result<(), ToolFailure> {
        let request = Request {
            script: self.script.code(),
            input: self.script.input(),
            variable: self.script.environment_input().is_some(),
            seconds: (self.script.timeout() + MARGIN).as_secs(),
        };
        let mut line = serde_json::to_vec(&request)
            .map_err(|error| ToolFailure::caused("the script can't be sent", error))?;
        line.push(b'\n');
        self.executed = Executed::Unknown;
        match timeout_at(self.limit, self.container.tell(&line)).await {
            Ok(Ok(())) => Ok(()),
            // What went wrong is told at the other end.
            Ok(Err(error)) => {
                debug!(%error, "a container does not take its script");
                Ok(())
            }
            Err(_) => Err(self.late()),
        }
    }

    fn late(&self) -> ToolFailure {
        let now = Instant::now();
        if self.started.is_none() && now < self.deadline {
            return DockerError::Silent { after: self.options.start_timeout }
                .into_failure(self.executed);
        }
        let after = now.saturating_duration_since(self.started.unwrap_or(self.asked));
        ToolFailure::TimedOut { after, executed: self.executed, repeatable: false }
    }

    /// The first process has ended and did not say why, or has never been there.
    async fn lost(&mut self) -> Result<Ended, ToolFailure> {
        let (status, complaint) = self.container.conclusion().await;
        let code = status.and_then(|status| status.code()).unwrap_or(DOCKER_FAILED);
        if self.started.is_none() || code == DOCKER_FAILED {
            return Err(DockerError::told(&complaint).into_failure(self.executed));
        }
        // A script can have its container end, which is then its own end. It can't kill it: only
        // the kernel does, for its memory.
        let memory = (code == KILLED).then_some(ScriptLimit::Memory);
        let elapsed = self.elapsed();
        Ok(self.ended(code, memory, elapsed))
    }

    fn elapsed(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    fn ended(&mut self, exit_code: i32, ended_by: Option<ScriptLimit>, elapsed: Duration) -> Ended {
        let stdout = std::mem::replace(&mut self.stdout, Beginning::new(0)).into_text();
        let stderr = std::mem::replace(&mut self.stderr, End::new(0)).into_text();
        Ended { stdout, stderr, exit_code, ended_by, elapsed }
    }
}
