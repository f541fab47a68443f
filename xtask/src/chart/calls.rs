//! Calls to a released fleet at a constant rate, from outside the cluster.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::broker::{ProcessGuard, StopSignal, free_port};
use crate::{console, python, workspace};

const AIO_PIKA: &str = "aio-pika==10.2.1";
/// Calls during an upgrade.
const CALLS_PER_SECOND: &str = "50";

/// A process that makes calls; dropping it stops the calls.
pub(super) struct Calls {
    caller: Child,
    output: BufReader<ChildStdout>,
    // `kubectl port-forward` writes a line for each connection and must not find its output closed.
    _forward_output: BufReader<ChildStdout>,
    _guard: ProcessGuard,
}

impl Calls {
    /// Starts the calls through `kubectl port-forward` to the pod of the embedded broker, and returns
    /// after the first reply.
    pub(super) fn start(
        mut forward: Command,
        pod: &str,
        user: &str,
        password: &str,
    ) -> Result<Self> {
        let environment = workspace::peers_folder()?.join("python-calls");
        python::environment(&environment, &[AIO_PIKA], python::Dependencies::Install, true)?;
        let mut guard = ProcessGuard::start(StopSignal::Kill, None)?;
        let port = free_port()?;
        forward.args(["port-forward", pod, &format!("{port}:5672")]);
        let mut forward = spawn(&mut forward, &mut guard)?;
        // kubectl prints a line when it listens.
        let stdout = forward.stdout.take().context("kubectl has no output")?;
        let mut forward_output = BufReader::new(stdout);
        let first = read_line(&mut forward_output)?;
        ensure!(first.contains("Forwarding"), "cannot forward a port to {pod}: {first}");

        let url = format!("amqp://{user}:{password}@127.0.0.1:{port}/%2f");
        let mut caller = Command::new(python::program(&environment, "python"));
        caller.arg(workspace::peer_file("constant_rate_calls.py")).args([&url, CALLS_PER_SECOND]);
        let mut caller = spawn(&mut caller, &mut guard)?;
        let mut output = BufReader::new(caller.stdout.take().context("the caller has no output")?);
        ensure!(read_line(&mut output)?.trim() == "ready", "the first call failed");
        Ok(Self { caller, output, _forward_output: forward_output, _guard: guard })
    }

    /// Stops the calls, and fails if any of them failed.
    pub(super) fn finish(mut self) -> Result<()> {
        drop(self.caller.stdin.take());
        let mut summary = String::new();
        self.output.read_to_string(&mut summary)?;
        ensure!(self.caller.wait()?.success(), "calls failed: {summary}");
        console::progress("chart", summary.trim());
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
