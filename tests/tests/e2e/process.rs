//! A child process of a test, its output and its exit.

use std::{process::Stdio, time::Duration};

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
    out: Ear,
    err: Ear,
}

/// How a process ended, and what it said until then.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// What comes out of one end of a process.
struct Ear {
    heard: watch::Receiver<String>,
    listener: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().expect("it starts");
        let out = Ear::new(child.stdout.take().expect("a pipe"));
        let err = Ear::new(child.stderr.take().expect("a pipe"));
        Self { name, child, out, err }
    }

    pub(crate) fn pid(&self) -> Pid {
        let id = self.child.id().expect("it still runs");
        Pid::from_raw(id.cast_signed()).expect("a process id")
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signalled");
    }

    /// Waits until standard error holds `words`.
    pub(crate) async fn says(&mut self, words: &str) {
        let heard = self.err.heard.wait_for(|text| text.contains(words));
        let found = matches!(timeout(TEST_TIMEOUT, heard).await, Ok(Ok(_)));
        assert!(found, "{} never said {words:?}:\n{}", self.name, self.err.text());
    }

    /// Waits until standard output holds `words`.
    pub(crate) async fn prints(&mut self, words: &str) {
        let heard = self.out.heard.wait_for(|text| text.contains(words));
        let found = matches!(timeout(TEST_TIMEOUT, heard).await, Ok(Ok(_)));
        assert!(found, "{} never printed {words:?}:\n{}", self.name, self.out.text());
    }

    /// Waits for the line that tells where its admin port is.
    pub(crate) async fn admin_address(&mut self) -> String {
        self.says("admin port listening").await;
        let heard = self.err.text();
        let told = heard.split_once("address=").map_or("", |(_, told)| told);
        told.split_whitespace().next().expect("an address").to_owned()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    /// Returns when the process ends, for tests that expect it to keep running.
    pub(crate) async fn dies(&mut self) {
        self.child.wait().await.expect("it can be waited for");
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) -> Ended {
        self.ended_within(TEST_TIMEOUT * 3).await
    }

    /// Waits for its end, which must come soon.
    pub(crate) async fn ended_within(mut self, limit: Duration) -> Ended {
        let Ok(status) = timeout(limit, self.child.wait()).await else {
            let (out, err) = (self.out.text(), self.err.text());
            panic!("{} did not end within {limit:?}:\n{out}\n{err}", self.name);
        };
        let code = status.expect("it was waited for").code();
        let ended = Ended { code, out: self.out.whole().await, err: self.err.whole().await };
        assert!(!ended.err.contains("panicked"), "{} panicked:\n{}", self.name, ended.err);
        ended
    }
}

impl Ended {
    /// Fails unless it ended with `code`.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "\n{}\n{}", self.out, self.err);
    }

    /// Standard output as the one JSON document it must be.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let read = serde_json::from_str(&self.out);
        read.unwrap_or_else(|error| panic!("{error}:\n{}\n{}", self.out, self.err))
    }
}

impl Ear {
    fn new(pipe: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let (heard, receiver) = watch::channel(String::new());
        let listener = tokio::spawn(async move {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            while matches!(reader.read_until(b'\n', &mut line).await, Ok(1..)) {
                heard.send_modify(|text| text.push_str(&String::from_utf8_lossy(&line)));
                line.clear();
            }
        });
        Self { heard: receiver, listener }
    }

    fn text(&self) -> String {
        self.heard.borrow().clone()
    }

    /// All of it: the process has ended. What it left behind may hold the pipe open.
    async fn whole(&mut self) -> String {
        let _ = timeout(Duration::from_secs(1), &mut self.listener).await;
        self.text()
    }
}
