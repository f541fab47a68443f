//! `bash`: a command in the root. Not a sandbox: see the module above.

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

/// Between the polite signal and the other one.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);
/// How long what the shell left behind may hold its output open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// As much as the system takes in one argument, less some room.
const MAX_COMMAND_BYTES: usize = 120_000;
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Bash {
    registration: ToolRegistration,
    root: Arc<Root>,
    shell: PathBuf,
    default_seconds: u64,
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
        let (default, cap) = (config.command_timeout_seconds, FilesConfig::MAX_COMMAND_SECONDS);
        let description = format!(
            "Run a shell command in the root of the files and return its output, stdout and \
             stderr together, at most {} bytes: of more, the beginning and the end. Every call is \
             a new shell with an empty input; nothing may wait for a person. Processes left in \
             the background are ended with the command. Commands that take longer than {default} \
             seconds need timeout_seconds.",
            config.max_output_bytes
        );
        let properties = json!({
            "command": {
                "type": "string", "minLength": 1, "maxLength": MAX_COMMAND_BYTES,
                "description": "What to run, as for `sh -c`.",
            },
            "timeout_seconds": {
                "type": "integer", "minimum": 1, "maximum": cap,
                "description": format!("When to stop it. Default {default}, at most {cap}."),
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
            default_seconds: default,
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
                "the command must be shorter than {MAX_COMMAND_BYTES} bytes and without NUL; put \
                 a long script in a file and run that"
            )));
        }
        let seconds = arguments.timeout_seconds.unwrap_or(self.default_seconds);
        let limit = Duration::from_secs(seconds.clamp(1, FilesConfig::MAX_COMMAND_SECONDS))
            .min(context.remaining());
        if context.cancellation.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        let started = Instant::now();
        let spawned = ProcessGroup::spawn(&mut self.command(&arguments.command));
        let (mut group, Pipes { stdout, stderr, .. }) = spawned.map_err(|error| {
            tracing::warn!(%error, "the shell could not be started");
            let message = "the shell could not be started; try again later".to_owned();
            ToolFailure::Unavailable { message, executed: Executed::No }
        })?;
        let mut capture = Capture::new(self.max_output_bytes);
        let pipes = (Pipe::new(stdout), Pipe::new(stderr));
        let ending = watch(&mut group, pipes, &mut capture, started + limit, context).await;
        let status = group.finish().await;
        match ending {
            Ending::Exited => Ok(present(status, started.elapsed(), capture.finish())),
            Ending::TimedOut => Err(ToolFailure::TimedOut {
                after: limit,
                executed: Executed::Yes,
                repeatable: false,
            }),
            Ending::Cancelled => Err(ToolFailure::Cancelled { executed: Executed::Yes }),
        }
    }
}

impl Tool for Bash {
    /// It ends its process group by the deadline, with a grace, which dropping it would not give.
    fn keeps_deadline(&self) -> bool {
        true
    }

    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    /// # Cancellation
    /// Dropping the future kills the process group at once; a time-out or the context's
    /// cancellation asks it to end and kills it two seconds later. A process that has left the
    /// group (`setsid`) is out of reach.
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let arguments: Arguments = definition::arguments(arguments)?;
            self.run(&arguments, context).await
        })
    }
}

/// Why a command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Exited,
    TimedOut,
    Cancelled,
}

/// One end of the command; none when it is closed.
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

    fn taken(&mut self, read: io::Result<usize>) -> &[u8] {
        let length = read.unwrap_or(0);
        if length == 0 {
            self.reader = None;
        }
        &self.buffer[..length]
    }
}

/// Reads the output until the command is over and all of it has come, or until it is time to kill
/// what is left.
async fn watch<O: AsyncRead + Unpin, E: AsyncRead + Unpin>(
    group: &mut ProcessGroup,
    (mut stdout, mut stderr): (Pipe<O>, Pipe<E>),
    capture: &mut Capture,
    deadline: Instant,
    context: &ToolContext,
) -> Ending {
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut ending, mut until, mut exited, mut said) = (None, deadline, false, 0);
    while !exited || stdout.is_open() || stderr.is_open() {
        let stopping = matches!(ending, Some(Ending::TimedOut | Ending::Cancelled));
        tokio::select! {
            read = stdout.read(), if stdout.is_open() => {
                capture.take(Stream::Out, stdout.taken(read));
            }
            read = stderr.read(), if stderr.is_open() => {
                capture.take(Stream::Err, stderr.taken(read));
            }
            () = group.leader_ended(), if !exited => {
                exited = true;
                if !stopping {
                    (ending, until) = (Some(Ending::Exited), Instant::now() + OUTPUT_GRACE);
                }
            }
            () = sleep_until(until) => match ending {
                None => {
                    group.terminate();
                    (ending, until) = (Some(Ending::TimedOut), until + TERMINATION_GRACE);
                }
                Some(_) => break,
            },
            () = context.cancellation.cancelled(), if !stopping => {
                group.terminate();
                (ending, until) = (Some(Ending::Cancelled), Instant::now() + TERMINATION_GRACE);
            }
            _ = ticks.tick() => {
                if capture.bytes() > said && let Some(line) = capture.last_line() {
                    said = capture.bytes();
                    context.progress(line);
                }
            }
        }
    }
    ending.unwrap_or(Ending::Exited)
}

fn present(status: Option<ExitStatus>, elapsed: Duration, output: Output) -> ToolResult {
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
        (None, None) => ToolResult::error(format!("the command did not end\n{text}")),
    };
    result.with_details(details)
}
