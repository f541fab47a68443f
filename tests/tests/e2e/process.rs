//! A child process of a test, its output and its exit.

use std::{fmt::Display, fs, process::Stdio, time::Duration};

use rockbot_testkit::fixture::TEST_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

/// A running process. Dropping it kills it.
pub(crate) struct Running {
    name: String,
    child: Child,
    stdout: OutputReader,
    stderr: OutputReader,
}

/// Exit code and output of a process.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Collects the output of a pipe.
struct OutputReader {
    collected: watch::Receiver<String>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().expect("started");
        let stdout = OutputReader::new(child.stdout.take().expect("a pipe"));
        let stderr = OutputReader::new(child.stderr.take().expect("a pipe"));
        Self { name, child, stdout, stderr }
    }

    pub(crate) fn pid(&self) -> Pid {
        let id = self.child.id().expect("running");
        Pid::from_raw(id.cast_signed()).expect("a process id")
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signaled");
    }

    /// Waits until standard error contains `expected`.
    pub(crate) async fn expect_log(&mut self, expected: &str) {
        let contains = self.stderr.collected.wait_for(|text| text.contains(expected));
        let found = matches!(timeout(TEST_TIMEOUT, contains).await, Ok(Ok(_)));
        assert!(found, "{} did not log {expected:?}:\n{}", self.name, self.stderr.text());
    }

    /// Waits until standard output contains `expected`.
    pub(crate) async fn expect_output(&mut self, expected: &str) {
        let contains = self.stdout.collected.wait_for(|text| text.contains(expected));
        let found = matches!(timeout(TEST_TIMEOUT, contains).await, Ok(Ok(_)));
        assert!(found, "{} did not print {expected:?}:\n{}", self.name, self.stdout.text());
    }

    /// Returns standard output so far.
    pub(crate) fn output(&self) -> String {
        self.stdout.text()
    }

    /// Waits for the log line with the address of the admin port.
    pub(crate) async fn admin_address(&mut self) -> String {
        self.expect_log("admin port listening").await;
        let log = self.stderr.text();
        let rest = log.split_once("address=").map_or("", |(_, rest)| rest);
        rest.split_whitespace().next().expect("an address").to_owned()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a status").is_none()
    }

    /// Returns when the process exits, for tests that expect it to keep running.
    pub(crate) async fn wait_for_exit(&mut self) {
        self.child.wait().await.expect("a status");
    }

    /// Waits for the exit of the process.
    pub(crate) async fn wait(self) -> Exit {
        self.wait_within(TEST_TIMEOUT * 3).await
    }

    /// Waits for the exit of the process within a limit.
    pub(crate) async fn wait_within(mut self, limit: Duration) -> Exit {
        let Ok(status) = timeout(limit, self.child.wait()).await else {
            let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
            panic!("{} did not exit within {limit:?}:\n{stdout}\n{stderr}", self.name);
        };
        status.expect("a status");
        let exit = self.finish().await;
        assert!(!exit.stderr.contains("panicked"), "{} panicked:\n{}", self.name, exit.stderr);
        exit
    }

    /// Waits for the exit of the process without a limit and without checks.
    pub(crate) async fn finish(&mut self) -> Exit {
        let code = self.child.wait().await.expect("a status").code();
        Exit { code, stdout: self.stdout.finish().await, stderr: self.stderr.finish().await }
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        self.stderr.text()
    }
}

impl Exit {
    /// Fails unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "\n{}\n{}", self.stdout, self.stderr);
    }

    /// Parses standard output as a JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|error| panic!("{error}:\n{}\n{}", self.stdout, self.stderr))
    }
}

impl OutputReader {
    fn new(pipe: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let (sender, collected) = watch::channel(String::new());
        let task = tokio::spawn(async move {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            while matches!(reader.read_until(b'\n', &mut line).await, Ok(1..)) {
                sender.send_modify(|text| text.push_str(&String::from_utf8_lossy(&line)));
                line.clear();
            }
        });
        Self { collected, task }
    }

    fn text(&self) -> String {
        self.collected.borrow().clone()
    }

    /// Returns the complete output after the exit of the process. Its orphaned children may keep the pipe
    /// open, hence the timeout.
    async fn finish(&mut self) -> String {
        let _ = timeout(Duration::from_secs(1), &mut self.task).await;
        self.text()
    }
}

/// Returns a field of `/proc/<process>/status` in KiB: `VmRSS` is the resident memory, `VmHWM` its peak.
pub(crate) fn memory_kib(process: impl Display, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect("a line").trim().trim_end_matches(" kB").parse().expect("a number")
}
