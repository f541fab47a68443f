//! Python packages in virtual environments.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::{apt, console, install, process};

/// Checks for the oldest Python version that the used wheels support.
const CHECK: &str = "import sys, venv, ensurepip; assert sys.version_info >= (3, 11)";

/// Handling of dependencies of the packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dependencies {
    /// Only the named packages are installed.
    Skip,
    /// Dependencies are installed too.
    Install,
}

/// Creates a virtual environment in `folder` with `packages` (`name==version`), possibly none. Uses wheels only, so
/// that no compiler is needed. Installs Python with `may_install` if it is missing.
pub(crate) fn environment(
    folder: &Path,
    packages: &[&str],
    dependencies: Dependencies,
    may_install: bool,
) -> Result<()> {
    install::once(folder, &packages.join(" "), || {
        let part = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let python = interpreter(may_install)?;
        console::progress(&part, format_args!("installing {}", packages.join(" ")));
        let log = folder.with_extension("install.log");
        process::run_quietly(Command::new(python).args(["-m", "venv"]).arg(folder), &log)?;
        if packages.is_empty() {
            return Ok(());
        }
        process::run_installer(
            Command::new(program(folder, "python"))
                .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"])
                .args(["--only-binary", ":all:"])
                .args((dependencies == Dependencies::Skip).then_some("--no-deps"))
                .args(packages),
            &log,
        )?;
        console::progress(&part, "installed");
        Ok(())
    })
}

/// Returns the path of a program in an environment.
pub(crate) fn program(environment: &Path, name: &str) -> PathBuf {
    environment.join("bin").join(name)
}

fn interpreter(may_install: bool) -> Result<&'static str> {
    const PYTHON: &str = "python3";
    let is_supported = || process::stdout(Command::new(PYTHON).args(["-c", CHECK])).is_some();
    if is_supported()
        || (may_install && apt::install(&["python3", "python3-venv"])? && is_supported())
    {
        return Ok(PYTHON);
    }
    bail!(
        "Python 3.11 or later with the module venv is missing: install it (Debian and Ubuntu: \
         apt-get install python3-venv; macOS: brew install python) and run this again"
    )
}
