//! Options of the Docker runner.

use std::{path::PathBuf, time::Duration};

use crate::prepared::PreparedImage;

/// Options of the Docker runner. The defaults suit a developer's machine.
#[derive(Debug, Clone, PartialEq)]
pub struct DockerOptions {
    /// The command line client. Default `docker`, from `PATH`.
    pub program: PathBuf,
    /// The daemon, as in `DOCKER_HOST`. Default: that variable, or Docker's current context.
    pub host: Option<String>,
    /// The image, with a `python3` of 3.9 or later. Default `python:3.12-slim`.
    pub image: String,
    /// Images for scripts that request packages. Default none: packages are rejected.
    pub images: Vec<PreparedImage>,
    /// The pull policy for missing images. Default [`Pull::Never`].
    pub pull: Pull,
    /// The container runtime, such as `runsc`. Default: the daemon's own.
    pub runtime: Option<String>,
    /// The memory of a script, including its files. Default 512 MiB.
    pub memory_bytes: u64,
    /// The processors of a script. Default 1.
    pub cpus: f64,
    /// The processes and threads of a script, including its parent in the container. Default 64.
    pub processes: u32,
    /// The space for a script's files, which is memory: as much in `/tmp` as in `/dev/shm`. Default
    /// 64 MiB.
    pub disk_bytes: u64,
    /// The most output of a script; a script that prints more is stopped. Default 1 MiB.
    pub stdout_bytes: usize,
    /// Size limit of stderr, of which the end is kept. Default 16 KiB.
    pub stderr_bytes: usize,
    /// The scripts that run at the same time. Default 4.
    pub concurrency: usize,
    /// The scripts that wait for a permit; more are rejected. Default 64.
    pub waiting: usize,
    /// Time limit for Docker to start a script. Default 30 s; most of it is only needed to pull an image.
    pub start_timeout: Duration,
}

/// The pull policy for missing images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// Reject the script and log an error for the operator.
    Never,
    /// Pull it while the script waits.
    Missing,
}

impl Default for DockerOptions {
    fn default() -> Self {
        Self {
            program: PathBuf::from("docker"),
            host: None,
            image: "python:3.12-slim".to_owned(),
            images: Vec::new(),
            pull: Pull::Never,
            runtime: None,
            memory_bytes: 512 << 20,
            cpus: 1.0,
            processes: 64,
            disk_bytes: 64 << 20,
            stdout_bytes: 1 << 20,
            stderr_bytes: 16 << 10,
            concurrency: 4,
            waiting: 64,
            start_timeout: Duration::from_secs(30),
        }
    }
}
