//! A process that turns requests into scripts: see `server.py` beside this.

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

/// How long an interpreter may take to be ready, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server may take to be given a request: it takes them at once.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_COMPLAINT_BYTES: u64 = 4096;

/// A process that is ready for requests. Ends with this.
#[derive(Debug)]
pub(super) struct Server {
    requests: UnixStream,
    process: ProcessGroup,
}

/// The descriptors that a script is given.
#[derive(Debug)]
pub(super) struct Descriptors {
    pub(super) conversation: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Server {
    /// Starts one for many scripts.
    pub(super) async fn warm(plan: &Plan) -> io::Result<Self> {
        Self::start(plan, "warm", None).await
    }

    /// Starts one for a single script, which may need packages.
    pub(super) async fn cold(plan: &Plan, packages: Option<&Path>) -> io::Result<Self> {
        Self::start(plan, "cold", packages).await
    }

    /// Ends it and waits until it is gone. Scripts go on: their keepers answer to nobody but us.
    pub(super) async fn end(self) {
        let Self { requests, process } = self;
        drop(requests);
        process.finish().await;
    }

    async fn start(plan: &Plan, mode: &str, packages: Option<&Path>) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let mut command = plan.command(mode, packages);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        // A pipe as the script's is going to be, since Python asks only once whether it can seek there.
        let (_, unread) = io::pipe()?;
        command.stdout(unread).stderr(Stdio::piped());
        let (process, pipes) = ProcessGroup::spawn(&mut command)?;
        // It holds the other end of the socket, and would keep it open for us.
        drop(command);
        ours.set_nonblocking(true)?;
        let mut requests = UnixStream::from_std(ours)?;
        let ready = timeout(READY_TIMEOUT, requests.read_u8()).await;
        if matches!(ready, Ok(Ok(_))) {
            return Ok(Self { requests, process });
        }
        process.finish().await;
        let mut complaint = Vec::new();
        if let Some(stderr) = pipes.stderr {
            let mut stderr = stderr.take(MAX_COMPLAINT_BYTES);
            let _ = timeout(SEND_TIMEOUT, stderr.read_to_end(&mut complaint)).await;
        }
        let complaint = String::from_utf8_lossy(&complaint);
        let last = complaint.lines().rfind(|line| !line.trim().is_empty());
        Err(io::Error::other(last.unwrap_or("it was not ready in time").to_owned()))
    }

    /// Asks for a script with these descriptors. Those of this process close with `descriptors`.
    pub(super) async fn ask(&self, descriptors: &Descriptors) -> io::Result<()> {
        let Descriptors { conversation, stdout, stderr } = descriptors;
        let passed = [conversation.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let sending = self.requests.async_io(Interest::WRITABLE, || send(&self.requests, &passed));
        timeout(SEND_TIMEOUT, sending).await?
    }
}

fn send(socket: &UnixStream, descriptors: &[BorrowedFd<'_>; 3]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(socket, &[IoSlice::new(b"s")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
