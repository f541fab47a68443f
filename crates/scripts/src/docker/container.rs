//! A container of a script, owned: it ends with its owner, however that goes.

use std::{process::ExitStatus, time::Duration};

use rockbot_child::{Pipes, ProcessGroup};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
    runtime::Handle,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::{
    cli::{Docker, MAX_COMPLAINT_BYTES},
    failure::DockerError,
    frame::{Frame, Frames},
};
use crate::slots::Slot;

/// How long Docker may take to notice that a container has ended, and to remove it.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long until a container that is not gone is removed once more.
const REMOVE_AGAIN: Duration = Duration::from_millis(200);
/// How long a container may take to be removed.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(60);

/// A container that is started, runs or has ended, and the command line that is attached to it.
///
/// To end that command line is not to end the container. What ends it is the end of its standard
/// input, which its first process reads: also when this process is killed. Dropping this closes it,
/// and has a task remove what is left. The slot is free when the container is gone.
#[derive(Debug)]
pub(super) struct Container {
    stdin: Option<ChildStdin>,
    frames: Option<Frames<ChildStdout>>,
    stderr: Option<ChildStderr>,
    rest: Option<Rest>,
    endings: TaskTracker,
    has_ended: bool,
}

/// What a container leaves to be cleared away.
#[derive(Debug)]
struct Rest {
    process: Option<ProcessGroup>,
    docker: Docker,
    run: String,
    _slot: Slot,
}

impl Container {
    /// Starts one with `arguments`, labelled with `run`. `endings` owns the tasks that remove.
    pub(super) fn start(
        docker: &Docker,
        arguments: &[String],
        run: String,
        slot: Slot,
        endings: &TaskTracker,
    ) -> Result<Self, DockerError> {
        let (process, Pipes { stdin, stdout, stderr }) = docker.start(arguments)?;
        let rest = Rest { process: Some(process), docker: docker.clone(), run, _slot: slot };
        Ok(Self {
            stdin,
            frames: stdout.map(Frames::of),
            stderr,
            rest: Some(rest),
            endings: endings.clone(),
            has_ended: false,
        })
    }

    /// The next thing that its first process says; none at its end.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Frame>> {
        match &mut self.frames {
            Some(frames) => frames.next().await,
            None => Ok(None),
        }
    }

    /// Says something to its first process.
    pub(super) async fn tell(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        stdin.write_all(bytes).await?;
        stdin.flush().await
    }

    /// Its first process has ended, in order: Docker removes it by itself.
    pub(super) fn ended(&mut self) {
        self.has_ended = true;
    }

    /// How its command line ended, and what that complained about.
    pub(super) async fn conclusion(&mut self) -> (Option<ExitStatus>, Vec<u8>) {
        let mut complaint = Vec::new();
        let Some(mut process) = self.rest.as_mut().and_then(|rest| rest.process.take()) else {
            return (None, complaint);
        };
        if let Some(stderr) = self.stderr.take() {
            let mut stderr = stderr.take(MAX_COMPLAINT_BYTES);
            let reading = timeout(END_TIMEOUT, stderr.read_to_end(&mut complaint));
            if !matches!(reading.await, Ok(Ok(_))) {
                debug!("what docker complained about could not be read to its end");
            }
        }
        let ended = timeout(END_TIMEOUT, process.leader_ended()).await.is_ok();
        let status = process.finish().await;
        (status.filter(|_| ended), complaint)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // First of all: what its first process waits for, and what it may be writing into.
        drop((self.stdin.take(), self.frames.take()));
        let (stderr, has_ended) = (self.stderr.take(), self.has_ended);
        if let Some(rest) = self.rest.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let clearing = async move {
                // Open until the end: the command line may have something to say.
                let _stderr = stderr;
                rest.clear(has_ended).await;
            };
            drop(self.endings.spawn_on(clearing, &runtime));
        }
    }
}

impl Rest {
    async fn clear(mut self, has_ended: bool) {
        let mut process = self.process.take();
        // The command line of a container that removes itself ends when it is removed.
        if has_ended
            && let Some(process) = &mut process
            && timeout(END_TIMEOUT, process.leader_ended()).await.is_ok()
        {
            return;
        }
        if timeout(REMOVE_TIMEOUT, self.remove(process.as_mut())).await.is_err() {
            warn!(run = self.run, "a container would not go; it ends by itself at its deadline");
        }
        if let Some(process) = process {
            process.finish().await;
        }
    }

    /// Removes the container until there is none: while the command line goes on, it may still be
    /// about to make it.
    async fn remove(&self, mut process: Option<&mut ProcessGroup>) {
        loop {
            let is_over = match &mut process {
                Some(process) => timeout(Duration::ZERO, process.leader_ended()).await.is_ok(),
                None => true,
            };
            match self.docker.remove(&self.run).await {
                Ok(0) if is_over => return,
                Ok(_) => {}
                Err(error @ (DockerError::NoDaemon { .. } | DockerError::NoProgram { .. })) => {
                    warn!(%error, run = self.run, "a container can't be removed");
                    return;
                }
                Err(error) => debug!(%error, run = self.run, "a container is not removed yet"),
            }
            sleep(REMOVE_AGAIN).await;
        }
    }
}
