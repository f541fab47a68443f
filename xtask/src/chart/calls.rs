//! Calls to a released fleet at a constant rate, from outside the cluster.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::broker::{ProcessGuard, StopSignal, free_port};
use crate::{console, python, workspace};

const AIO_PIKA: &str = "aio-pika==10.2.1";
/// Calls during an upgrade.
const CALLS_PER_SECOND: &str = "50";

/// `kubectl port-forward` to the broker; dropping it stops it.
pub(super) struct Forward {
    port: u16,
    // kubectl writes a line for each connection and must not find its output closed.
    _output: BufReader<ChildStdout>,
    _guard: ProcessGuard,
}

impl Forward {
    /// Forwards a free port to the embedded broker in `pod`, and returns when kubectl listens.
    pub(super) fn start(mut kubectl: Command, pod: &str) -> Result<Self> {
        let mut guard = ProcessGuard::start(StopSignal::Kill, None)?;
        let port = free_port()?;
        kubectl.args(["port-forward", pod, &format!("{port}:5672")]);
        let mut kubectl = spawn(&mut kubectl, &mut guard)?;
        let stdout = kubectl.stdout.take().context("kubectl has no output")?;
        let mut output = BufReader::new(stdout);
        let first = read_line(&mut output)?;
        ensure!(first.contains("Forwarding"), "cannot forward a port to {pod}: {first}");
        Ok(Self { port, _output: output, _guard: guard })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

/// Returns a Python interpreter with an AMQP client.
pub(super) fn python() -> Result<PathBuf> {
    let environment = workspace::peers_folder()?.join("python-calls");
    python::environment(&environment, &[AIO_PIKA], python::Dependencies::Install, true)?;
    Ok(python::program(&environment, "python"))
}

/// A process that makes calls; dropping it stops the calls.
pub(super) struct Calls {
    tool: String,
    caller: Child,
    output: BufReader<ChildStdout>,
    _guard: ProcessGuard,
}

impl Calls {
    /// Starts calls of a tool, as the user of the URL, and returns after the first reply.
    pub(super) fn start(url: &str, tool: &str, routing_key: &str) -> Result<Self> {
        let mut guard = ProcessGuard::start(StopSignal::Kill, None)?;
        let mut caller = Command::new(python()?);
        caller.arg(workspace::peer_file("constant_rate_calls.py"));
        caller.args([url, CALLS_PER_SECOND, tool, routing_key]);
        let mut caller = spawn(&mut caller, &mut guard)?;
        let mut output = BufReader::new(caller.stdout.take().context("the caller has no output")?);
        ensure!(read_line(&mut output)?.trim() == "ready", "the first call of {tool} failed");
        Ok(Self { tool: tool.to_owned(), caller, output, _guard: guard })
    }

    /// Stops the calls, and fails if any of them failed.
    pub(super) fn finish(mut self) -> Result<()> {
        drop(self.caller.stdin.take());
        let mut summary = String::new();
        self.output.read_to_string(&mut summary)?;
        let tool = &self.tool;
        ensure!(self.caller.wait()?.success(), "calls of {tool} failed: {summary}");
        console::progress("chart", format_args!("{tool}: {}", summary.trim()));
        Ok(())
    }
}

fn spawn(command: &mut Command, guard: &mut ProcessGuard) -> Result<Child> {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    guard.watch(&child)?;
    Ok(child)
}

fn read_line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line)
}
