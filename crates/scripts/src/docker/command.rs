//! Docker's command line as a child process.

use std::{io, path::PathBuf, process::Stdio, time::Duration};

use rockbot_child::{Pipes, ProcessGroup};
use tokio::{io::AsyncReadExt, process::Command, time::timeout};

use super::{
    arguments::{EXPIRES_LABEL, RUN_LABEL, unix_time},
    error::DockerError,
};

/// Timeout of a short command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_STDOUT_BYTES: u64 = 1 << 20;
/// Size limit of a command's stderr in errors.
pub(super) const MAX_STDERR_BYTES: u64 = 16 << 10;
/// The most containers that one sweep removes.
const MAX_REMOVED: usize = 500;
/// The environment variables that are passed on: where the daemon is and how to reach it.
const PASSED_VARIABLES: [&str; 11] = [
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

/// The command line client and its daemon.
#[derive(Debug, Clone)]
pub(super) struct DockerCli {
    pub(super) program: PathBuf,
    pub(super) host: Option<String>,
}

impl DockerCli {
    /// Spawns a command.
    pub(super) fn spawn(&self, arguments: &[String]) -> Result<(ProcessGroup, Pipes), DockerError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear();
        for name in PASSED_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host).env_remove("DOCKER_CONTEXT");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ProcessGroup::spawn(&mut command).map_err(|source| DockerError::CliMissing {
            program: self.program.display().to_string(),
            source,
        })
    }

    /// Runs a short command and returns its stdout.
    pub(super) async fn output(&self, arguments: &[&str]) -> Result<String, DockerError> {
        let arguments: Vec<String> =
            arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (mut process, pipes) = self.spawn(&arguments)?;
        drop(pipes.stdin);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let reading = async {
            let (out, err) = tokio::join!(
                read_bounded(pipes.stdout, MAX_STDOUT_BYTES, &mut stdout),
                read_bounded(pipes.stderr, MAX_STDERR_BYTES, &mut stderr),
            );
            process.wait_for_leader().await;
            out.and(err)
        };
        match timeout(COMMAND_TIMEOUT, reading).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(DockerError::Other { message: error.to_string() }),
            Err(_) => return Err(DockerError::Timeout { after: COMMAND_TIMEOUT }),
        }
        match process.finish().await {
            Some(status) if status.success() => Ok(String::from_utf8_lossy(&stdout).into_owned()),
            _ => Err(DockerError::from_stderr(&stderr)),
        }
    }

    /// Removes the container of a run, if there is one. Returns the number of removed containers.
    pub(super) async fn remove(&self, run: &str) -> Result<usize, DockerError> {
        let filter = format!("label={RUN_LABEL}={run}");
        let arguments = ["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter];
        let found = self.output(&arguments).await?;
        self.remove_all(&found.lines().collect::<Vec<_>>()).await
    }

    /// Removes expired containers of all runners. Returns the number of removed containers.
    pub(super) async fn sweep(&self) -> Result<usize, DockerError> {
        let filter = format!("label={EXPIRES_LABEL}");
        let format = format!("{{{{.ID}}}} {{{{.Label \"{EXPIRES_LABEL}\"}}}}");
        let arguments = ["ps", "--all", "--no-trunc", "--filter", &filter, "--format", &format];
        let (found, now) = (self.output(&arguments).await?, unix_time());
        let expired = |line: &&str| {
            let expires = line.split_once(' ').and_then(|(_, expires)| expires.parse::<u64>().ok());
            expires.is_none_or(|expires| expires < now)
        };
        let ids = found.lines().filter(expired).filter_map(|line| line.split(' ').next());
        let ids: Vec<&str> = ids.take(MAX_REMOVED).collect();
        self.remove_all(&ids).await
    }

    async fn remove_all(&self, ids: &[&str]) -> Result<usize, DockerError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let arguments = [&["rm", "--force", "--volumes"], ids].concat();
        match self.output(&arguments).await {
            // The container was removed by Docker, or is being removed.
            Err(DockerError::Other { message })
                if message.contains("No such container")
                    || message.contains("already in progress") =>
            {
                Ok(ids.len())
            }
            result => result.map(|_| ids.len()),
        }
    }
}

/// Keeps the first bytes of a pipe and discards the rest, so that the writer does not block.
async fn read_bounded(
    pipe: Option<impl tokio::io::AsyncRead + Unpin>,
    limit: u64,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    (&mut pipe).take(limit).read_to_end(into).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.map(drop)
}
