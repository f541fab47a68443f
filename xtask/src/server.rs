//! A server on 127.0.0.1 for the tests.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::broker::{ProcessGuard, StopSignal, connect, tail, wait_before_poll};
use crate::process::check_interrupt;
use crate::workspace;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    port: u16,
    guard: ProcessGuard,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `command`, which listens on `port`, and returns when `GET /health` returns 200.
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

    /// Returns the base URL of the OpenAI-compatible API.
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Fails with the end of the log if the server exited.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} exited ({status}):\n{}", self.name, tail(&self.log));
        }
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.is_healthy() {
            check_interrupt()?;
            self.check()?;
            ensure!(
                Instant::now() < deadline,
                "{} is not ready after {} s:\n{}",
                self.name,
                START_TIMEOUT.as_secs(),
                tail(&self.log)
            );
            wait_before_poll();
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
        // The guard killed the group; the second kill ensures that the wait returns.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
