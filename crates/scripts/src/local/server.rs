//! The Python process that turns requests into scripts; see `server.py`.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    path::Path,
    process::Stdio,
    time::Duration,
};

use rockbot_child::ProcessGroup;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::{
    io::{AsyncReadExt, Interest},
    net::UnixStream,
    time::timeout,
};

use super::plan::Plan;

/// Time limit for an interpreter to start on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for sending a request; servers accept requests at once.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_STDERR_BYTES: u64 = 4096;

/// A process that accepts requests. Killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    requests: UnixStream,
    process: ProcessGroup,
}

/// The script's ends of its control socket and output pipes, and the entrance to its cgroup.
#[derive(Debug)]
pub(super) struct Descriptors {
    pub(super) control: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) cgroup: Option<OwnedFd>,
}

impl Server {
    /// Starts a server for many scripts.
    pub(super) async fn warm(plan: &Plan) -> io::Result<Self> {
        Self::start(plan, "warm", None).await
    }

    /// Starts a server for a single script, which may use packages.
    pub(super) async fn cold(plan: &Plan, packages: Option<&Path>) -> io::Result<Self> {
        Self::start(plan, "cold", packages).await
    }

    /// Kills the server and waits for its exit. Running scripts continue under their supervisors.
    pub(super) async fn stop(self) {
        let Self { requests, process } = self;
        drop(requests);
        process.finish().await;
    }

    async fn start(plan: &Plan, mode: &str, packages: Option<&Path>) -> io::Result<Self> {
        let (local, remote) = StdUnixStream::pair()?;
        let mut command = plan.command(mode, packages);
        command.stdin(Stdio::from(OwnedFd::from(remote)));
        // A pipe like the script's own: Python determines only once whether stdout is seekable.
        let (_, unread) = io::pipe()?;
        command.stdout(unread).stderr(Stdio::piped());
        let (process, pipes) = ProcessGroup::spawn(&mut command)?;
        // The command holds the other end of the socket and would keep it open.
        drop(command);
        local.set_nonblocking(true)?;
        let mut requests = UnixStream::from_std(local)?;
        let ready = timeout(READY_TIMEOUT, requests.read_u8()).await;
        if matches!(ready, Ok(Ok(_))) {
            return Ok(Self { requests, process });
        }
        process.finish().await;
        let mut output = Vec::new();
        if let Some(stderr) = pipes.stderr {
            let mut stderr = stderr.take(MAX_STDERR_BYTES);
            let _ = timeout(SEND_TIMEOUT, stderr.read_to_end(&mut output)).await;
        }
        let output = String::from_utf8_lossy(&output);
        let last = output.lines().rfind(|line| !line.trim().is_empty());
        Err(io::Error::other(last.unwrap_or("it did not start in time").to_owned()))
    }

    /// Requests a cell with these descriptors. This process's copies close when `descriptors` drops.
    pub(super) async fn request(&self, descriptors: &Descriptors) -> io::Result<()> {
        let Descriptors { control, stdout, stderr, cgroup } = descriptors;
        let mut passed = vec![control.as_fd(), stdout.as_fd(), stderr.as_fd()];
        passed.extend(cgroup.as_ref().map(AsFd::as_fd));
        let sending = self.requests.async_io(Interest::WRITABLE, || send(&self.requests, &passed));
        timeout(SEND_TIMEOUT, sending).await?
    }
}

fn send(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(socket, &[IoSlice::new(b"s")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
