//! Options of the local runner.

use serde::Deserialize;
use std::{path::PathBuf, time::Duration};

/// The isolation that scripts require.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Complete isolation; otherwise the runner does not start.
    Required,
    /// As much as this machine allows. Gaps are logged and reported with every result.
    #[default]
    BestEffort,
    /// None: only limits. Scripts can do what this process can.
    Off,
}

/// Limits and mechanisms of a [`LocalRunner`](super::LocalRunner).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// The interpreter, CPython 3.9 or later: a path, or a name that is looked up in `PATH`. Default
    /// `python3`.
    pub python: PathBuf,
    /// The isolation that scripts require. Default [`Sandbox::BestEffort`].
    pub sandbox: Sandbox,
    /// The memory of all processes of a script together, in bytes. No process may map more. Default
    /// 512 MiB.
    pub memory_bytes: u64,
    /// The size of the script's folder and of its largest file, in bytes. Held in memory. Default 64 MiB.
    pub disk_bytes: u64,
    /// The processes and threads of a script. Default 64.
    pub processes: u32,
    /// The open files of each process. Default 128.
    pub open_files: u32,
    /// The most output of a script, in bytes; a script that prints more is stopped. Default 1 MiB.
    pub stdout_bytes: usize,
    /// Size limit of stderr in bytes, of which the end is kept. Default 16 KiB.
    pub stderr_bytes: usize,
    /// The scripts that run at the same time. Default 8.
    pub concurrency: usize,
    /// The scripts that wait for a permit; more are rejected as overloaded. Default 64.
    pub waiting: usize,
    /// Keeps an interpreter warm and forks it for each script. Default true.
    pub warm: bool,
    /// PyPI packages for scripts. Default none.
    pub packages: Option<PackageOptions>,
    /// The isolation mechanisms that the runner may use. Default all.
    pub mechanisms: Mechanisms,
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
            concurrency: 8,
            waiting: 64,
            warm: true,
            packages: None,
            mechanisms: Mechanisms::default(),
        }
    }
}

/// Packages for scripts. They are installed outside the sandbox, from wheels only, so the installer runs
/// none of their code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageOptions {
    /// The folder of installed packages, with one folder for each set.
    pub folder: PathBuf,
    /// The most sets to keep; the least recently used are removed. Default 20.
    pub max_sets: usize,
    /// Timeout of an installation. Default 120 s.
    pub timeout: Duration,
}

impl PackageOptions {
    /// Creates options with a folder, which is created if missing.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), max_sets: 20, timeout: Duration::from_secs(120) }
    }
}

/// Isolation mechanisms. Without one, the runner behaves as on a machine that lacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanisms {
    /// Namespaces that the runner creates itself.
    pub namespaces: bool,
    /// Namespaces created by bubblewrap, where the runner may not create them itself.
    pub bubblewrap: bool,
    /// Landlock, which restricts access to files.
    pub landlock: bool,
    /// A filter of system calls.
    pub seccomp: bool,
    /// A memory cgroup for each script, where this process has a delegated cgroup.
    pub cgroups: bool,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self { namespaces: true, bubblewrap: true, landlock: true, seccomp: true, cgroups: true }
    }
}
