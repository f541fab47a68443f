//! Programs from the Python package index, each in a virtual environment of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::{apt, install, process, say};

/// The wheels we use are built for this version and later ones.
const CHECK: &str = "import sys, venv, ensurepip; assert sys.version_info >= (3, 10)";

/// Which packages come along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Exactly those named.
    Nothing,
    /// Whatever they ask for.
    Dependencies,
}

/// Makes a virtual environment in `folder` with `packages` (`name==version`), as wheels only, so
/// that no compiler is needed. With `may_install`, Python itself is installed if missing.
pub(crate) fn environment(
    folder: &Path,
    packages: &[&str],
    needs: Needs,
    may_install: bool,
) -> Result<()> {
    install::once(folder, &packages.join(" "), || {
        let part = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let python = interpreter(may_install)?;
        say::progress(&part, format_args!("installing {}", packages.join(" ")));
        let log = folder.with_extension("install.log");
        process::run_quietly(Command::new(python).args(["-m", "venv"]).arg(folder), &log)?;
        process::run_quietly(
            Command::new(program(folder, "python"))
                .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"])
                .args(["--only-binary", ":all:"])
                .args((needs == Needs::Nothing).then_some("--no-deps"))
                .args(packages),
            &log,
        )?;
        say::progress(&part, "installed");
        Ok(())
    })
}

/// A program of an environment.
pub(crate) fn program(environment: &Path, name: &str) -> PathBuf {
    environment.join("bin").join(name)
}

fn interpreter(may_install: bool) -> Result<&'static str> {
    const PYTHON: &str = "python3";
    let serves = || process::answer(Command::new(PYTHON).args(["-c", CHECK])).is_some();
    if serves() || (may_install && apt::install(&["python3", "python3-venv"])? && serves()) {
        return Ok(PYTHON);
    }
    bail!(
        "Python 3.10 or later with the module venv is missing: install it (Debian and Ubuntu: \
         apt-get install python3-venv; macOS: brew install python) and run this again"
    )
}
