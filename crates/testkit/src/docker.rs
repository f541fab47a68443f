//! A Docker daemon of one's own: behind a socket in a temporary folder, without a network, gone
//! without a trace when its owner is.
//!
//! Nothing of the machine's own Docker, if there is one, is read or written. Like
//! [`broker`](crate::broker), whose guard it uses, the file needs no async runtime, so that the chores
//! of the workspace can include it as it is.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::broker::{Ending, ProcessGuard, find_program, pause, tail};

/// How long a daemon may take from its start until it answers. About 2 s is usual.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Where packages put programs that only root starts, which are not on everybody's `PATH`.
const FOLDERS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];

/// What to do when there is no Docker, for error messages.
pub const HOW_TO_GET_DOCKER: &str = "a private Docker daemon needs root on Linux and Docker 20.10 or \
     later (Debian and Ubuntu: apt-get install docker.io); anywhere else set \
     ROCKBOT_TEST_DOCKER_HOST to a Docker that tests may use, such as unix:///var/run/docker.sock, \
     and ROCKBOT_TEST_DOCKER_IMAGE to an image there with a python3, such as python:3.12-slim";

/// A running Docker daemon that nobody else uses. Dropping it ends the daemon with its containers
/// and removes its data.
#[derive(Debug)]
pub struct PrivateDocker {
    // Dropped in this order: the daemon ends before its folder goes.
    guard: ProcessGuard,
    daemon: Child,
    folder: TempDir,
}

impl PrivateDocker {
    /// Starts a daemon and returns when it answers. Blocks for about 2 s, at most 60 s.
    ///
    /// # Errors
    /// When Docker is not installed, we are not root, or the daemon ends or stays silent; the
    /// message then holds the end of its log.
    pub fn start() -> Result<Self> {
        Self::start_in(None)
    }

    /// Like [`PrivateDocker::start`], with images and what was built kept in the folder `data` for the
    /// next daemon. Two at once can't have it.
    ///
    /// # Errors
    /// As for [`PrivateDocker::start`].
    pub fn start_keeping(data: &Path) -> Result<Self> {
        Self::start_in(Some(data))
    }

    fn start_in(data: Option<&Path>) -> Result<Self> {
        let program = find_daemon()
            .with_context(|| format!("there is no Docker here: {HOW_TO_GET_DOCKER}"))?;
        let folder = tempfile::Builder::new().prefix("rockbot-docker-").tempdir()?;
        ensure!(is_root(folder.path())?, "we are not root: {HOW_TO_GET_DOCKER}");
        // Ends it in order: it unmounts what it has mounted, and ends its containerd.
        let mut guard = ProcessGuard::start(Ending::Ask, Some(folder.path()))?;
        let own = folder.path().join("data");
        let daemon = serve(&program, folder.path(), data.unwrap_or(&own))?;
        guard.watch(&daemon)?;
        let mut docker = Self { guard, daemon, folder };
        docker.wait_until_ready()?;
        Ok(docker)
    }

    /// The value for `DOCKER_HOST`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("docker.sock").display())
    }

    /// Docker's command line, ready for its arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        self.command_of(Path::new("docker"))
    }

    /// Another program that talks to this daemon, such as `docker-compose`.
    #[must_use]
    pub fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", self.host()).env("DOCKER_CONFIG", self.folder.path());
        command.env_remove("DOCKER_CONTEXT");
        command
    }

    /// The end of the daemon's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.folder.path().join("daemon.log"))
    }

    /// True while the daemon's process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.daemon.try_wait(), Ok(None))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !self.answers() {
            if !self.is_running() {
                bail!("the private Docker daemon ended while starting:\n{}", self.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "the private Docker daemon was not ready within {} s:\n{}",
                START_LIMIT.as_secs(),
                self.log_tail()
            );
            pause();
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        let version = self.command().args(["version", "--format", "{{.Server.Version}}"]).output();
        version.is_ok_and(|output| output.status.success())
    }
}

impl Drop for PrivateDocker {
    fn drop(&mut self) {
        self.guard.finish();
        // The guard has ended the daemon; killing it again makes sure that the wait ends.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Starts the daemon as the leader of its own process group. It starts a containerd of its own.
fn serve(program: &Path, folder: &Path, data: &Path) -> Result<Child> {
    let path = |name: &str| folder.join(name);
    // Instead of the configuration of the machine's own daemon.
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

/// Whether a folder that we just made belongs to root, and so we are root.
fn is_root(folder: &Path) -> Result<bool> {
    Ok(fs::metadata(folder)?.uid() == 0)
}

/// The daemon's program, if Docker is installed with its command line.
#[must_use]
pub fn find_daemon() -> Option<PathBuf> {
    find_program("docker")?;
    let near = FOLDERS.iter().map(|folder| Path::new(folder).join("dockerd"));
    find_program("dockerd").or_else(|| near.into_iter().find(|path| path.is_file()))
}
