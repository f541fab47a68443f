//! `bash`: runs a command in the root. Not a sandbox: see the parent module.

use std::{
    env,
    ffi::OsString,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_child::{Pipes, ProcessGroup};
use rockbot_tools::{
    Executed, Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolResult,
    parse_arguments,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    capture::{Capture, Output, Stream},
    config::FilesConfig,
    definition,
    root::Root,
};

/// The time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);
/// The time limit for background processes of the shell to close its output.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The longest command, below the system's limit for one argument.
const MAX_COMMAND_BYTES: usize = 120_000;
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Bash {
    registration: ToolRegistration,
    root: Arc<Root>,
    shell: PathBuf,
    default_timeout: Duration,
    max_output_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    timeout_seconds: Option<u64>,
}

impl Bash {
    pub(super) fn new(root: Arc<Root>, config: &FilesConfig) -> Self {
        let default = config.command_timeout.as_secs_f64();
        let cap = FilesConfig::MAX_COMMAND_SECONDS;
        let description = format!(
            "Run a shell command in the root of the files and return its combined stdout and \
             stderr, at most {} bytes; of longer output, the beginning and the end. Every call \
             starts a new shell with empty standard input, so commands must not be interactive. \
             Background processes are killed when the command ends. Commands that take longer \
             than {default} seconds need timeout_seconds.",
            config.max_output_bytes
        );
        let properties = json!({
            "command": {
                "type": "string", "minLength": 1, "maxLength": MAX_COMMAND_BYTES,
                "description": "The command, as for `sh -c`.",
            },
            "timeout_seconds": {
                "type": "integer", "minimum": 1, "maximum": cap,
                "description": format!("Time limit in seconds. Default {default}, at most {cap}."),
            },
        });
        let hints =
            ToolHints { read_only: false, destructive: true, idempotent: false, open_world: true };
        let mut registration = definition::registration(
            "bash",
            "Run a command",
            &description,
            &properties,
            &["command"],
            hints,
        );
        registration.timeout_ms = Some(cap * 1000);
        Self {
            registration,
            root,
            shell: config.shell.clone(),
            default_timeout: config.command_timeout,
            max_output_bytes: config.max_output_bytes,
        }
    }

    fn command(&self, text: &str) -> Command {
        let inherited =
            |name, fallback: &str| env::var_os(name).unwrap_or(OsString::from(fallback));
        let mut command = Command::new(&self.shell);
        command
            .arg("-c")
            .arg(text)
            .current_dir(self.root.path())
            .env_clear()
            .env("PATH", inherited("PATH", "/usr/local/bin:/usr/bin:/bin"))
            .env("LANG", inherited("LANG", "C.UTF-8"))
            .env("HOME", self.root.path())
            .env("TERM", "dumb")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    async fn run(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        if arguments.command.len() > MAX_COMMAND_BYTES || arguments.command.contains('\0') {
            return Err(ToolFailure::invalid(format!(
                "the command must be shorter than {MAX_COMMAND_BYTES} bytes and contain no NUL; \
                 write a long script to a file and run it"
            )));
        }
        let requested =
            |seconds: u64| Duration::from_secs(seconds.clamp(1, FilesConfig::MAX_COMMAND_SECONDS));
        let limit = arguments.timeout_seconds.map_or(self.default_timeout, requested);
        let limit = limit.min(context.remaining());
        if context.cancellation.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        let started = Instant::now();
        let spawned = ProcessGroup::spawn(&mut self.command(&arguments.command));
        let (mut group, Pipes { stdout, stderr, .. }) = spawned.map_err(|error| {
            tracing::warn!(%error, "shell start failed");
            let message = "the shell cannot be started; try again later".to_owned();
            ToolFailure::Unavailable { message, executed: Executed::No }
        })?;
        let mut capture = Capture::new(self.max_output_bytes);
        let pipes = (Pipe::new(stdout), Pipe::new(stderr));
        let outcome = watch(&mut group, pipes, &mut capture, started + limit, context).await;
        let status = group.finish().await;
        match outcome {
            Outcome::Exited => Ok(to_result(status, started.elapsed(), capture.finish())),
            Outcome::TimedOut => Err(ToolFailure::TimedOut {
                after: limit,
                executed: Executed::Yes,
                repeatable: false,
            }),
            Outcome::Cancelled => Err(ToolFailure::Cancelled { executed: Executed::Yes }),
        }
    }
}

impl Tool for Bash {
    /// The tool stops its process group by the deadline with a grace period, which dropping the future
    /// would not give.
    fn enforces_own_deadline(&self) -> bool {
        true
    }

    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    /// # Cancellation
    /// Dropping the future kills the process group at once; a timeout or the context's cancellation
    /// sends SIGTERM, and SIGKILL two seconds later. A process that has left the group (`setsid`) is not
    /// reached.
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let arguments: Arguments = parse_arguments(arguments)?;
            self.run(&arguments, context).await
        })
    }
}

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Exited,
    TimedOut,
    Cancelled,
}

/// An output pipe of the command; `reader` is `None` when it is closed.
struct Pipe<R> {
    reader: Option<R>,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    fn new(reader: Option<R>) -> Self {
        Self { reader, buffer: vec![0; CHUNK_BYTES] }
    }

    fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    async fn read(&mut self) -> io::Result<usize> {
        match &mut self.reader {
            Some(reader) => reader.read(&mut self.buffer).await,
            None => Ok(0),
        }
    }

    fn received(&mut self, read: io::Result<usize>) -> &[u8] {
        let length = read.unwrap_or(0);
        if length == 0 {
            self.reader = None;
        }
        &self.buffer[..length]
    }
}

/// Reads the output until the command has exited and its pipes are closed, or until the remaining
/// processes must be killed.
async fn watch<O: AsyncRead + Unpin, E: AsyncRead + Unpin>(
    group: &mut ProcessGroup,
    (mut stdout, mut stderr): (Pipe<O>, Pipe<E>),
    capture: &mut Capture,
    deadline: Instant,
    context: &ToolContext,
) -> Outcome {
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut outcome, mut until, mut exited, mut reported) = (None, deadline, false, 0);
    while !exited || stdout.is_open() || stderr.is_open() {
        let stopping = matches!(outcome, Some(Outcome::TimedOut | Outcome::Cancelled));
        tokio::select! {
            read = stdout.read(), if stdout.is_open() => {
                capture.take(Stream::Out, stdout.received(read));
            }
            read = stderr.read(), if stderr.is_open() => {
                capture.take(Stream::Err, stderr.received(read));
            }
            () = group.wait_for_leader(), if !exited => {
                exited = true;
                if !stopping {
                    (outcome, until) = (Some(Outcome::Exited), Instant::now() + OUTPUT_GRACE);
                }
            }
            () = sleep_until(until) => match outcome {
                None => {
                    group.terminate();
                    (outcome, until) = (Some(Outcome::TimedOut), until + TERMINATION_GRACE);
                }
                Some(_) => break,
            },
            () = context.cancellation.cancelled(), if !stopping => {
                group.terminate();
                (outcome, until) = (Some(Outcome::Cancelled), Instant::now() + TERMINATION_GRACE);
            }
            _ = ticks.tick() => {
                if capture.bytes() > reported && let Some(line) = capture.last_line() {
                    reported = capture.bytes();
                    context.progress(line);
                }
            }
        }
    }
    outcome.unwrap_or(Outcome::Exited)
}

fn to_result(status: Option<ExitStatus>, elapsed: Duration, output: Output) -> ToolResult {
    let exit_code = status.and_then(|status| status.code());
    let details = json!({
        "exitCode": exit_code,
        "durationMs": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        "stdoutBytes": output.stdout_bytes,
        "stderrBytes": output.stderr_bytes,
        "truncated": output.truncated,
    });
    let text = if output.text.is_empty() { "[no output]".to_owned() } else { output.text };
    let result = match (exit_code, status) {
        (Some(0), _) => ToolResult::text(text),
        (Some(code), _) => ToolResult::error(format!("exit code {code}\n{text}")),
        (None, Some(_)) => ToolResult::error(format!("killed by a signal\n{text}")),
        (None, None) => ToolResult::error(format!("the command did not exit\n{text}")),
    };
    result.with_details(details)
}
