//! A private Docker daemon for the tests, with an image that needs no registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::broker::{find_program, wait_before_poll};
use crate::private_docker::{self, HOW_TO_GET_DOCKER, PrivateDocker};
use crate::{apt, console, install, process, workspace};

/// Name of the image.
pub(crate) const IMAGE: &str = "rockbot-test-python";
const PACKAGES: [&str; 2] = ["docker.io", "debootstrap"];
/// The newest Debian release that every supported `debootstrap` knows.
const SUITE: &str = "bookworm";
/// Files left out of the image.
const EXCLUDED: [&str; 4] =
    ["./var/cache/apt/*", "./var/lib/apt/lists/*", "./usr/share/doc/*", "./usr/share/locale/*"];

/// Starts a daemon with the image. Installs Docker with `may_install` if it is missing.
pub(crate) fn start(may_install: bool) -> Result<PrivateDocker> {
    require(may_install)?;
    console::progress("docker", "building an image with Python, unless it exists");
    let archive = debian_archive("docker-image", "python3")?;
    console::progress("docker", "starting a private daemon");
    let docker = PrivateDocker::start()?;
    let log = workspace::peers_folder()?.join("docker-import.log");
    process::run_quietly(docker.command().arg("import").arg(archive).arg(IMAGE), &log)?;
    console::progress("docker", format_args!("listening at {}", docker.host()));
    Ok(docker)
}

/// Runs a daemon until Ctrl-C.
pub(crate) fn serve() -> Result<()> {
    let mut docker = start(true)?;
    console::heading("point the tests at it, in another terminal:");
    console::progress("docker", format_args!("export ROCKBOT_TEST_DOCKER_HOST={}", docker.host()));
    console::progress("docker", format_args!("export ROCKBOT_TEST_DOCKER_IMAGE={IMAGE}"));
    console::progress("docker", "Ctrl-C stops it and removes its data");
    while process::check_interrupt().is_ok() {
        if !docker.is_running() {
            bail!("the daemon exited:\n{}", docker.log_tail());
        }
        wait_before_poll();
    }
    Ok(())
}

/// Ensures that a private daemon can run and Debian images can be built. Installs missing packages with
/// `may_install`.
pub(crate) fn require(may_install: bool) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("{HOW_TO_GET_DOCKER}");
    }
    let has_all =
        || private_docker::find_daemon().is_some() && find_program("debootstrap").is_some();
    if !(has_all() || (may_install && apt::install(&PACKAGES)? && has_all())) {
        bail!("Docker or debootstrap is not installed: {HOW_TO_GET_DOCKER}");
    }
    Ok(())
}

/// Returns an archive of a minimal Debian with `packages` (comma-separated). Building it takes one to
/// two minutes; it is kept for later runs.
pub(crate) fn debian_archive(name: &str, packages: &str) -> Result<PathBuf> {
    let folder = workspace::peers_folder()?.join(name);
    let archive = folder.join("root.tar");
    install::once(&folder, &format!("{SUITE} {packages}"), || {
        let root = folder.join("root");
        let log = folder.with_extension("install.log");
        let outcome = build_archive(&root, packages, &archive, &log);
        // Also after a failure.
        fs::remove_dir_all(&root)?;
        outcome
    })?;
    Ok(archive)
}

fn build_archive(root: &Path, packages: &str, archive: &Path, log: &Path) -> Result<()> {
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
            .args(EXCLUDED.map(|path| format!("--exclude={path}")))
            .args(["--numeric-owner", "--create", "--file"])
            .args([archive, Path::new(".")]),
        log,
    )
}
