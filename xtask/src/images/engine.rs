//! A Docker that builds images with BuildKit: the system's daemon or a private one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::broker::find_program;
use crate::private_docker::PrivateDocker;
use crate::{console, docker, process, workspace};

const PART: &str = "docker";
/// Limit of the build cache that the private daemon keeps between runs.
const CACHE_LIMIT: &str = "20gb";
const HOW_TO_GET_BUILDKIT: &str = "Docker cannot build with BuildKit: install the plugin buildx, \
     or Docker 20.10 (Debian and Ubuntu: apt-get install docker.io)";

/// A Docker daemon and a client with BuildKit.
pub(crate) struct Engine {
    client: Client,
    // Drop order: the daemon stops before the lock of its folder is released.
    private: Option<PrivateDocker>,
    _lock: Option<File>,
}

/// An image build.
pub(crate) struct Build<'a> {
    pub(crate) file: PathBuf,
    pub(crate) context: PathBuf,
    pub(crate) target: Option<&'a str>,
    pub(crate) tag: String,
    pub(crate) arguments: Vec<(&'a str, String)>,
}

/// Docker's command line.
#[derive(Debug, Clone)]
struct Client {
    program: PathBuf,
    /// BuildKit is in the plugin buildx. Before Docker 23 it is built in.
    plugin: bool,
}

impl Engine {
    /// Uses the configured Docker of this machine.
    pub(crate) fn system() -> Result<Self> {
        Ok(Self {
            client: Client::find(&|program| Command::new(program))?,
            private: None,
            _lock: None,
        })
    }

    /// Starts a private daemon with the images and caches of earlier runs. Their containers are removed.
    pub(crate) fn private() -> Result<Self> {
        docker::require(true)?;
        let folder = workspace::peers_folder()?.join("docker-builds");
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        console::progress(PART, "starting a private daemon");
        // The lock is released when the file is closed, also by a crash.
        lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
        let private = PrivateDocker::start_with_data_dir(&folder.join("data"))?;
        let client = Client::find(&|program| private.command_for(program))?;
        let engine = Self { client, private: Some(private), _lock: Some(lock) };
        let left = process::stdout(engine.docker().args(["ps", "--all", "--quiet"]));
        for container in left.unwrap_or_default().lines() {
            process::stdout(engine.docker().args(["rm", "--force", "--volumes", container]));
        }
        Ok(engine)
    }

    /// Returns Docker's command line without arguments.
    pub(crate) fn docker(&self) -> Command {
        self.command_for(&self.client.program)
    }

    /// Returns another program with the environment of this daemon.
    pub(crate) fn command_for(&self, program: &Path) -> Command {
        match &self.private {
            Some(private) => private.command_for(program),
            None => Command::new(program),
        }
    }

    /// Returns a label of an image, or `None` without the image.
    pub(crate) fn label(&self, image: &str, label: &str) -> Option<String> {
        let format = format!("{{{{index .Config.Labels {label:?}}}}}");
        process::stdout(self.docker().args(["image", "inspect", "--format", &format, image]))
    }

    /// Builds an image. The output goes to a log, whose end is in the error.
    pub(crate) fn build(&self, build: &Build<'_>) -> Result<()> {
        let name = build.tag.replace(['/', ':'], "-");
        let log = workspace::peers_folder()?.join(format!("build-{name}.log"));
        console::progress(PART, format_args!("building {}; see {}", build.tag, log.display()));
        let mut command = self.docker();
        command.args(if self.client.plugin {
            &["buildx", "build", "--load"][..]
        } else {
            &["build"]
        });
        command.env("DOCKER_BUILDKIT", "1").args(["--progress", "plain"]);
        command.arg("--file").arg(&build.file).args(["--tag", &build.tag]);
        command.args(build.target.iter().flat_map(|target| ["--target", target]));
        for (name, value) in &build.arguments {
            command.arg("--build-arg").arg(format!("{name}={value}"));
        }
        if self.private.is_some() {
            // The private daemon has no bridge network with access to the internet.
            command.args(["--network", "host"]);
        }
        pass_registry_access(&mut command);
        process::run_quietly(command.arg(&build.context), &log)
    }

    /// Removes unused images and build caches.
    fn prune(&self) {
        process::stdout(self.docker().args(["image", "prune", "--force"]));
        let keep = ["builder", "prune", "--force", "--keep-storage", CACHE_LIMIT];
        process::stdout(self.docker().args(keep));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.private.is_some() {
            self.prune();
        }
    }
}

/// Passes this machine's access to package registries to a build, as secrets and proxy variables,
/// which are not part of the image.
fn pass_registry_access(command: &mut Command) {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let files = [
        ("cargo-config", cargo.map(|folder| folder.join("config.toml"))),
        ("ca-certificates", std::env::var_os("SSL_CERT_FILE").map(PathBuf::from)),
    ];
    for (id, file) in files {
        if let Some(file) = file.filter(|file| file.is_file()) {
            command.arg("--secret").arg(format!("id={id},src={}", file.display()));
        }
    }
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"] {
        if std::env::var_os(name).is_some() {
            command.args(["--build-arg", name]);
        }
    }
    if let Some(jobs) = std::env::var_os("CARGO_BUILD_JOBS") {
        command.arg("--build-arg").arg(format!("CARGO_BUILD_JOBS={}", jobs.display()));
    }
}

impl Client {
    /// Returns the first client that builds with BuildKit when run by `command`: a plugin may be
    /// installed for one user, and another Docker may precede Debian's on `PATH`.
    fn find(command: &dyn Fn(&Path) -> Command) -> Result<Self> {
        let candidates = [find_program("docker"), Some(PathBuf::from("/usr/bin/docker"))];
        for program in candidates.into_iter().flatten().filter(|path| path.is_file()) {
            let stdout = |arguments: &[&str]| process::stdout(command(&program).args(arguments));
            if stdout(&["buildx", "version"]).is_some() {
                return Ok(Self { program, plugin: true });
            }
            if stdout(&["--version"]).is_some_and(|version| has_builtin_buildkit(&version)) {
                return Ok(Self { program, plugin: false });
            }
        }
        bail!(HOW_TO_GET_BUILDKIT)
    }
}

/// Docker 23 and later build with a plugin.
fn has_builtin_buildkit(version: &str) -> bool {
    let number = version.strip_prefix("Docker version ").and_then(|rest| rest.split('.').next());
    number
        .and_then(|number| number.parse::<u32>().ok())
        .is_some_and(|major| (19..23).contains(&major))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buildkit_is_built_in_before_docker_23() {
        assert!(has_builtin_buildkit("Docker version 20.10.24+dfsg1, build 297e128"));
        assert!(!has_builtin_buildkit("Docker version 28.2.2, build e6534b4"));
        assert!(!has_builtin_buildkit("podman version 4.3.1"));
    }
}
