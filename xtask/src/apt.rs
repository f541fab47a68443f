//! Installation of Debian packages, where permissions allow it.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

use crate::{broker, console, process, workspace};

/// Excludes other installations of this process while the guard lives. apt and dpkg have one lock for
/// the machine, and a second apt-get fails instead of waiting for it.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs Debian packages. Returns `false` without apt-get or without root permissions.
pub(crate) fn install(packages: &[&str]) -> Result<bool> {
    let _guard = exclusive();
    let Some(prefix) = root_prefix() else { return Ok(false) };
    if broker::find_program("apt-get").is_none() {
        return Ok(false);
    }
    let names = packages.join(" ");
    console::progress("apt", format_args!("installing {names}; this takes a minute or two"));
    let log = workspace::peers_folder()?.join("apt.log");
    let update = process::run_quietly(apt_get(&prefix).arg("update"), &log);
    if let Err(error) = update {
        // Older package lists often suffice; otherwise the installation fails and reports it.
        console::progress(
            "apt",
            format_args!("update failed, using the existing lists: {error:#}"),
        );
    }
    process::run_quietly(
        apt_get(&prefix).args(["install", "-y", "--no-install-recommends"]).args(packages),
        &log,
    )
    .with_context(|| format!("cannot install {names}; install it by hand and run this again"))?;
    console::progress("apt", format_args!("installed {names}"));
    Ok(true)
}

/// Returns the arguments that run a command as root, or `None` if this is not possible.
fn root_prefix() -> Option<Vec<&'static str>> {
    if rustix::process::geteuid().is_root() {
        return Some(Vec::new());
    }
    let sudo = ["sudo", "--non-interactive"];
    process::stdout(Command::new(sudo[0]).args([sudo[1], "true"])).map(|_| sudo.to_vec())
}

fn apt_get(prefix: &[&str]) -> Command {
    let mut arguments = prefix.iter().copied().chain([
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-o",
        "DPkg::Lock::Timeout=120",
    ]);
    let mut command = Command::new(arguments.next().unwrap_or("env"));
    command.args(arguments);
    command
}
