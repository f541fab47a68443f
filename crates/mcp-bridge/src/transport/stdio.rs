//! A server that is a program of this machine, spoken with over its standard input and output.
//!
//! One message is one line. A line that can't be taken ends the call that it answers and no other.

use std::{collections::BTreeMap, io, process::Stdio, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use rockbot_child::{Pipes, ProcessGroup};
use rockbot_tool_rpc::mcp::untrusted_text::plain;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::unix::pipe,
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
    sync::mpsc::{self, error::SendTimeoutError},
    task::JoinHandle,
    time::timeout,
};
use tracing::{debug, info, warn};

use crate::{
    config::Program,
    frame::{self, LOOK_BYTES, MAX_FRAME_BYTES, Unreadable},
};

/// Messages on their way to a program that does not read.
const OUTGOING: usize = 256;
/// How long a message waits for a program to read.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// How long a program may take to end when its input does, and again when it is asked to.
const END_WITHIN: Duration = Duration::from_secs(2);
/// The longest line of a program's complaints that is logged, in bytes.
const MAX_LOG_LINE: usize = 2048;
/// Variables of the bridge's own environment that every program gets: without them few start.
const INHERITED: [&str; 9] =
    ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "TERM"];

/// Why a program can't be spoken with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StdioError {
    /// It does not take what is sent.
    #[error("the program does not read its input")]
    NotReading,
    /// Its input is closed: it ended, or it is being stopped.
    #[error("the program has ended")]
    Ended,
    /// A message can't be written as JSON.
    #[error("the message can't be written: {0}")]
    Unwritable(#[from] serde_json::Error),
}

/// A program that serves, with all that it starts. Killed when dropped.
pub(crate) struct StdioTransport {
    outgoing: Option<Outgoing>,
    lines: Lines<BufReader<ChildStdout>>,
    group: Option<ProcessGroup>,
    writer: JoinHandle<()>,
    complaints: JoinHandle<()>,
}

impl StdioTransport {
    /// Starts the program of the server called `name`.
    ///
    /// It sees the variables in `env`, and of this process's own only those that say where programs
    /// and the home folder are and which language is spoken: no secret of the bridge.
    ///
    /// # Errors
    /// When it can't be started.
    pub(crate) fn start(name: &str, program: &Program) -> io::Result<Self> {
        let Program { command, args, env, cwd } = program;
        let mut program = Command::new(command);
        program.args(args).env_clear().envs(inherited()).envs(exposed(env));
        if let Some(folder) = cwd {
            program.current_dir(folder);
        }
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (group, pipes) = ProcessGroup::spawn(&mut program)?;
        let Pipes { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr) } = pipes else {
            return Err(io::Error::other("it was started without pipes"));
        };
        let (outgoing, writer) = Outgoing::to(stdin)?;
        Ok(Self {
            outgoing: Some(outgoing),
            lines: Lines::new(BufReader::with_capacity(64 * 1024, stdout)),
            group: Some(group),
            writer,
            complaints: tokio::spawn(log(name.to_owned(), stderr)),
        })
    }
}

fn inherited() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

fn exposed(env: &BTreeMap<String, SecretString>) -> impl Iterator<Item = (&String, &str)> {
    env.iter().map(|(name, value)| (name, value.expose_secret()))
}

impl Transport<RoleClient> for StdioTransport {
    type Error = StdioError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), StdioError>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let outgoing = outgoing.ok_or(StdioError::Ended)?;
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            outgoing.send(line).await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.lines.next_message().await
    }

    async fn close(&mut self) -> Result<(), StdioError> {
        // The end of its input is how a program is told to go.
        self.outgoing = None;
        let Some(mut group) = self.group.take() else { return Ok(()) };
        if timeout(END_WITHIN, group.wait_for_leader()).await.is_err() {
            group.terminate();
            let _ = timeout(END_WITHIN, group.wait_for_leader()).await;
        }
        if group.finish().await.is_none() {
            warn!("a server's program could not be killed");
        }
        Ok(())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.writer.abort();
        self.complaints.abort();
        let Some(group) = self.group.take() else { return };
        // Its drop kills; somebody must also reap, or a zombie stays.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(group.finish());
        }
    }
}

/// The way to a program's input. What the program takes at once is written by whoever sends it,
/// without a detour over another task; the rest waits for a task of its own, so that a sender that
/// goes away leaves no half message.
#[derive(Clone)]
struct Outgoing {
    pipe: Arc<pipe::Sender>,
    waiting: Arc<Waiting>,
    queue: mpsc::Sender<Vec<u8>>,
}

/// How many messages are with the task, or on their way there. Nobody else writes while there are
/// some.
#[derive(Default)]
struct Waiting(Mutex<usize>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.0.lock()
    }
}

/// A message that waits for the task to take it; no longer, when this is dropped.
struct OnItsWay<'a>(&'a Waiting);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

impl Outgoing {
    fn to(stdin: ChildStdin) -> io::Result<(Self, JoinHandle<()>)> {
        let pipe = Arc::new(pipe::Sender::from_owned_fd(stdin.into_owned_fd()?)?);
        let waiting = Arc::<Waiting>::default();
        let (queue, messages) = mpsc::channel(OUTGOING);
        let writer = tokio::spawn(write(pipe.clone(), messages, waiting.clone()));
        Ok((Self { pipe, waiting, queue }, writer))
    }

    /// Writes a message, or has it written.
    ///
    /// # Errors
    /// When the program has ended, or does not read for [`SEND_WITHIN`].
    async fn send(self, mut message: Vec<u8>) -> Result<(), StdioError> {
        {
            let mut waiting = self.waiting.lock();
            if *waiting == 0 {
                let written = match self.pipe.try_write(&message) {
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(_) => return Err(StdioError::Ended),
                };
                if written == message.len() {
                    return Ok(());
                }
                message.drain(..written);
                // First of all, since half of it may be written. There is room: nobody waits.
                *waiting += 1;
                return self.queue.try_send(message).map_err(|_| StdioError::Ended);
            }
            *waiting += 1;
        }
        let on_its_way = OnItsWay(&self.waiting);
        match self.queue.send_timeout(message, SEND_WITHIN).await {
            Ok(()) => std::mem::forget(on_its_way),
            Err(SendTimeoutError::Timeout(_)) => return Err(StdioError::NotReading),
            Err(SendTimeoutError::Closed(_)) => return Err(StdioError::Ended),
        }
        Ok(())
    }
}

/// Writes messages until there are no more, and closes the program's input.
async fn write(
    pipe: Arc<pipe::Sender>,
    mut messages: mpsc::Receiver<Vec<u8>>,
    waiting: Arc<Waiting>,
) {
    while let Some(message) = messages.recv().await {
        if let Err(error) = write_all(&pipe, &message).await {
            debug!(%error, "a server's program does not take its input any more");
            return;
        }
        *waiting.lock() -= 1;
    }
}

async fn write_all(pipe: &pipe::Sender, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        pipe.writable().await?;
        match pipe.try_write(message) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => message = &message[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Says in the log what a program says to its standard error.
async fn log(name: String, stderr: ChildStderr) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MAX_LOG_LINE as u64;
        match (&mut stderr).take(limit).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                // Outside text, and often talkative: at debug.
                debug!(server = %name, says = %plain(text.trim_end(), MAX_LOG_LINE), "stderr");
            }
        }
    }
}

/// Takes messages out of a stream of lines.
struct Lines<R> {
    stream: R,
    line: Vec<u8>,
    /// Bytes of the current line that were thrown away because it is too long.
    skipped: usize,
}

impl<R: tokio::io::AsyncBufRead + Unpin> Lines<R> {
    fn new(stream: R) -> Self {
        Self { stream, line: Vec::new(), skipped: 0 }
    }

    /// The next message; none when the stream has ended.
    ///
    /// Cancel safe: a line that has not ended stays in `self`.
    async fn next_message(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let ended = self.fill().await;
            if ended == EndOf::Stream {
                // Half a message is none.
                return None;
            }
            let (line, skipped) = (std::mem::take(&mut self.line), self.skipped);
            self.skipped = 0;
            let why = match skipped {
                0 if line.iter().all(u8::is_ascii_whitespace) => continue,
                0 => match frame::read(&line) {
                    Ok(message) => return Some(message),
                    Err(why) => why,
                },
                _ => Unreadable::TooLarge,
            };
            info!(bytes = line.len() + skipped, %why, "a message of a server was not taken");
            if let Some(instead) = frame::in_place_of(&line, why) {
                return Some(instead);
            }
        }
    }

    async fn fill(&mut self) -> EndOf {
        loop {
            let Ok(chunk) = self.stream.fill_buf().await else { return EndOf::Stream };
            if chunk.is_empty() {
                return EndOf::Stream;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(chunk.len());
            if self.skipped > 0 || self.line.len() + taken > MAX_FRAME_BYTES {
                // What is kept is for finding out whom it was meant for.
                self.line.extend_from_slice(&chunk[..taken]);
                self.skipped += self.line.len().saturating_sub(LOOK_BYTES);
                self.line.truncate(LOOK_BYTES);
                self.line.shrink_to(LOOK_BYTES);
            } else {
                self.line.extend_from_slice(&chunk[..taken]);
            }
            self.stream.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return EndOf::Line;
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum EndOf {
    Line,
    Stream,
}

impl std::fmt::Debug for StdioTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdioTransport").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::RequestId;

    use super::*;

    async fn ids(text: Vec<u8>) -> Vec<String> {
        let mut lines = Lines::new(BufReader::with_capacity(1000, text.as_slice()));
        let mut ids = Vec::new();
        while let Some(message) = lines.next_message().await {
            ids.push(match message {
                ServerJsonRpcMessage::Response(answer) => format!("{}", answer.id),
                ServerJsonRpcMessage::Error(error) => {
                    format!("error {}", error.id.unwrap_or(RequestId::Number(-1)))
                }
                other => panic!("{other:?}"),
            });
        }
        ids
    }

    #[tokio::test]
    async fn a_line_that_cant_be_taken_ends_its_own_call_only() {
        let mut text = Vec::new();
        text.extend(b"npm warn this is not for you\n\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"text\":\"");
        text.resize(text.len() + MAX_FRAME_BYTES, b'x');
        text.extend(b"\"}}\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":5");
        assert_eq!(ids(text).await, ["1", "error 2", "error 3", "4"]);
    }

    #[tokio::test]
    async fn messages_larger_than_a_pipe_arrive_whole_also_of_a_sender_that_went_away() {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut cat = cat.spawn().unwrap();
        let (outgoing, writer) = Outgoing::to(cat.stdin.take().unwrap()).unwrap();
        let waiting = || *outgoing.waiting.lock();
        let line = |text: &str| format!("{text}\n").into_bytes();
        outgoing.pipe.writable().await.unwrap();
        // Nobody reads what cat says, so its input fills up: a part of this is written at once.
        let large: String = (0..200_000).map(|number| format!("{number} ")).collect();
        outgoing.clone().send(line(&large)).await.unwrap();
        assert_eq!(waiting(), 1);
        for _ in 0..OUTGOING - 1 {
            outgoing.clone().send(line("small")).await.unwrap();
        }
        // The queue is full, or nearly: whoever gives up leaves nothing that others wait for.
        let mut given_up = 0;
        for _ in 0..3 {
            let sending = outgoing.clone().send(line("late"));
            given_up += usize::from(timeout(Duration::from_millis(1), sending).await.is_err());
        }
        assert!(given_up >= 2);
        let mut said = BufReader::new(cat.stdout.take().unwrap()).lines();
        assert_eq!(said.next_line().await.unwrap().unwrap(), large);
        for _ in 0..OUTGOING - 1 {
            assert_eq!(said.next_line().await.unwrap().unwrap(), "small");
        }
        for _ in given_up..3 {
            assert_eq!(said.next_line().await.unwrap().unwrap(), "late");
        }
        let mut look = tokio::time::interval(Duration::from_millis(5));
        let all_told = async {
            while waiting() > 0 {
                look.tick().await;
            }
        };
        timeout(Duration::from_secs(20), all_told).await.expect("nothing waits");
        outgoing.clone().send(line("at once")).await.unwrap();
        assert_eq!(waiting(), 0);
        assert_eq!(said.next_line().await.unwrap().unwrap(), "at once");
        drop(outgoing);
        assert_eq!(said.next_line().await.unwrap(), None, "its input is closed");
        writer.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_programs_leave_nothing_behind() {
        let program = |command: &str| Program {
            command: command.to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
        };
        // Those that end by themselves, and those that wait for their input to end.
        let (ends, waits) = (program("true"), program("cat"));
        for round in 0..500 {
            let mut one = StdioTransport::start("ends", &ends).unwrap();
            let two = StdioTransport::start("waits", &waits).unwrap();
            if round % 2 == 0 {
                one.close().await.unwrap();
            }
            drop(two);
        }
        let left = || children_of(std::process::id());
        let mut look = tokio::time::interval(Duration::from_millis(20));
        let gone = async {
            while !left().is_empty() {
                look.tick().await;
            }
        };
        assert!(timeout(Duration::from_secs(20), gone).await.is_ok(), "left: {:?}", left());
    }

    /// The states and names of a process's children, zombies too.
    fn children_of(parent: u32) -> Vec<String> {
        let stats = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let after = stat.rsplit_once(") ")?.1.to_owned();
            let mut words = after.split(' ').skip(1);
            (words.next()?.parse() == Ok(parent)).then_some(stat)
        });
        stats.collect()
    }
}
