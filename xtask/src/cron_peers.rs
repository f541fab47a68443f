//! Cron libraries of PyPI, which the tests of cron expressions are compared with.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{python, workspace, wrapper};

/// Variable with the path of the program.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_CRON_PEERS";

/// `tzdata` for machines without time zones.
const PACKAGES: [&str; 3] = ["cronsim==2.8", "croniter==7.0.0", "tzdata==2026.6"];

/// Installs the libraries if needed, and returns the program that asks them.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let environment = peers.join("cron-pypi");
    python::environment(&environment, &PACKAGES, python::Dependencies::Install, may_install)?;
    let programs = peers.join("cron");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;
    let (python, program) = (python::program(&environment, "python"), programs.join("fires"));
    let script = workspace::peer_file("cron_fires.py");
    wrapper::write(&program, &[&python, Path::new("-B"), &script])?;
    Ok(program)
}
