//! The Python interpreter that runs scripts.

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

use super::{environment, error::StartError};

const INSPECTION: &str = include_str!("interpreter.py");
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;

/// The paths of an interpreter, and the sandbox features of its kernel.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Interpreter {
    /// The program itself, behind links, shims and virtual environments.
    pub(super) program: PathBuf,
    /// Its folders, including the standard library.
    pub(super) folders: Vec<PathBuf>,
    /// The ABI of its binary packages, such as `cpython-311-x86_64-linux-gnu`.
    pub(super) tag: String,
    version: (u32, u32),
    /// The version of Landlock; 0 if unsupported.
    pub(super) landlock: u32,
    /// Set when the kernel supports filters of system calls.
    pub(super) seccomp: bool,
}

impl Interpreter {
    /// Resolves a program and runs it to inspect itself.
    pub(super) async fn find(program: &Path) -> Result<Self, StartError> {
        let unusable = |reason: String| StartError::Python { program: program.into(), reason };
        let output = inspect(program).await.map_err(|error| unusable(error.to_string()))?;
        let found: Self = serde_json::from_slice(&output)
            .map_err(|_| unusable("it did not report its paths".to_owned()))?;
        if found.version < (3, 9) {
            let (major, minor) = found.version;
            return Err(unusable(format!("it is Python {major}.{minor}, older than 3.9")));
        }
        Ok(found)
    }
}

async fn inspect(program: &Path) -> io::Result<Vec<u8>> {
    let mut command = Command::new(program);
    command
        .args(["-I", "-S", "-c", INSPECTION])
        .env_clear()
        // A shim needs them to find its interpreter.
        .envs(environment::inherited(&["PATH", "HOME"]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (group, pipes) = ProcessGroup::spawn(&mut command)?;
    let reading = async { tokio::join!(read_all(pipes.stdout), read_all(pipes.stderr)) };
    let (stdout, stderr) = timeout(INSPECTION_TIMEOUT, reading).await.map_err(|_| {
        let seconds = INSPECTION_TIMEOUT.as_secs();
        io::Error::other(format!("it did not respond within {seconds} s"))
    })?;
    group.finish().await;
    let (stdout, stderr) = (stdout?, stderr?);
    let stderr = String::from_utf8_lossy(&stderr);
    match stderr.lines().rfind(|line| !line.trim().is_empty()) {
        Some(last) if stdout.is_empty() => Err(io::Error::other(last.to_owned())),
        _ => Ok(stdout),
    }
}

async fn read_all(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    if let Some(stream) = stream {
        stream.take(MAX_OUTPUT_BYTES).read_to_end(&mut content).await?;
    }
    Ok(content)
}
