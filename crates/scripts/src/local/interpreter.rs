//! The Python that runs scripts, asked once about itself.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rockbot_child::ProcessGroup;
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};

use super::{StartError, environment};

const QUESTION: &str = include_str!("interpreter.py");
const TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// Where an interpreter lives, and what the kernel under it offers.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Interpreter {
    /// The program itself, behind links, shims and virtual environments.
    pub(super) program: PathBuf,
    /// Its folders, standard library included.
    pub(super) folders: Vec<PathBuf>,
    /// Such as `cpython-311-x86_64-linux-gnu`: what a built package fits to.
    pub(super) tag: String,
    version: (u32, u32),
    /// The version of Landlock; 0 for none.
    pub(super) landlock: u32,
    /// Whether the kernel filters system calls.
    pub(super) seccomp: bool,
}

impl Interpreter {
    /// Finds and asks.
    pub(super) async fn find(program: &Path) -> Result<Self, StartError> {
        let unusable = |reason: String| StartError::Python { program: program.into(), reason };
        let answer = ask(program).await.map_err(|error| unusable(error.to_string()))?;
        let found: Self = serde_json::from_slice(&answer)
            .map_err(|_| unusable("it did not say where it lives; is it Python 3?".to_owned()))?;
        if found.version < (3, 9) {
            let (major, minor) = found.version;
            return Err(unusable(format!("it is Python {major}.{minor}, and 3.9 is needed")));
        }
        Ok(found)
    }
}

async fn ask(program: &Path) -> io::Result<Vec<u8>> {
    let mut command = Command::new(program);
    command
        .args(["-I", "-S", "-c", QUESTION])
        .env_clear()
        // A shim looks for its interpreter in there.
        .envs(environment::kept(&["PATH", "HOME"]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (group, pipes) = ProcessGroup::spawn(&mut command)?;
    let reading = async { tokio::join!(all(pipes.stdout), all(pipes.stderr)) };
    let (answer, complaint) = timeout(TIMEOUT, reading)
        .await
        .map_err(|_| io::Error::other(format!("it said nothing for {} s", TIMEOUT.as_secs())))?;
    group.finish().await;
    let (answer, complaint) = (answer?, complaint?);
    let complaint = String::from_utf8_lossy(&complaint);
    match complaint.lines().rfind(|line| !line.trim().is_empty()) {
        Some(last) if answer.is_empty() => Err(io::Error::other(last.to_owned())),
        _ => Ok(answer),
    }
}

async fn all(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(stream) = stream {
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut all).await?;
    }
    Ok(all)
}
