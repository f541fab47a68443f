//! User-mode Linux: a kernel that runs as a process, for tests of what the machine's own kernel is not set up for.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::{apt, broker};

/// Variable with the path of the kernel.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_UML";
const PROGRAM: &str = "linux.uml";

/// Returns the path of the kernel. Installs it if it is missing and `may_install` permits it. On other machines than
/// x86-64 with Linux no test needs it: the path is empty.
pub(crate) fn find_or_install(may_install: bool) -> Result<PathBuf> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(PathBuf::new());
    }
    if let Some(kernel) = broker::find_program(PROGRAM) {
        return Ok(kernel);
    }
    if may_install && apt::install(&["user-mode-linux"])? {
        return broker::find_program(PROGRAM).context("user-mode-linux has no linux.uml");
    }
    bail!("user-mode Linux is not installed: apt-get install user-mode-linux")
}
