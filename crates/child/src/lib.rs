//! Child processes in their own process groups, which never outlive their owner.

use std::{future::pending, io, process::ExitStatus, time::Duration};

use rustix::process::{
    Pid, Signal as UnixSignal, WaitId, WaitIdOptions, kill_process_group, waitid,
};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

/// Environment variables with the proxies and certificates of the machine, which a child process needs to
/// reach the network.
pub const NETWORK_VARIABLES: [&str; 11] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
];

/// Maximum time until a killed process can be reaped. Only an uninterruptible system call takes longer.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// The parent's ends of a child's standard streams.
#[derive(Debug)]
pub struct Pipes {
    /// The child's standard input.
    pub stdin: Option<ChildStdin>,
    /// The child's standard output.
    pub stdout: Option<ChildStdout>,
    /// The child's standard error.
    pub stderr: Option<ChildStderr>,
}

/// A process and its descendants, unless they leave the group. Killed when dropped.
///
/// The leader is reaped last: until then its process id is not reused, so a signal to the group can't
/// reach an unrelated process.
#[derive(Debug)]
pub struct ProcessGroup {
    child: Child,
    group: Option<Pid>,
    child_signals: Signal,
}

impl ProcessGroup {
    /// Starts a command as the leader of a new process group.
    ///
    /// # Errors
    /// When the program can't be started.
    pub fn spawn(command: &mut Command) -> io::Result<(Self, Pipes)> {
        // Registered before the child exists, so that no exit is missed.
        let child_signals = signal(SignalKind::child())?;
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pipes = Pipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        };
        Ok((Self { child, group, child_signals }, pipes))
    }

    /// Waits until the leader has exited, without reaping it. Safe to cancel and to call again.
    pub async fn wait_for_leader(&mut self) {
        let Some(leader) = self.group else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while matches!(waitid(WaitId::Pid(leader), options), Ok(None)) {
            if self.child_signals.recv().await.is_none() {
                pending::<()>().await;
            }
        }
    }

    /// Sends SIGTERM to the group.
    pub fn terminate(&self) {
        self.send(UnixSignal::TERM);
    }

    /// Kills the rest of the group and reaps the leader. Returns `None` if it was not reaped within a
    /// second.
    pub async fn finish(mut self) -> Option<ExitStatus> {
        self.send(UnixSignal::KILL);
        let status = timeout(REAP_TIMEOUT, self.child.wait()).await.ok()?.ok()?;
        self.group = None;
        Some(status)
    }

    fn send(&self, signal: UnixSignal) {
        if let Some(group) = self.group
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(%error, "process group signal failed");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.send(UnixSignal::KILL);
    }
}
