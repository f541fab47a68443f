//! Docker's command line as a child process.

use std::{io, path::PathBuf, process::Stdio, time::Duration};

use rockbot_child::{Pipes, ProcessGroup};
use tokio::{io::AsyncReadExt, process::Command, time::timeout};

use super::{
    arguments::{ENDS, RUN, now},
    failure::DockerError,
};

/// How long Docker may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// How much is read of what it complains about.
pub(super) const MAX_COMPLAINT_BYTES: u64 = 16 << 10;
/// Containers removed at once.
const MAX_REMOVED: usize = 500;
/// What Docker's command line is told of our environment: where the daemon is, and how to get there.
const PASSED: [&str; 11] = [
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS",
    "DOCKER_TLS_VERIFY",
    "DOCKER_API_VERSION",
];

/// The command line, and the daemon that it talks to.
#[derive(Debug, Clone)]
pub(super) struct Docker {
    pub(super) program: PathBuf,
    pub(super) host: Option<String>,
}

impl Docker {
    /// Starts a command.
    pub(super) fn start(&self, arguments: &[String]) -> Result<(ProcessGroup, Pipes), DockerError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear();
        for name in PASSED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host).env_remove("DOCKER_CONTEXT");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ProcessGroup::spawn(&mut command).map_err(|source| DockerError::NoProgram {
            program: self.program.display().to_string(),
            source,
        })
    }

    /// What a command answers that ends soon.
    pub(super) async fn answer(&self, arguments: &[&str]) -> Result<String, DockerError> {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        let (mut process, pipes) = self.start(&arguments)?;
        drop(pipes.stdin);
        let (mut said, mut complaint) = (Vec::new(), Vec::new());
        let asking = async {
            let (read, complained) = tokio::join!(
                read(pipes.stdout, MAX_ANSWER_BYTES, &mut said),
                read(pipes.stderr, MAX_COMPLAINT_BYTES, &mut complaint),
            );
            process.leader_ended().await;
            read.and(complained)
        };
        match timeout(ANSWER_TIMEOUT, asking).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(DockerError::Refused { said: error.to_string() }),
            Err(_) => return Err(DockerError::Silent { after: ANSWER_TIMEOUT }),
        }
        match process.finish().await {
            Some(status) if status.success() => Ok(String::from_utf8_lossy(&said).into_owned()),
            _ => Err(DockerError::told(&complaint)),
        }
    }

    /// Removes the containers of a run, of which there is one at most; returns how many there were.
    pub(super) async fn remove(&self, run: &str) -> Result<usize, DockerError> {
        let filter = format!("label={RUN}={run}");
        let words = ["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter];
        let found = self.answer(&words).await?;
        self.remove_all(&found.lines().collect::<Vec<_>>()).await
    }

    /// Removes containers that should have ended, whoever started them; returns how many there were.
    pub(super) async fn sweep(&self) -> Result<usize, DockerError> {
        let (filter, format) =
            (format!("label={ENDS}"), format!("{{{{.ID}}}} {{{{.Label \"{ENDS}\"}}}}"));
        let words = ["ps", "--all", "--no-trunc", "--filter", &filter, "--format", &format];
        let (found, now) = (self.answer(&words).await?, now());
        let late = |line: &&str| {
            let ends = line.split_once(' ').and_then(|(_, ends)| ends.parse::<u64>().ok());
            ends.is_none_or(|ends| ends < now)
        };
        let ids = found.lines().filter(late).filter_map(|line| line.split(' ').next());
        let ids: Vec<&str> = ids.take(MAX_REMOVED).collect();
        self.remove_all(&ids).await
    }

    async fn remove_all(&self, ids: &[&str]) -> Result<usize, DockerError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let words = [&["rm", "--force", "--volumes"], ids].concat();
        match self.answer(&words).await {
            // It went by itself, or is about to.
            Err(DockerError::Refused { said })
                if said.contains("No such container") || said.contains("already in progress") =>
            {
                Ok(ids.len())
            }
            answer => answer.map(|_| ids.len()),
        }
    }
}

/// Reads so many bytes, and what is more so that nobody waits.
async fn read(
    pipe: Option<impl tokio::io::AsyncRead + Unpin>,
    limit: u64,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    (&mut pipe).take(limit).read_to_end(into).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.map(drop)
}
