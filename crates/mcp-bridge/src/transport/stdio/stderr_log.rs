//! The standard error of a server program: logged, and kept for the reason when it ends.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rockbot_contracts::outside_text::plain;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::ChildStderr,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// The longest line that is logged, in bytes.
const MAX_LINE_BYTES: usize = 2048;
/// The number of lines that are kept.
const MAX_KEPT_LINES: usize = 5;
/// The longest kept line, in characters.
const MAX_KEPT_CHARS: usize = 200;
/// The time limit for the rest of the output after the program was stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The log of a program's standard error.
#[derive(Clone)]
pub(crate) struct StderrLog(Arc<Shared>);

struct Shared {
    lines: Mutex<VecDeque<String>>,
    /// The program is stopped, so its output ends soon.
    stopped: CancellationToken,
    /// The output is read to its end.
    ended: CancellationToken,
}

impl StderrLog {
    /// Starts to read the standard error of the server `name`.
    pub(super) fn start(name: &str, stderr: ChildStderr) -> Self {
        let shared = Shared {
            lines: Mutex::default(),
            stopped: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        let log = Self(Arc::new(shared));
        let (reader, name) = (log.clone(), name.to_owned());
        tokio::spawn(async move {
            let _ended = reader.0.ended.clone().drop_guard();
            let stopped = async {
                reader.0.stopped.cancelled().await;
                // A process that left the group may keep the stream open.
                tokio::time::sleep(DRAIN_TIMEOUT).await;
            };
            tokio::select! {
                () = reader.read(&name, stderr) => {}
                () = stopped => {}
            }
        });
        log
    }

    /// Ends reading, at most after [`DRAIN_TIMEOUT`].
    pub(super) fn stop(&self) {
        self.0.stopped.cancel();
    }

    /// Returns the last lines of a program that has ended or is being stopped; `None` without output.
    pub(crate) async fn last_lines(&self) -> Option<String> {
        let _ = timeout(2 * DRAIN_TIMEOUT, self.0.ended.cancelled()).await;
        let lines = self.0.lines.lock();
        (!lines.is_empty())
            .then(|| lines.iter().map(String::as_str).collect::<Vec<_>>().join(" | "))
    }

    async fn read(&self, name: &str, stderr: ChildStderr) {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = MAX_LINE_BYTES as u64;
            match (&mut stderr).take(limit).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            // Untrusted and often verbose: at debug.
            let text = plain(String::from_utf8_lossy(&line).trim_end(), MAX_LINE_BYTES);
            debug!(server = %name, line = %text, "server program wrote to stderr");
            if text.trim().is_empty() {
                continue;
            }
            let mut lines = self.0.lines.lock();
            if lines.len() == MAX_KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(plain(text.trim(), MAX_KEPT_CHARS));
        }
    }
}
