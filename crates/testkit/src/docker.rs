//! A private Docker daemon: its socket is in a temporary directory, it has no network, and it is
//! removed with its owner.
//!
//! It neither reads nor writes anything of the machine's own Docker. Like [`broker`](crate::broker),
//! whose guard it uses, the file needs no async runtime, so that `xtask` can include it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::broker::{ProcessGuard, StopSignal, find_program, tail, wait_before_poll};

/// The time limit from the start of a daemon until it replies. About 2 s is usual.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Directories where packages install programs for root, which are not on every user's `PATH`.
const FOLDERS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];

/// Hint for error messages when Docker is not available.
pub const HOW_TO_GET_DOCKER: &str = "a private Docker daemon needs root on Linux and Docker 20.10 or \
     later (Debian and Ubuntu: apt-get install docker.io); elsewhere set ROCKBOT_TEST_DOCKER_HOST to \
     a Docker that tests may use, such as unix:///var/run/docker.sock, and ROCKBOT_TEST_DOCKER_IMAGE \
     to an image with python3, such as python:3.12-slim";

/// A running Docker daemon for one owner. Dropping it stops the daemon and its containers and removes
/// its data.
#[derive(Debug)]
pub struct PrivateDocker {
    // Dropped in this order: the daemon stops before its directory is removed.
    guard: ProcessGuard,
    daemon: Child,
    folder: TempDir,
}

impl PrivateDocker {
    /// Starts a daemon and returns when it replies. Blocks for about 2 s, at most 60 s.
    ///
    /// # Errors
    /// When Docker is not installed, the process does not run as root, or the daemon exits or does not
    /// reply; the message then holds the end of its log.
    pub fn start() -> Result<Self> {
        Self::start_in(None)
    }

    /// Like [`PrivateDocker::start`], with images and build caches in the directory `data`, which the next
    /// daemon can use again. Only one daemon can use it at a time.
    ///
    /// # Errors
    /// As for [`PrivateDocker::start`].
    pub fn start_with_data_dir(data: &Path) -> Result<Self> {
        Self::start_in(Some(data))
    }

    fn start_in(data: Option<&Path>) -> Result<Self> {
        let program = find_daemon()
            .with_context(|| format!("Docker is not installed: {HOW_TO_GET_DOCKER}"))?;
        let folder = tempfile::Builder::new().prefix("rockbot-docker-").tempdir()?;
        ensure!(is_root(folder.path())?, "not running as root: {HOW_TO_GET_DOCKER}");
        // Gracefully: the daemon unmounts its file systems and stops its containerd.
        let mut guard = ProcessGuard::start(StopSignal::Terminate, Some(folder.path()))?;
        let own = folder.path().join("data");
        let daemon = serve(&program, folder.path(), data.unwrap_or(&own))?;
        guard.watch(&daemon)?;
        let mut docker = Self { guard, daemon, folder };
        docker.wait_until_ready()?;
        Ok(docker)
    }

    /// Returns the value for `DOCKER_HOST`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("docker.sock").display())
    }

    /// Returns a command for Docker's command line.
    #[must_use]
    pub fn command(&self) -> Command {
        self.command_for(Path::new("docker"))
    }

    /// Returns a command for another client of this daemon, such as `docker-compose`.
    #[must_use]
    pub fn command_for(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", self.host()).env("DOCKER_CONFIG", self.folder.path());
        command.env_remove("DOCKER_CONTEXT");
        command
    }

    /// Returns the end of the daemon's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.folder.path().join("daemon.log"))
    }

    /// Returns `true` while the daemon's process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.daemon.try_wait(), Ok(None))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !self.replies() {
            if !self.is_running() {
                bail!("the private Docker daemon exited while starting:\n{}", self.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "the private Docker daemon was not ready within {} s:\n{}",
                START_LIMIT.as_secs(),
                self.log_tail()
            );
            wait_before_poll();
        }
        Ok(())
    }

    fn replies(&self) -> bool {
        let version = self.command().args(["version", "--format", "{{.Server.Version}}"]).output();
        version.is_ok_and(|output| output.status.success())
    }
}

impl Drop for PrivateDocker {
    fn drop(&mut self) {
        self.guard.finish();
        // The guard has stopped the daemon; the kill ensures that the wait returns.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Starts the daemon as the leader of its own process group. It starts its own containerd.
fn serve(program: &Path, folder: &Path, data: &Path) -> Result<Child> {
    let path = |name: &str| folder.join(name);
    // Replaces the configuration of the machine's own daemon.
    fs::write(path("daemon.json"), "{}")?;
    let log = File::create(path("daemon.log"))?;
    Command::new(program)
        .arg("--config-file")
        .arg(path("daemon.json"))
        .arg("--data-root")
        .arg(data)
        .arg("--exec-root")
        .arg(path("exec"))
        .arg("--pidfile")
        .arg(path("pid"))
        .arg("--host")
        .arg(format!("unix://{}", path("docker.sock").display()))
        .args(["--bridge", "none", "--iptables=false", "--ip-masq=false"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start dockerd")
}

/// Returns `true` if root owns `folder`, which this process just created.
fn is_root(folder: &Path) -> Result<bool> {
    Ok(fs::metadata(folder)?.uid() == 0)
}

/// Returns the path of `dockerd`, if it and the `docker` client are installed.
#[must_use]
pub fn find_daemon() -> Option<PathBuf> {
    find_program("docker")?;
    let near = FOLDERS.iter().map(|folder| Path::new(folder).join("dockerd"));
    find_program("dockerd").or_else(|| near.into_iter().find(|path| path.is_file()))
}
