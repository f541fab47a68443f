//! A child process and all that it starts in its process group, owned: none of it outlives the
//! owner.

use std::{future::pending, io, process::ExitStatus, time::Duration};

use rustix::process::{
    Pid, Signal as UnixSignal, WaitId, WaitIdOptions, kill_process_group, waitid,
};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

/// How long a killed process may take to be gone: longer only in a system call that can't be
/// interrupted.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// This side of the pipes that a command was given.
#[derive(Debug)]
pub struct Pipes {
    /// What it reads.
    pub stdin: Option<ChildStdin>,
    /// What it writes.
    pub stdout: Option<ChildStdout>,
    /// What it complains about.
    pub stderr: Option<ChildStderr>,
}

/// A process and those it starts, unless they leave the group. Killed when dropped.
///
/// The leader is reaped last. Until then nothing else can have its number, so a signal to the
/// group can't hit a stranger.
#[derive(Debug)]
pub struct ProcessGroup {
    child: Child,
    group: Option<Pid>,
    exits: Signal,
}

impl ProcessGroup {
    /// Starts a command as the leader of a new group.
    ///
    /// # Errors
    /// When the program can't be started.
    pub fn spawn(command: &mut Command) -> io::Result<(Self, Pipes)> {
        // Listens before there is anything to hear.
        let exits = signal(SignalKind::child())?;
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pipes = Pipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        };
        Ok((Self { child, group, exits }, pipes))
    }

    /// Returns once the leader has ended. Does not reap it. Safe to drop and to call again.
    pub async fn leader_ended(&mut self) {
        let Some(leader) = self.group else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while matches!(waitid(WaitId::Pid(leader), options), Ok(None)) {
            if self.exits.recv().await.is_none() {
                pending::<()>().await;
            }
        }
    }

    /// Asks the group to end.
    pub fn terminate(&self) {
        self.send(UnixSignal::TERM);
    }

    /// Kills what is left of the group and reaps the leader; none when it would not go.
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
            tracing::debug!(%error, "a process group could not be signalled");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.send(UnixSignal::KILL);
    }
}
