//! Calls to the fleet of a release at a steady rate, from outside of the cluster.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::broker::{ProcessGuard, StopSignal, free_port};
use crate::{python, say, workspace};

const AIO_PIKA: &str = "aio-pika==10.2.1";
/// What an upgrade must stand.
const PER_SECOND: &str = "50";

/// Calls that are under way; dropping them ends them.
pub(super) struct Calls {
    caller: Child,
    answers: BufReader<ChildStdout>,
    // A program that tells of each connection must not find its output closed.
    _forwarded: BufReader<ChildStdout>,
    _guard: ProcessGuard,
}

impl Calls {
    /// Begins to call, by a way through `kubectl port-forward` to the pod of the embedded broker, with
    /// the password of the user `cli`; returns when a call was answered.
    pub(super) fn begin(
        mut forward: Command,
        pod: &str,
        user: &str,
        password: &str,
    ) -> Result<Self> {
        let environment = workspace::peers_folder()?.join("python-calls");
        python::environment(&environment, &[AIO_PIKA], python::Needs::Dependencies, true)?;
        let mut guard = ProcessGuard::start(StopSignal::Kill, None)?;
        let port = free_port()?;
        forward.args(["port-forward", pod, &format!("{port}:5672")]);
        let mut forward = started(&mut forward, &mut guard)?;
        // It says so when it listens.
        let said = forward.stdout.take().context("kubectl has no output")?;
        let mut forwarded = BufReader::new(said);
        ensure!(line(&mut forwarded)?.contains("Forwarding"), "there is no way to {pod}");

        let url = format!("amqp://{user}:{password}@127.0.0.1:{port}/%2f");
        let mut caller = Command::new(python::program(&environment, "python"));
        caller.arg(workspace::peer_file("calls_at_a_rate.py")).args([&url, PER_SECOND]);
        let mut caller = started(&mut caller, &mut guard)?;
        let mut answers = BufReader::new(caller.stdout.take().context("the caller has no output")?);
        ensure!(line(&mut answers)?.trim() == "ready", "no call is answered");
        Ok(Self { caller, answers, _forwarded: forwarded, _guard: guard })
    }

    /// Ends them, and fails when one of them failed.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.caller.stdin.take());
        let mut said = String::new();
        self.answers.read_to_string(&mut said)?;
        ensure!(self.caller.wait()?.success(), "calls failed: {said}");
        say::progress("chart", said.trim());
        Ok(())
    }
}

fn started(command: &mut Command, guard: &mut ProcessGuard) -> Result<Child> {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    guard.watch(&child)?;
    Ok(child)
}

fn line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line)
}
