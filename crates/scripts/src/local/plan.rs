//! The plan of the jail: isolation mechanisms, limits and folders.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use serde::Serialize;

use super::{
    environment::SCRIPT_VARIABLES, interpreter::Interpreter, options::LocalOptions, seccomp,
};
use crate::runner::MAX_ENVIRONMENT_INPUT_BYTES;

/// The jail's modules, in import order; `run` is the one that is started.
const MODULES: [(&str, &str); 3] = [
    ("jail.py", include_str!("jail.py")),
    ("server.py", include_str!("server.py")),
    ("run.py", include_str!("run.py")),
];
/// Makes JSON valid Python, which lacks three of its names.
const PLAN_PREFIX: &str = "true, false, null = True, False, None\nPLAN = ";
const BOOT: &str = "import sys; sys.path.insert(0, sys.argv[1]); import run; run.main(sys.argv[2])";
/// The folders of a script and of its packages, in a mount namespace of its own.
const SCRIPT_FOLDER: &str = "/tmp";
const PACKAGES_FOLDER: &str = "/env";
/// The devices of a script, as in `jail.py`.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/full", "/dev/random", "/dev/urandom"];
/// The size of the script's folder per allowed file.
const BYTES_PER_FILE: u64 = 4096;
const LANDLOCK_WITH_TRUNCATION: u32 = 3;
const LANDLOCK_WITH_SIGNALS: u32 = 6;

/// The provider of a script's namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Namespaces {
    Own,
    Bubblewrap,
    None,
}

/// The properties of the jail that all scripts share.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) namespaces: Namespaces,
    program: PathBuf,
    bubblewrap: PathBuf,
    /// The folder of the modules and `plan.py`.
    pub(super) folder: PathBuf,
    jail: JailPlan,
}

/// The part of the plan that the jail reads.
#[derive(Debug, Clone, Serialize)]
struct JailPlan {
    sandbox: bool,
    /// Set when the jail creates the namespaces.
    namespaces: bool,
    landlock: u32,
    /// Hexadecimal: Python would need a millisecond to parse lists of numbers.
    filters: Vec<String>,
    /// Pairs of a source and its target below the new root.
    binds: Vec<(PathBuf, PathBuf)>,
    /// Symbolic links: pairs of a target and the path of the link.
    links: Vec<(PathBuf, PathBuf)>,
    /// Readable paths for Landlock, as seen by the script.
    readable: Vec<PathBuf>,
    packages: bool,
    count_processes: bool,
    processes: u32,
    open_files: u32,
    memory_bytes: u64,
    disk_bytes: u64,
    disk_files: u64,
    environment_bytes: usize,
}

impl Plan {
    /// Writes the modules and the plan into `folder`, which is created if missing.
    pub(super) fn write(
        namespaces: Namespaces,
        sandbox: bool,
        interpreter: &Interpreter,
        options: &LocalOptions,
        bubblewrap: PathBuf,
        folder: &Path,
    ) -> io::Result<Self> {
        let landlock = if options.mechanisms.landlock { interpreter.landlock } else { 0 };
        let covered = seccomp::Covered {
            files: namespaces != Namespaces::None,
            truncation: landlock >= LANDLOCK_WITH_TRUNCATION,
            signals: namespaces == Namespaces::Own || landlock >= LANDLOCK_WITH_SIGNALS,
        };
        let programs = if options.mechanisms.seccomp && interpreter.seccomp {
            seccomp::programs(covered).unwrap_or_else(|error| {
                tracing::warn!(%error, "system call filter unavailable on this architecture");
                Vec::new()
            })
        } else {
            Vec::new()
        };
        let (mut binds, links) = system_paths();
        for folder in &interpreter.folders {
            if !binds.iter().any(|(bound, _)| folder.starts_with(bound)) {
                binds.push((folder.clone(), folder.clone()));
            }
        }
        if !binds.iter().any(|(bound, _)| interpreter.program.starts_with(bound)) {
            binds.push((interpreter.program.clone(), interpreter.program.clone()));
        }
        let readable = match namespaces {
            Namespaces::Own | Namespaces::Bubblewrap => vec!["/".into()],
            Namespaces::None => binds.iter().chain(&links).map(|(_, to)| to.clone()).collect(),
        };
        if let (Namespaces::Own, Some(packages)) = (namespaces, &options.packages) {
            binds.push((packages.folder.clone(), "/packages".into()));
        }
        let jail = JailPlan {
            sandbox,
            namespaces: namespaces == Namespaces::Own,
            landlock,
            filters: programs.iter().map(|program| hexadecimal(program)).collect(),
            binds,
            links,
            readable,
            packages: options.packages.is_some(),
            count_processes: match namespaces {
                Namespaces::Own => true,
                Namespaces::Bubblewrap => !geteuid().is_root(),
                Namespaces::None => false,
            },
            processes: options.processes,
            open_files: options.open_files,
            memory_bytes: options.memory_bytes,
            disk_bytes: options.disk_bytes,
            disk_files: (options.disk_bytes / BYTES_PER_FILE).max(16),
            environment_bytes: MAX_ENVIRONMENT_INPUT_BYTES,
        };
        fs::create_dir_all(folder)?;
        for (name, text) in MODULES {
            fs::write(folder.join(name), text)?;
        }
        fs::write(folder.join("plan.py"), PLAN_PREFIX.to_owned() + &serde_json::to_string(&jail)?)?;
        let program = interpreter.program.clone();
        Ok(Self { namespaces, program, bubblewrap, folder: folder.into(), jail })
    }

    /// Returns the isolation mechanisms, human-readable, and the one resource that nothing but a cgroup limits.
    pub(super) fn mechanism(&self, has_cgroups: bool) -> String {
        let mut mechanisms = match self.namespaces {
            Namespaces::Own => vec!["namespaces"],
            Namespaces::Bubblewrap => vec!["bubblewrap"],
            Namespaces::None => Vec::new(),
        };
        let (landlock, seccomp) = (self.jail.landlock > 0, !self.jail.filters.is_empty());
        mechanisms.extend((self.jail.sandbox && landlock).then_some("landlock"));
        mechanisms.extend((self.jail.sandbox && seccomp).then_some("seccomp"));
        if mechanisms.is_empty() {
            mechanisms.push("limits only");
        }
        if has_cgroups {
            mechanisms.push("memory cgroup");
            return mechanisms.join(", ");
        }
        format!("{}; kernel memory is not limited", mechanisms.join(", "))
    }

    /// Returns whether forks of a warm interpreter can be isolated from each other.
    pub(super) fn supports_warm(&self) -> bool {
        self.namespaces != Namespaces::Bubblewrap
    }

    /// Returns the script's folder, or `None` if each script needs a temporary folder.
    pub(super) fn script_folder(&self) -> Option<&'static str> {
        (self.namespaces != Namespaces::None).then_some(SCRIPT_FOLDER)
    }

    /// Returns the path from which the script imports a set of packages.
    pub(super) fn import_path(&self, packages: &Path) -> PathBuf {
        match self.namespaces {
            Namespaces::None => packages.to_owned(),
            Namespaces::Own | Namespaces::Bubblewrap => PACKAGES_FOLDER.into(),
        }
    }

    /// Returns the command of a server, which reads requests from a socket at its standard input.
    pub(super) fn command(&self, mode: &str, packages: Option<&Path>) -> tokio::process::Command {
        let mut command = match self.namespaces {
            Namespaces::Bubblewrap => {
                let mut command = tokio::process::Command::new(&self.bubblewrap);
                self.bubblewrap_arguments(&mut command, packages);
                command.arg("--").arg(&self.program);
                command
            }
            Namespaces::Own | Namespaces::None => tokio::process::Command::new(&self.program),
        };
        command
            .args(["-I", "-S", "-X", "utf8", "-c", BOOT])
            .arg(&self.folder)
            .arg(mode)
            .env_clear()
            .envs(SCRIPT_VARIABLES)
            .current_dir("/");
        command
    }

    fn bubblewrap_arguments(&self, command: &mut tokio::process::Command, packages: Option<&Path>) {
        command.args(["--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL"]);
        for (from, to) in &self.jail.binds {
            command.arg("--ro-bind").arg(from).arg(to);
        }
        for (target, link) in &self.jail.links {
            command.arg("--symlink").arg(target).arg(link);
        }
        if let Some(packages) = packages {
            command.arg("--ro-bind").arg(packages).arg(PACKAGES_FOLDER);
        }
        command.args(["--proc", "/proc", "--dir", "/dev"]);
        for device in DEVICES {
            command.args(["--dev-bind", device, device]);
        }
        command.args(["--symlink", "/proc/self/fd", "/dev/fd"]);
        command.args(["--size", &self.jail.disk_bytes.to_string(), "--tmpfs", SCRIPT_FOLDER]);
        command.args(["--size", "4096", "--tmpfs", "/dev/shm"]);
        command.arg("--ro-bind").arg(&self.folder).arg(&self.folder);
        // The root is a file system in memory, without a limit.
        command.args(["--remount-ro", "/"]);
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

type PathPairs = Vec<(PathBuf, PathBuf)>;

/// Returns the binds and links that programs need: system libraries and programs, and the linker cache.
fn system_paths() -> (PathPairs, PathPairs) {
    let (mut binds, mut links) = (vec![("/usr".into(), "/usr".into())], Vec::new());
    for name in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"] {
        let path = PathBuf::from(name);
        match fs::read_link(&path) {
            Ok(target) => links.push((target, path)),
            Err(_) if path.is_dir() => binds.push((path.clone(), path)),
            Err(_) => {}
        }
    }
    for name in ["/etc/ld.so.cache", "/etc/ld-musl-x86_64.path", "/etc/alternatives"] {
        if Path::new(name).exists() {
            binds.push((name.into(), name.into()));
        }
    }
    (binds, links)
}
