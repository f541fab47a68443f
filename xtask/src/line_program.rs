//! Programs that answer each line of their standard input with a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::broker::{ProcessGuard, StopSignal};

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct LineProgram {
    name: &'static str,
    // Dropped first: the guard kills the process group.
    _guard: ProcessGuard,
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl LineProgram {
    /// Starts a program, and waits for its line `ready`.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} did not start"))?;
        let mut guard = ProcessGuard::start(StopSignal::Kill, None)?;
        guard.watch(&child)?;
        let requests = child.stdin.take().context("piped")?;
        let replies = BufReader::new(child.stdout.take().context("piped")?);
        let mut program = Self { name, _guard: guard, child, requests, replies };
        let line = program.read()?;
        ensure!(line == "ready", "{name} did not get ready; it printed {line:?}");
        Ok(program)
    }

    /// Sends a line, and returns the reply.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.requests, "{line}").with_context(|| format!("{} exited", self.name))?;
        self.requests.flush()?;
        self.read()
    }

    fn read(&mut self) -> Result<String> {
        let mut line = String::new();
        let count = self.replies.read_line(&mut line)?;
        ensure!(count > 0, "{} exited ({:?})", self.name, self.child.try_wait());
        Ok(line.trim().to_owned())
    }
}

impl Drop for LineProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
