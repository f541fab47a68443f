//! A Docker that builds images with BuildKit: the machine's own, or a private one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::broker::find_program;
use crate::private_docker::PrivateDocker;
use crate::{docker, process, say, workspace};

const PART: &str = "docker";
/// What the private daemon keeps of builds at most, between two of them.
const KEPT: &str = "20gb";
const HOW_TO_GET_BUILDKIT: &str = "no Docker here can build with BuildKit: install the plugin buildx, \
     or Docker 20.10 (Debian and Ubuntu: apt-get install docker.io)";

/// Docker, with a client that builds with BuildKit.
pub(crate) struct Engine {
    client: Client,
    // Dropped in this order: the daemon ends before another one may have its folder.
    private: Option<PrivateDocker>,
    _lock: Option<File>,
}

/// One image to build.
pub(crate) struct Build<'a> {
    pub(crate) file: PathBuf,
    pub(crate) context: PathBuf,
    pub(crate) target: Option<&'a str>,
    pub(crate) tag: String,
    pub(crate) arguments: Vec<(&'a str, String)>,
}

/// A command line of Docker.
#[derive(Debug, Clone)]
struct Client {
    program: PathBuf,
    /// Whether BuildKit comes with the plugin buildx. Before Docker 23 it is built in.
    plugin: bool,
}

impl Engine {
    /// The Docker of this machine, however it is reached.
    pub(crate) fn of_machine() -> Result<Self> {
        Ok(Self {
            client: Client::find(&|program| Command::new(program))?,
            private: None,
            _lock: None,
        })
    }

    /// A daemon of our own, with the images and caches that earlier ones left. Containers that they
    /// left are removed.
    pub(crate) fn private() -> Result<Self> {
        docker::require(true)?;
        let folder = workspace::peers_folder()?.join("docker-builds");
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        say::progress(PART, "starting a private daemon");
        // Released when the file is closed, also by a crash.
        lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
        let private = PrivateDocker::start_with_data_dir(&folder.join("data"))?;
        let client = Client::find(&|program| private.command_for(program))?;
        let engine = Self { client, private: Some(private), _lock: Some(lock) };
        let left = process::answer(engine.docker().args(["ps", "--all", "--quiet"]));
        for container in left.unwrap_or_default().lines() {
            process::answer(engine.docker().args(["rm", "--force", "--volumes", container]));
        }
        Ok(engine)
    }

    /// Docker's command line, ready for its arguments.
    pub(crate) fn docker(&self) -> Command {
        self.command_for(&self.client.program)
    }

    /// Another program that talks to the same daemon.
    pub(crate) fn command_for(&self, program: &Path) -> Command {
        match &self.private {
            Some(private) => private.command_for(program),
            None => Command::new(program),
        }
    }

    /// A label of an image, if there is such an image.
    pub(crate) fn label_of(&self, image: &str, label: &str) -> Option<String> {
        let format = format!("{{{{index .Config.Labels {label:?}}}}}");
        process::answer(self.docker().args(["image", "inspect", "--format", &format, image]))
    }

    /// Builds an image; what the builder says is in a file, whose end is in the error.
    pub(crate) fn build(&self, build: &Build<'_>) -> Result<()> {
        let name = build.tag.replace(['/', ':'], "-");
        let log = workspace::peers_folder()?.join(format!("build-{name}.log"));
        say::progress(PART, format_args!("building {}; see {}", build.tag, log.display()));
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
            // It has no network of its own that leads outside.
            command.args(["--network", "host"]);
        }
        hand_over_surroundings(&mut command);
        process::run_quietly(command.arg(&build.context), &log)
    }

    /// Forgets what no image and no later build needs.
    fn prune(&self) {
        process::answer(self.docker().args(["image", "prune", "--force"]));
        let keep = ["builder", "prune", "--force", "--keep-storage", KEPT];
        process::answer(self.docker().args(keep));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.private.is_some() {
            self.prune();
        }
    }
}

/// What this machine needs to reach registries of packages: builds get it as secrets and proxies,
/// which don't stay in an image.
fn hand_over_surroundings(command: &mut Command) {
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
    /// The first one that can build with BuildKit, as `command` runs it: plugins can be a person's own.
    /// Another Docker may lie before Debian's.
    fn find(command: &dyn Fn(&Path) -> Command) -> Result<Self> {
        let places = [find_program("docker"), Some(PathBuf::from("/usr/bin/docker"))];
        for program in places.into_iter().flatten().filter(|path| path.is_file()) {
            let answer = |arguments: &[&str]| process::answer(command(&program).args(arguments));
            if answer(&["buildx", "version"]).is_some() {
                return Ok(Self { program, plugin: true });
            }
            if answer(&["--version"]).is_some_and(|version| has_buildkit_built_in(&version)) {
                return Ok(Self { program, plugin: false });
            }
        }
        bail!(HOW_TO_GET_BUILDKIT)
    }
}

/// From Docker 23 on the command line leaves building to a plugin.
fn has_buildkit_built_in(version: &str) -> bool {
    let number = version.strip_prefix("Docker version ").and_then(|rest| rest.split('.').next());
    number
        .and_then(|number| number.parse::<u32>().ok())
        .is_some_and(|major| (19..23).contains(&major))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_a_plugin_builds_only_where_buildkit_is_built_in() {
        assert!(has_buildkit_built_in("Docker version 20.10.24+dfsg1, build 297e128"));
        assert!(!has_buildkit_built_in("Docker version 28.2.2, build e6534b4"));
        assert!(!has_buildkit_built_in("podman version 4.3.1"));
    }
}
