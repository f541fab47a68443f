//! Installation of packages with uv, or with the interpreter's pip if uv is missing.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rockbot_child::{NETWORK_VARIABLES, ProcessGroup};
use rockbot_tools::{Executed, ToolFailure};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};

use super::environment;
use crate::output::TailBuffer;
use crate::requirement::Requirements;

/// Size limit of the end of the installer's stderr in messages to the model.
const MAX_STDERR_BYTES: usize = 2000;
const CHUNK_BYTES: usize = 16 * 1024;
/// Variables that are passed to the installer, with [`NETWORK_VARIABLES`]: the operator's settings of the
/// package index.
const INHERITED_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_TRUSTED_HOST",
    "UV_CACHE_DIR",
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_NATIVE_TLS",
    "UV_NO_INDEX",
];

/// Installs packages for one interpreter.
#[derive(Debug)]
pub(super) struct Installer {
    python: PathBuf,
    uv: Option<PathBuf>,
    timeout: Duration,
}

impl Installer {
    pub(super) fn new(python: &Path, timeout: Duration) -> Self {
        Self { python: python.to_owned(), uv: environment::find_program("uv"), timeout }
    }

    /// Installs into an empty folder, from wheels only.
    pub(super) async fn install(
        &self,
        packages: &Requirements,
        list: &Path,
        folder: &Path,
    ) -> Result<(), ToolFailure> {
        let lines: String = packages.iter().flat_map(|package| [package, "\n"]).collect();
        fs::write(list, lines).map_err(|error| unavailable(&error))?;
        let mut command = self.command(list, folder);
        let (mut group, pipes) =
            ProcessGroup::spawn(&mut command).map_err(|error| unavailable(&error))?;
        let reading = async { tokio::join!(read_tail(pipes.stdout), read_tail(pipes.stderr)) };
        let Ok((stdout, stderr)) = timeout(self.timeout, reading).await else {
            let message = format!(
                "installation of the packages {packages} took longer than {} s; try again later",
                self.timeout.as_secs()
            );
            return Err(ToolFailure::Unavailable { message, executed: Executed::No });
        };
        // Both streams have ended, so the leader is about to exit; its descendants are killed.
        let _ = timeout(self.timeout, group.wait_for_leader()).await;
        if group.finish().await.is_some_and(|status| status.success()) {
            return Ok(());
        }
        // Both a wrong name and an unreachable index end here; the installer's message has the cause.
        let reason = if stderr.trim().is_empty() { stdout } else { stderr };
        let message = format!("the packages {packages} could not be installed:\n{}", reason.trim());
        Err(ToolFailure::InvalidArguments { message })
    }

    fn command(&self, list: &Path, folder: &Path) -> Command {
        let mut command = match &self.uv {
            Some(uv) => {
                let mut command = Command::new(uv);
                command.args(["pip", "install", "--only-binary", ":all:", "--no-progress"]);
                command.args(["--color", "never", "--python"]).arg(&self.python);
                command
            }
            None => {
                let mut command = Command::new(&self.python);
                command.args(["-I", "-m", "pip", "install", "--only-binary=:all:", "--no-input"]);
                command.args(["--disable-pip-version-check", "--no-color", "--quiet"]);
                // The home folder may be one that models write to. Installed sets are the cache.
                command.arg("--no-cache-dir");
                command.arg("--root-user-action=ignore");
                command
            }
        };
        // A folder with the runner's files only: installers search it for settings and archives.
        let work_folder = list.parent().unwrap_or(Path::new("/"));
        command
            .arg("--target")
            .arg(folder)
            .arg("--requirement")
            .arg(list)
            .current_dir(work_folder)
            .env_clear()
            .envs(environment::inherited(INHERITED_VARIABLES))
            .envs(environment::inherited(&NETWORK_VARIABLES))
            // Beside the set and not in memory, where /tmp may be: archives can be large.
            .env("TMPDIR", work_folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// Reads a stream to its end and returns its last bytes.
async fn read_tail(stream: Option<impl AsyncRead + Unpin>) -> String {
    let (mut tail, mut chunk) = (TailBuffer::new(MAX_STDERR_BYTES), vec![0; CHUNK_BYTES]);
    if let Some(mut stream) = stream {
        while let Ok(length) = stream.read(&mut chunk).await
            && length > 0
        {
            tail.push(&chunk[..length]);
        }
    }
    tail.into_text()
}

/// Logs an error of our own files or processes and returns the failure for the model.
pub(super) fn unavailable(error: &io::Error) -> ToolFailure {
    tracing::warn!(%error, "package installation failed");
    let message = "packages can't be installed here at the moment; try again later".to_owned();
    ToolFailure::Unavailable { message, executed: Executed::No }
}
