//! A run of a script in its cell.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::Path,
    pin::pin,
    time::Duration,
};

use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{Executed, ToolFailure};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixStream, unix::pipe},
    time::{Instant, sleep_until},
};

use super::{cgroup::MemoryCgroup, options::LocalOptions, server::Descriptors};
use crate::{
    finished::FinishedScript,
    output::{HeadBuffer, TailBuffer},
    output_progress::OutputProgress,
    runner::Script,
    stopped::with_output,
};

/// Time limit from the request to the first line of a script.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for the supervisor to stop a script and report its exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for output written before the exit to arrive.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 64 * 1024;
/// The most that is read of the supervisor's reports, which are three short lines.
const MAX_REPORT_BYTES: u64 = 16 * 1024;
/// The exit code of a script whose reported code is not a number.
const UNKNOWN_EXIT_CODE: i32 = 255;

/// The runner's ends of a script's control socket and output pipes.
#[derive(Debug)]
pub(super) struct RunnerPipes {
    control: UnixStream,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

/// Creates the control socket and the output pipes of a script, and opens its cgroup.
pub(super) fn connect(cgroup: Option<&MemoryCgroup>) -> io::Result<(RunnerPipes, Descriptors)> {
    let (control, script_control) = StdUnixStream::pair()?;
    control.set_nonblocking(true)?;
    let (stdout, script_stdout) = io::pipe()?;
    let (stderr, script_stderr) = io::pipe()?;
    let pipes = RunnerPipes {
        control: UnixStream::from_std(control)?,
        stdout: pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?,
        stderr: pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?,
    };
    let descriptors = Descriptors {
        control: script_control.into(),
        stdout: script_stdout.into(),
        stderr: script_stderr.into(),
        cgroup: cgroup.map(MemoryCgroup::entrance).transpose()?,
    };
    Ok((pipes, descriptors))
}

/// The folders of a script.
#[derive(Debug)]
pub(super) struct ScriptPaths<'a> {
    /// The name of its package set in the jail; empty without packages.
    pub(super) packages: &'a str,
    /// The path from which it imports them.
    pub(super) imports: Option<&'a Path>,
    /// Its working folder.
    pub(super) folder: &'a Path,
}

/// Encodes a request as a length and NUL-separated fields; scripts and inputs have no NUL.
pub(super) fn encode_request(script: &Script, paths: &ScriptPaths<'_>) -> Vec<u8> {
    let seconds = script.timeout().as_secs_f64().ceil().to_string();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (imports, folder) = (paths.imports.map(text).unwrap_or_default(), text(paths.folder));
    let has_input = if script.input().is_some() { "1" } else { "0" };
    let input = script.input().unwrap_or_default();
    let fields = [&*seconds, paths.packages, &*imports, &*folder, has_input, script.code(), input];
    let content = fields.join("\0");
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], content.as_bytes()].concat()
}

/// An error without an outcome of the script.
#[derive(Debug)]
pub(super) enum RunError {
    /// Its process was lost before the script started.
    NotStarted,
    /// Its sandbox could not be set up.
    SandboxFailed(String),
    /// A final failure.
    Failed(ToolFailure),
}

/// The conditions under which a script is stopped.
#[derive(Debug)]
pub(super) struct StopConditions<F> {
    /// The deadline of the call.
    pub(super) deadline: Instant,
    /// Completes when the call is cancelled or the runner closes.
    pub(super) aborted: F,
}

/// The reason for stopping a script that reached no limit.
#[derive(Debug, Clone, Copy)]
pub(super) enum AbortReason {
    Cancelled,
    Closing,
}

/// Sends the request and follows the script to its end. Stops it when it reaches a limit.
///
/// # Cancellation
/// Dropping the future stops the script: the supervisor sees the control socket close.
pub(super) async fn follow(
    pipes: RunnerPipes,
    request: &[u8],
    script: &Script,
    options: &LocalOptions,
    stop_conditions: StopConditions<impl Future<Output = AbortReason>>,
    mut progress: OutputProgress,
) -> Result<FinishedScript, RunError> {
    let RunnerPipes { control, mut stdout, mut stderr } = pipes;
    let (reader, mut writer) = control.into_split();
    let mut lines = BufReader::new(reader.take(MAX_REPORT_BYTES)).lines();
    let StopConditions { deadline, aborted } = stop_conditions;
    let (requested_at, mut aborted) = (Instant::now(), pin!(aborted));
    let mut limit = deadline.min(requested_at + START_TIMEOUT);
    let after = deadline.min(requested_at + script.timeout()) - requested_at;
    let start_overdue = |limit| if limit == deadline { Stop::Timeout } else { Stop::StartTimeout };
    // Nothing can run until all of the request is written.
    let stop_before_start = tokio::select! {
        biased;
        reason = &mut aborted => Some(Stop::Aborted(reason)),
        () = sleep_until(limit) => Some(start_overdue(limit)),
        written = writer.write_all(request) => {
            written.map_err(|_| RunError::NotStarted)?;
            None
        }
    };
    if let Some(failure) = stop_before_start.and_then(|stop| stop.failure(Executed::No, after)) {
        return Err(RunError::Failed(failure));
    }
    let mut head = HeadBuffer::new(options.stdout_bytes);
    let mut tail = TailBuffer::new(options.stderr_bytes);
    let (mut stdout_open, mut stderr_open) = (true, true);
    let mut chunks = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let (mut reports, mut stop) = (Reports::default(), None);
    while reports.exit.is_none() || stdout_open || stderr_open {
        let new_stop = tokio::select! {
            line = lines.next_line(), if reports.exit.is_none() => {
                let Ok(Some(line)) = line else { break };
                let starts = reports.record(&line);
                if reports.exit.is_some() {
                    limit = Instant::now() + OUTPUT_TIMEOUT;
                } else if starts && stop.is_none() {
                    limit = deadline.min(Instant::now() + script.timeout());
                }
                None
            }
            read = stdout.read(&mut chunks.0), if stdout_open => {
                let length = read.unwrap_or(0);
                stdout_open = length > 0;
                progress.push(&chunks.0[..length]);
                (!head.push(&chunks.0[..length])).then_some(Stop::OutputLimit)
            }
            read = stderr.read(&mut chunks.1), if stderr_open => {
                let length = read.unwrap_or(0);
                stderr_open = length > 0;
                tail.push(&chunks.1[..length]);
                None
            }
            () = progress.report() => None,
            reason = &mut aborted, if stop.is_none() && reports.exit.is_none() => {
                Some(Stop::Aborted(reason))
            }
            () = sleep_until(limit) => {
                if stop.is_some() || reports.exit.is_some() {
                    break;
                }
                Some(if reports.started.is_some() { Stop::Timeout } else { start_overdue(limit) })
            }
        };
        if new_stop.is_some() && stop.is_none() {
            stop = new_stop;
            if reports.exit.is_none() {
                // Makes the supervisor stop the script; it still reports the exit.
                let _ = writer.shutdown().await;
                limit = Instant::now() + STOP_TIMEOUT;
            }
        }
    }
    reports.conclude(stop, (head, tail), after)
}

/// The runner's reason for stopping a script.
#[derive(Debug, Clone, Copy)]
enum Stop {
    OutputLimit,
    /// The script's timeout or the deadline of the call.
    Timeout,
    /// The script did not start within [`START_TIMEOUT`].
    StartTimeout,
    Aborted(AbortReason),
}

impl Stop {
    /// Returns the failure of the call, or `None` if stopping the script is an outcome.
    fn failure(self, executed: Executed, after: Duration) -> Option<ToolFailure> {
        let unavailable =
            |message: &str| ToolFailure::Unavailable { message: message.into(), executed };
        match self {
            Self::OutputLimit => None,
            Self::Timeout => Some(ToolFailure::TimedOut { after, executed, repeatable: false }),
            Self::StartTimeout => {
                Some(unavailable("the script did not start in time; try again later"))
            }
            Self::Aborted(AbortReason::Cancelled) => Some(ToolFailure::Cancelled { executed }),
            Self::Aborted(AbortReason::Closing) => {
                Some(unavailable("the script runner is shutting down"))
            }
        }
    }
}

/// The reports of the supervisor and of the script's process before the script starts.
#[derive(Debug, Default)]
struct Reports {
    started: Option<Instant>,
    exit: Option<ExitReport>,
    failed: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct ExitReport {
    at: Instant,
    exit_code: i32,
    out_of_memory: bool,
}

impl Reports {
    /// Records a report. Returns `true` if it reports the start of the script.
    fn record(&mut self, line: &str) -> bool {
        let (event, rest) = line.split_once(' ').unwrap_or((line, ""));
        match event {
            "started" => self.started = Some(Instant::now()),
            "failed" => self.failed = Some(rest.to_owned()),
            "exited" => {
                let (code, limit) = rest.split_once(' ').unwrap_or((rest, ""));
                let exit_code = code.parse().unwrap_or(UNKNOWN_EXIT_CODE);
                let (at, out_of_memory) = (Instant::now(), limit == "memory");
                self.exit = Some(ExitReport { at, exit_code, out_of_memory });
            }
            _ => {}
        }
        event == "started"
    }

    fn executed(&self) -> Executed {
        match (self.started, self.exit) {
            (Some(_), _) => Executed::Yes,
            (None, Some(_)) => Executed::No,
            (None, None) => Executed::Unknown,
        }
    }

    fn conclude(
        self,
        stop: Option<Stop>,
        (head, tail): (HeadBuffer, TailBuffer),
        after: Duration,
    ) -> Result<FinishedScript, RunError> {
        let unknown =
            |message: String| Err(RunError::Failed(ToolFailure::OutcomeUnknown { message }));
        match (self.failed.as_ref(), self.started) {
            (Some(reason), None) => return Err(RunError::SandboxFailed(reason.clone())),
            (Some(reason), Some(_)) => {
                return unknown(format!("the script's supervisor failed: {reason}"));
            }
            (None, _) => {}
        }
        if let Some(failure) = stop.and_then(|stop| stop.failure(self.executed(), after)) {
            let failure = with_output(failure, &head.into_text(), &tail.into_text());
            return Err(RunError::Failed(failure));
        }
        match (self.started, self.exit) {
            (Some(started), Some(exit)) => {
                let output_limit = stop.map(|_| ScriptLimit::Output);
                Ok(FinishedScript {
                    stdout: head.into_text(),
                    stderr: tail.into_text(),
                    exit_code: exit.exit_code,
                    ended_by: output_limit.or(exit.out_of_memory.then_some(ScriptLimit::Memory)),
                    elapsed: exit.at - started,
                })
            }
            (None, _) => Err(RunError::NotStarted),
            (Some(_), None) => unknown("the script's supervisor was lost".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolErrorCode;

    use super::*;

    fn conclude(lines: &[&str], stop: Option<Stop>) -> Result<FinishedScript, RunError> {
        let mut reports = Reports::default();
        for line in lines {
            reports.record(line);
        }
        let output = (HeadBuffer::new(9), TailBuffer::new(9));
        reports.conclude(stop, output, Duration::from_secs(1))
    }

    #[test]
    fn failure_after_start_is_not_reported_unexecuted() {
        assert!(matches!(conclude(&["failed x"], None), Err(RunError::SandboxFailed(_))));
        assert!(matches!(conclude(&[], None), Err(RunError::NotStarted)));
        for lines in [&["started", "failed x"][..], &["started"]] {
            let Err(RunError::Failed(failure)) = conclude(lines, None) else { unreachable!() };
            assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown);
        }
    }

    #[test]
    fn start_timeout_is_not_reported_as_script_timeout() {
        for (lines, executed) in [
            (&[][..], Executed::Unknown),
            (&["exited 137 -"], Executed::No),
            (&["started"], Executed::Yes),
        ] {
            let Err(RunError::Failed(failure)) = conclude(lines, Some(Stop::StartTimeout)) else {
                unreachable!()
            };
            assert_eq!(
                (failure.code(), failure.executed()),
                (ToolErrorCode::Unavailable, executed)
            );
        }
    }
}
