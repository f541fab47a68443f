//! How scripts are run with Docker.

use std::{path::PathBuf, time::Duration};

use crate::prepared::PreparedImage;

/// What an operator may choose. The defaults suit a developer's machine.
#[derive(Debug, Clone, PartialEq)]
pub struct DockerOptions {
    /// Docker's command line. Default `docker`, from `PATH`.
    pub program: PathBuf,
    /// The daemon, as in `DOCKER_HOST`. Default none: what that variable or Docker's context says.
    pub host: Option<String>,
    /// The image, with a `python3` of 3.9 or later. Default `python:3.12-slim`.
    pub image: String,
    /// Images for scripts that ask for packages. Default none: packages are refused.
    pub images: Vec<PreparedImage>,
    /// What to do about an image that is missing. Default [`Pull::Never`].
    pub pull: Pull,
    /// The container runtime, such as `runsc`. Default none: the daemon's own default.
    pub runtime: Option<String>,
    /// The memory of a script, with its files. Default 512 MiB.
    pub memory_bytes: u64,
    /// The processors of a script. Default 1.
    pub cpus: f64,
    /// The processes and threads of a script, with the one that watches it. Default 64.
    pub processes: u32,
    /// The room for a script's files, which is memory: as much in `/tmp` as in `/dev/shm`. Default
    /// 64 MiB.
    pub disk_bytes: u64,
    /// How much a script may print before it is ended. Default 1 MiB.
    pub stdout_bytes: usize,
    /// How much is kept of the end of its complaints. Default 16 KiB.
    pub stderr_bytes: usize,
    /// Scripts at once. Default 4.
    pub at_once: usize,
    /// Scripts that wait for their turn; more are refused. Default 64.
    pub waiting: usize,
    /// How long Docker may take until a script begins. Default 30 s, of which little is needed unless
    /// an image is pulled.
    pub start_timeout: Duration,
}

/// What to do about an image that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// Refuse the script, and tell the operator.
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
            at_once: 4,
            waiting: 64,
            start_timeout: Duration::from_secs(30),
        }
    }
}
