//! What an operator decides about scripts on this machine.

use serde::Deserialize;
use std::{path::PathBuf, time::Duration};

/// How much isolation is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// A runner that can't isolate scripts completely does not start.
    Required,
    /// As much as this machine allows; what is open is told and warned of.
    #[default]
    BestEffort,
    /// None at all: only limits. Scripts can do what this process can.
    Off,
}

/// Limits and ways of a [`LocalRunner`](super::LocalRunner).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// The interpreter, CPython 3.9 or later: a path, or a name that is looked up in `PATH`. Default
    /// `python3`.
    pub python: PathBuf,
    /// How much isolation is asked for. Default [`Sandbox::BestEffort`].
    pub sandbox: Sandbox,
    /// The memory of all processes of a script together, in bytes; no process may map more. Default
    /// 512 MiB.
    pub memory_bytes: u64,
    /// The script's folder, and the largest file, in bytes. It is held in memory. Default 64 MiB.
    pub disk_bytes: u64,
    /// Processes and threads of a script at a time. Default 64.
    pub processes: u32,
    /// Open files of each process. Default 128.
    pub open_files: u32,
    /// How much a script may print, in bytes: with more it is ended. Default 1 MiB.
    pub stdout_bytes: usize,
    /// How much is kept of the end of its stderr, in bytes. Default 16 KiB.
    pub stderr_bytes: usize,
    /// Scripts that run at a time. Default 8.
    pub at_once: usize,
    /// Scripts that may wait for their turn; more are refused as overloaded. Default 64.
    pub waiting: usize,
    /// Whether an interpreter is kept warm and forked for each script. Default on.
    pub warm: bool,
    /// The packages of PyPI that scripts may ask for. Default none.
    pub packages: Option<PackageOptions>,
    /// What the runner may use to isolate scripts. Default everything.
    pub means: Means,
}

impl Default for LocalOptions {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            python: "python3".into(),
            sandbox: Sandbox::default(),
            memory_bytes: 512 * MIB,
            disk_bytes: 64 * MIB,
            processes: 64,
            open_files: 128,
            stdout_bytes: 1024 * 1024,
            stderr_bytes: 16 * 1024,
            at_once: 8,
            waiting: 64,
            warm: true,
            packages: None,
            means: Means::default(),
        }
    }
}

/// Packages for scripts. They are installed outside the sandbox, from wheels only: the installer runs
/// nothing of theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageOptions {
    /// Where they are kept, one folder for each set.
    pub folder: PathBuf,
    /// Sets that are kept; the one that was not used for longest goes first. Default 20.
    pub kept: usize,
    /// How long an installation may take. Default 120 s.
    pub timeout: Duration,
}

impl PackageOptions {
    /// Packages kept in a folder, which is made when it is not there.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), kept: 20, timeout: Duration::from_secs(120) }
    }
}

/// What isolates scripts. Withheld, a runner goes without, as on a machine that has not got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    /// Namespaces that the runner makes itself.
    pub namespaces: bool,
    /// Namespaces by bubblewrap, where the runner may not make them itself.
    pub bubblewrap: bool,
    /// Landlock, for files.
    pub landlock: bool,
    /// A filter of system calls.
    pub seccomp: bool,
}

impl Default for Means {
    fn default() -> Self {
        Self { namespaces: true, bubblewrap: true, landlock: true, seccomp: true }
    }
}
