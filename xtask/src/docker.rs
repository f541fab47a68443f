//! A private Docker daemon for the tests, with an image that no registry is needed for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::broker::{find_program, pause};
use crate::private_docker::{self, HOW_TO_GET_DOCKER, PrivateDocker};
use crate::{apt, install, process, say, workspace};

/// What the image is called.
pub(crate) const IMAGE: &str = "rockbot-test-python";
const PACKAGES: [&str; 2] = ["docker.io", "debootstrap"];
/// What a script needs, from the newest Debian that the machine's `debootstrap` surely knows.
const SUITE: &str = "bookworm";
/// What is no use in an image.
const LEFT_OUT: [&str; 4] =
    ["./var/cache/apt/*", "./var/lib/apt/lists/*", "./usr/share/doc/*", "./usr/share/locale/*"];

/// Starts a daemon that has the image. With `may_install`, Docker is installed if it is missing and
/// this machine lets us.
pub(crate) fn start(may_install: bool) -> Result<PrivateDocker> {
    require(may_install)?;
    say::progress("docker", "making an image with Python, unless it is there");
    let archive = debian("docker-image", "python3")?;
    say::progress("docker", "starting a private daemon");
    let docker = PrivateDocker::start()?;
    let log = workspace::peers_folder()?.join("docker-import.log");
    process::run_quietly(docker.command().arg("import").arg(archive).arg(IMAGE), &log)?;
    say::progress("docker", format_args!("answers at {}", docker.host()));
    Ok(docker)
}

/// Runs a daemon until Ctrl-C.
pub(crate) fn serve() -> Result<()> {
    let mut docker = start(true)?;
    say::heading("point the tests at it, in another terminal:");
    say::progress("docker", format_args!("export ROCKBOT_TEST_DOCKER_HOST={}", docker.host()));
    say::progress("docker", format_args!("export ROCKBOT_TEST_DOCKER_IMAGE={IMAGE}"));
    say::progress("docker", "Ctrl-C ends it and removes its data");
    while process::check_interrupt().is_ok() {
        if !docker.is_running() {
            bail!("the daemon ended by itself:\n{}", docker.log_tail());
        }
        pause();
    }
    Ok(())
}

/// Fails unless there is all that a private daemon and images of Debian need. With `may_install`, what
/// is missing is installed if this machine lets us.
pub(crate) fn require(may_install: bool) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("{HOW_TO_GET_DOCKER}");
    }
    let has_all =
        || private_docker::find_daemon().is_some() && find_program("debootstrap").is_some();
    if !(has_all() || (may_install && apt::install(&PACKAGES)? && has_all())) {
        bail!("there is no Docker on this machine, or no debootstrap: {HOW_TO_GET_DOCKER}");
    }
    Ok(())
}

/// A small Debian with `packages` (separated by commas) as an archive, made once; it takes a minute
/// or two.
pub(crate) fn debian(name: &str, packages: &str) -> Result<PathBuf> {
    let folder = workspace::peers_folder()?.join(name);
    let archive = folder.join("root.tar");
    install::once(&folder, &format!("{SUITE} {packages}"), || {
        let root = folder.join("root");
        let log = folder.with_extension("install.log");
        let made = make(&root, packages, &archive, &log);
        // Also what is half made.
        fs::remove_dir_all(&root)?;
        made
    })?;
    Ok(archive)
}

fn make(root: &Path, packages: &str, archive: &Path, log: &Path) -> Result<()> {
    fs::create_dir_all(root)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase");
    if !packages.is_empty() {
        debootstrap.arg(format!("--include={packages}"));
    }
    process::run_quietly(debootstrap.arg(SUITE).arg(root), log)?;
    process::run_quietly(
        Command::new("tar")
            .arg("--directory")
            .arg(root)
            .args(LEFT_OUT.map(|path| format!("--exclude={path}")))
            .args(["--numeric-owner", "--create", "--file"])
            .args([archive, Path::new(".")]),
        log,
    )
}
