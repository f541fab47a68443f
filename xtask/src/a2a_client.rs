//! The Python client of A2A, from PyPI, with which the tests use the gateway.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{python, workspace, wrapper};

/// Variable with the path of the program.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_A2A_CLIENT";

const PACKAGES: [&str; 1] = ["a2a-sdk==1.3.0"];

/// Installs the client if needed, and returns its program.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let environment = peers.join("a2a-pypi");
    python::environment(&environment, &PACKAGES, python::Dependencies::Install, may_install)?;
    let programs = peers.join("a2a-client");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;
    let (python, program) = (python::program(&environment, "python"), programs.join("python"));
    let script = workspace::peer_file("a2a_client.py");
    wrapper::write(&program, &[&python, Path::new("-B"), &script])?;
    Ok(program)
}
