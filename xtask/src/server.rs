//! A server on 127.0.0.1 that runs beside the tests.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::broker::{ProcessGuard, StopSignal, connect, pause, tail};
use crate::process::check_interrupt;
use crate::workspace;

const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server; dropping it ends its whole process group.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    port: u16,
    guard: ProcessGuard,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `command`, which listens on `port`, and returns when `GET /health` there is
    /// answered with 200.
    pub(crate) fn start(name: &'static str, command: &mut Command, port: u16) -> Result<Self> {
        let log = workspace::peers_folder()?.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let mut guard = ProcessGuard::start(StopSignal::Kill, None)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        guard.watch(&child)?;
        let mut server = Self { name, port, guard, child, log };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The base URL of its OpenAI-compatible API.
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Fails with the end of the log once the server has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}):\n{}", self.name, tail(&self.log));
        }
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !self.is_healthy() {
            check_interrupt()?;
            self.check()?;
            ensure!(
                Instant::now() < deadline,
                "{} did not answer within {} s:\n{}",
                self.name,
                START_LIMIT.as_secs(),
                tail(&self.log)
            );
            pause();
        }
        Ok(())
    }

    fn is_healthy(&self) -> bool {
        let Ok(mut stream) = connect(self.port) else { return false };
        let mut status = [0; 12];
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").is_ok()
            && stream.read_exact(&mut status).is_ok()
            && status == *b"HTTP/1.1 200"
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.guard.finish();
        // The guard has killed the group; this makes sure that the wait, which reaps, ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
