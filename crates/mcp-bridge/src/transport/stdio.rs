//! Servers that are local programs, over standard input and output.
//!
//! One message is one line. An unreadable line fails the call that it answers, and no other.

mod stderr_log;

use std::{collections::BTreeMap, io, process::Stdio, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use rockbot_child::{NETWORK_VARIABLES, Pipes, ProcessGroup};
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::unix::pipe,
    process::{ChildStdin, ChildStdout, Command},
    sync::mpsc::{self, error::SendTimeoutError},
    task::JoinHandle,
    time::timeout,
};
use tracing::{debug, info, warn};

pub(crate) use self::stderr_log::StderrLog;
use crate::{
    config::Program,
    frame::{self, MAX_FRAME_BYTES, PREFIX_BYTES, Unreadable},
};

/// Messages that are queued for a program that does not read.
const MAX_QUEUED: usize = 256;
/// The time limit for sending a message to a program that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a program to exit after its input is closed, and again after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Variables of the bridge's environment that every program inherits, with [`NETWORK_VARIABLES`]: few start without them, and many
/// are downloaded or reach their service only through the proxy and the certificates of the machine.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "TERM",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
];

/// The reason why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StdioError {
    /// The program does not read its input.
    #[error("the program does not read its input")]
    NotReading,
    /// The input is closed: the program exited, or is being stopped.
    #[error("the program has exited")]
    Exited,
    /// The message cannot be serialized.
    #[error("cannot serialize the message: {0}")]
    Serialize(#[from] serde_json::Error),
}

/// A running server program and its process group. Killed when dropped.
pub(crate) struct StdioTransport {
    outgoing: Option<PipeWriter>,
    messages: MessageReader<BufReader<ChildStdout>>,
    group: Option<ProcessGroup>,
    writer: JoinHandle<()>,
    stderr: StderrLog,
}

impl StdioTransport {
    /// Starts the program of the server `name`.
    ///
    /// Its environment consists of `env` and a few variables of this process, such as `PATH`, `HOME` and
    /// `LANG`, proxies and certificates. It gets no secret of the bridge.
    ///
    /// # Errors
    /// When it cannot be started.
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
            return Err(io::Error::other("the program has no pipes"));
        };
        let (outgoing, writer) = PipeWriter::spawn(stdin)?;
        Ok(Self {
            outgoing: Some(outgoing),
            messages: MessageReader::new(BufReader::with_capacity(64 * 1024, stdout)),
            group: Some(group),
            writer,
            stderr: StderrLog::start(name, stderr),
        })
    }

    /// Returns the log of the program's standard error.
    pub(crate) fn stderr(&self) -> &StderrLog {
        &self.stderr
    }
}

fn inherited() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    INHERITED
        .into_iter()
        .chain(NETWORK_VARIABLES)
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
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
            let outgoing = outgoing.ok_or(StdioError::Exited)?;
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            outgoing.send(line).await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.messages.next_message().await
    }

    async fn close(&mut self) -> Result<(), StdioError> {
        // Closing its input asks the program to exit.
        self.outgoing = None;
        let Some(mut group) = self.group.take() else { return Ok(()) };
        if timeout(EXIT_TIMEOUT, group.wait_for_leader()).await.is_err() {
            group.terminate();
            let _ = timeout(EXIT_TIMEOUT, group.wait_for_leader()).await;
        }
        if group.finish().await.is_none() {
            warn!("server program could not be killed");
        }
        Ok(())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.writer.abort();
        self.stderr.stop();
        let Some(group) = self.group.take() else { return };
        // Dropping it kills the group; reaping it prevents a zombie.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(group.finish());
        }
    }
}

/// The writer of a program's input. What the pipe accepts at once is written by the sender, without a
/// task switch; the rest is queued for a task, so that a cancelled send leaves no partial message.
#[derive(Clone)]
struct PipeWriter {
    pipe: Arc<pipe::Sender>,
    queued: Arc<QueuedMessages>,
    queue: mpsc::Sender<Vec<u8>>,
}

/// The number of messages that are queued for the task or are being queued. While it is not zero, only
/// the task writes.
#[derive(Default)]
struct QueuedMessages(Mutex<usize>);

impl QueuedMessages {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.0.lock()
    }
}

/// Decrements the count when dropped, for a message that was not queued.
struct QueueGuard<'a>(&'a QueuedMessages);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

impl PipeWriter {
    fn spawn(stdin: ChildStdin) -> io::Result<(Self, JoinHandle<()>)> {
        let pipe = Arc::new(pipe::Sender::from_owned_fd(stdin.into_owned_fd()?)?);
        let queued = Arc::<QueuedMessages>::default();
        let (queue, messages) = mpsc::channel(MAX_QUEUED);
        let writer = tokio::spawn(write(pipe.clone(), messages, queued.clone()));
        Ok((Self { pipe, queued, queue }, writer))
    }

    /// Writes or queues a message.
    ///
    /// # Errors
    /// When the program has exited, or does not read for [`SEND_TIMEOUT`].
    async fn send(self, mut message: Vec<u8>) -> Result<(), StdioError> {
        {
            let mut queued = self.queued.lock();
            if *queued == 0 {
                let written = match self.pipe.try_write(&message) {
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(_) => return Err(StdioError::Exited),
                };
                if written == message.len() {
                    return Ok(());
                }
                message.drain(..written);
                // First in the queue, since a part may be written. The queue is empty, so it has capacity.
                *queued += 1;
                return self.queue.try_send(message).map_err(|_| StdioError::Exited);
            }
            *queued += 1;
        }
        let guard = QueueGuard(&self.queued);
        match self.queue.send_timeout(message, SEND_TIMEOUT).await {
            Ok(()) => std::mem::forget(guard),
            Err(SendTimeoutError::Timeout(_)) => return Err(StdioError::NotReading),
            Err(SendTimeoutError::Closed(_)) => return Err(StdioError::Exited),
        }
        Ok(())
    }
}

/// Writes queued messages, and closes the program's input after the last.
async fn write(
    pipe: Arc<pipe::Sender>,
    mut messages: mpsc::Receiver<Vec<u8>>,
    queued: Arc<QueuedMessages>,
) {
    while let Some(message) = messages.recv().await {
        if let Err(error) = write_all(&pipe, &message).await {
            debug!(%error, "server program closed its input");
            return;
        }
        *queued.lock() -= 1;
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

/// Reads messages from a stream of lines.
struct MessageReader<R> {
    stream: R,
    line: Vec<u8>,
    /// Bytes of the current line that were discarded because it is too long.
    skipped: usize,
}

impl<R: tokio::io::AsyncBufRead + Unpin> MessageReader<R> {
    fn new(stream: R) -> Self {
        Self { stream, line: Vec::new(), skipped: 0 }
    }

    /// Returns the next message, or `None` at the end of the stream.
    ///
    /// Cancel-safe: an incomplete line stays in `self`.
    async fn next_message(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if self.fill().await == LineEnd::Stream {
                // An incomplete message is dropped.
                return None;
            }
            let (line, skipped) = (std::mem::take(&mut self.line), self.skipped);
            self.skipped = 0;
            let reason = match skipped {
                0 if line.iter().all(u8::is_ascii_whitespace) => continue,
                0 => match frame::read(&line) {
                    Ok(message) => return Some(message),
                    Err(reason) => reason,
                },
                _ => Unreadable::TooLarge,
            };
            info!(bytes = line.len() + skipped, %reason, "unreadable MCP message dropped");
            if let Some(reply) = frame::error_reply(&line, reason) {
                return Some(reply);
            }
        }
    }

    /// Reads to the end of the current line or of the stream.
    async fn fill(&mut self) -> LineEnd {
        loop {
            let Ok(chunk) = self.stream.fill_buf().await else { return LineEnd::Stream };
            if chunk.is_empty() {
                return LineEnd::Stream;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let length = end.unwrap_or(chunk.len());
            if self.skipped > 0 || self.line.len() + length > MAX_FRAME_BYTES {
                // The prefix is kept to find the request id.
                self.line.extend_from_slice(&chunk[..length]);
                self.skipped += self.line.len().saturating_sub(PREFIX_BYTES);
                self.line.truncate(PREFIX_BYTES);
                self.line.shrink_to(PREFIX_BYTES);
            } else {
                self.line.extend_from_slice(&chunk[..length]);
            }
            self.stream.consume(length + usize::from(end.is_some()));
            if end.is_some() {
                return LineEnd::Newline;
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum LineEnd {
    Newline,
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
        let mut lines = MessageReader::new(BufReader::with_capacity(1000, text.as_slice()));
        let mut ids = Vec::new();
        while let Some(message) = lines.next_message().await {
            ids.push(match message {
                ServerJsonRpcMessage::Response(response) => format!("{}", response.id),
                ServerJsonRpcMessage::Error(error) => {
                    format!("error {}", error.id.unwrap_or(RequestId::Number(-1)))
                }
                other => panic!("{other:?}"),
            });
        }
        ids
    }

    #[tokio::test]
    async fn unreadable_line_fails_only_its_own_call() {
        let mut text = Vec::new();
        text.extend(b"npm warn deprecated\n\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"text\":\"");
        text.resize(text.len() + MAX_FRAME_BYTES, b'x');
        text.extend(b"\"}}\n");
        text.extend(b"{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":5");
        assert_eq!(ids(text).await, ["1", "error 2", "error 3", "4"]);
    }

    #[tokio::test]
    async fn large_messages_of_cancelled_senders_arrive_whole() {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut cat = cat.spawn().unwrap();
        let (outgoing, writer) = PipeWriter::spawn(cat.stdin.take().unwrap()).unwrap();
        let queued = || *outgoing.queued.lock();
        let line = |text: &str| format!("{text}\n").into_bytes();
        outgoing.pipe.writable().await.unwrap();
        // The output of cat is not read, so its input fills up: a part of this is written at once.
        let large: String = (0..200_000).map(|number| format!("{number} ")).collect();
        outgoing.clone().send(line(&large)).await.unwrap();
        assert_eq!(queued(), 1);
        for _ in 0..MAX_QUEUED - 1 {
            outgoing.clone().send(line("small")).await.unwrap();
        }
        // The queue is full, or nearly full. A cancelled send does not block later ones.
        let mut cancelled = 0;
        for _ in 0..3 {
            let sending = outgoing.clone().send(line("late"));
            cancelled += usize::from(timeout(Duration::from_millis(1), sending).await.is_err());
        }
        assert!(cancelled >= 2);
        let mut output = BufReader::new(cat.stdout.take().unwrap()).lines();
        assert_eq!(output.next_line().await.unwrap().unwrap(), large);
        for _ in 0..MAX_QUEUED - 1 {
            assert_eq!(output.next_line().await.unwrap().unwrap(), "small");
        }
        for _ in cancelled..3 {
            assert_eq!(output.next_line().await.unwrap().unwrap(), "late");
        }
        let mut poll = tokio::time::interval(Duration::from_millis(5));
        let all_written = async {
            while queued() > 0 {
                poll.tick().await;
            }
        };
        timeout(Duration::from_secs(20), all_written).await.expect("the queue drains");
        outgoing.clone().send(line("at once")).await.unwrap();
        assert_eq!(queued(), 0);
        assert_eq!(output.next_line().await.unwrap().unwrap(), "at once");
        drop(outgoing);
        assert_eq!(output.next_line().await.unwrap(), None, "its input is closed");
        writer.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn thousand_programs_leave_no_processes() {
        let program = |command: &str| Program {
            command: command.to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
        };
        // Programs that exit by themselves, and programs that wait for the end of their input.
        let (exiting, waiting) = (program("true"), program("cat"));
        for round in 0..500 {
            let mut one = StdioTransport::start("exiting", &exiting).unwrap();
            let two = StdioTransport::start("waiting", &waiting).unwrap();
            if round % 2 == 0 {
                one.close().await.unwrap();
            }
            drop(two);
        }
        let left = || child_stats(std::process::id());
        let mut poll = tokio::time::interval(Duration::from_millis(20));
        let exited = async {
            while !left().is_empty() {
                poll.tick().await;
            }
        };
        assert!(timeout(Duration::from_secs(20), exited).await.is_ok(), "left: {:?}", left());
    }

    /// Returns the `stat` lines of a process's children, including zombies.
    fn child_stats(parent: u32) -> Vec<String> {
        let stats = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let after = stat.rsplit_once(") ")?.1.to_owned();
            let mut words = after.split(' ').skip(1);
            (words.next()?.parse() == Ok(parent)).then_some(stat)
        });
        stats.collect()
    }
}
