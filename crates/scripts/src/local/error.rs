//! Errors that keep the local runner from starting.

use std::{io, path::PathBuf};

use crate::runner::Isolation;

/// An error that keeps the local runner from starting; for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No usable Python.
    #[error(
        "{program} can't run scripts: {reason}; install Python 3.9 or later, or configure another \
         interpreter"
    )]
    Python {
        /// The configured program.
        program: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The available isolation is incomplete.
    #[error(
        "complete isolation of scripts is required but unavailable: {isolation}{}. Allow unprivileged \
         user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0, or in a container a seccomp profile that \
         permits them), or install bubblewrap, or set the sandbox to `best-effort`",
        list(.failures)
    )]
    Isolation {
        /// The available isolation.
        isolation: Isolation,
        /// The mechanisms that failed, with reasons.
        failures: Vec<String>,
    },
    /// No script completed, even without isolation.
    #[error("no script can run on this machine{}", list(.failures))]
    NoScriptRuns {
        /// The mechanisms that failed, with reasons.
        failures: Vec<String>,
    },
    /// The folder of the runner is not usable.
    #[error(
        "script folder is not usable: {0}; check space and permissions of the temporary folder"
    )]
    Folder(#[from] io::Error),
}

fn list(failures: &[String]) -> String {
    failures.iter().map(|failure| format!("; {failure}")).collect()
}
