//! Whoever installs packages: uv where there is one, else the pip of the interpreter.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rockbot_child::ProcessGroup;
use rockbot_tools::{Executed, ToolFailure};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};

use super::{environment, in_path};
use crate::output::End;
use crate::requirement::Requirements;

/// What a model is told of a failed installation: the end of what the installer complained about.
const MAX_COMPLAINT_BYTES: usize = 2000;
const CHUNK_BYTES: usize = 16 * 1024;
/// Where packages come from and how to get there is the operator's business; nothing else of our
/// environment is the installer's.
const KEPT: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
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
        Self { python: python.to_owned(), uv: in_path("uv"), timeout }
    }

    /// Installs into an empty folder, from wheels only.
    pub(super) async fn install(
        &self,
        packages: &Requirements,
        list: &Path,
        folder: &Path,
    ) -> Result<(), ToolFailure> {
        let lines: String = packages.iter().flat_map(|package| [package, "\n"]).collect();
        fs::write(list, lines).map_err(|error| unusable(&error))?;
        let mut command = self.command(list, folder);
        let (mut group, pipes) =
            ProcessGroup::spawn(&mut command).map_err(|error| unusable(&error))?;
        let reading = async { tokio::join!(tail(pipes.stdout), tail(pipes.stderr)) };
        let Ok((said, complained)) = timeout(self.timeout, reading).await else {
            let message = format!(
                "the packages {packages} were not installed within {} seconds",
                self.timeout.as_secs()
            );
            return Err(ToolFailure::Unavailable { message, executed: Executed::No });
        };
        // Both streams have ended, so it is at its end; what it left behind goes with it.
        let _ = timeout(self.timeout, group.leader_ended()).await;
        if group.finish().await.is_some_and(|status| status.success()) {
            return Ok(());
        }
        // No answer of the index ends here as well as a wrong name: what it says tells which.
        let complaint = if complained.trim().is_empty() { said } else { complained };
        let message =
            format!("the packages {packages} could not be installed:\n{}", complaint.trim());
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
                command.arg("--root-user-action=ignore");
                command
            }
        };
        command
            .arg("--target")
            .arg(folder)
            .arg("--requirement")
            .arg(list)
            // Nobody's files are there but ours: installers look for settings and archives around them.
            .current_dir(list.parent().unwrap_or(Path::new("/")))
            .env_clear()
            .envs(environment::kept(KEPT))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// The end of a stream, read to its end.
async fn tail(stream: Option<impl AsyncRead + Unpin>) -> String {
    let (mut end, mut chunk) = (End::new(MAX_COMPLAINT_BYTES), vec![0; CHUNK_BYTES]);
    if let Some(mut stream) = stream {
        while let Ok(length) = stream.read(&mut chunk).await
            && length > 0
        {
            end.take(&chunk[..length]);
        }
    }
    end.into_text()
}

/// For what went wrong with our own folder.
pub(super) fn unusable(error: &io::Error) -> ToolFailure {
    tracing::warn!(%error, "packages for a script could not be installed");
    let message = "packages can't be installed here now; try again later".to_owned();
    ToolFailure::Unavailable { message, executed: Executed::No }
}
