//! System packages, on the machines where we may install them.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::{broker, process, say, workspace};

/// Installs Debian packages; `false` when this machine has no apt-get or does not let us.
pub(crate) fn install(packages: &[&str]) -> Result<bool> {
    // dpkg has one lock for the machine: the parts of a chore that run side by side take turns.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(prefix) = privilege() else { return Ok(false) };
    if broker::find_program("apt-get").is_none() {
        return Ok(false);
    }
    let names = packages.join(" ");
    say::progress("apt", format_args!("installing {names}; this takes a minute or two"));
    let log = workspace::peers_folder()?.join("apt.log");
    let update = process::run_quietly(apt_get(&prefix).arg("update"), &log);
    if let Err(error) = update {
        // Lists from an earlier day often serve; without them the next step fails and tells.
        say::progress("apt", format_args!("going on with the present lists: {error:#}"));
    }
    process::run_quietly(
        apt_get(&prefix).args(["install", "-y", "--no-install-recommends"]).args(packages),
        &log,
    )
    .with_context(|| format!("cannot install {names}; install it by hand and run this again"))?;
    say::progress("apt", format_args!("installed {names}"));
    Ok(true)
}

/// The words before a command that make it run as root, if there are such words.
fn privilege() -> Option<Vec<&'static str>> {
    if rustix::process::geteuid().is_root() {
        return Some(Vec::new());
    }
    let sudo = ["sudo", "--non-interactive"];
    process::answer(Command::new(sudo[0]).args([sudo[1], "true"])).map(|_| sudo.to_vec())
}

fn apt_get(prefix: &[&str]) -> Command {
    let mut words = prefix.iter().copied().chain([
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-o",
        "DPkg::Lock::Timeout=120",
    ]);
    let mut command = Command::new(words.next().unwrap_or("env"));
    command.args(words);
    command
}
