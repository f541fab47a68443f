//! What the jail is told: which walls, which limits, which folders.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use serde::Serialize;

use super::{environment::OF_SCRIPTS, interpreter::Interpreter, options::LocalOptions, seccomp};
use crate::runner::MAX_ENVIRONMENT_INPUT_BYTES;

/// In the order in which they are told: `run` is the one that is started.
const MODULES: [(&str, &str); 3] = [
    ("jail.py", include_str!("jail.py")),
    ("server.py", include_str!("server.py")),
    ("run.py", include_str!("run.py")),
];
/// JSON is Python to whoever knows three names.
const PLAN_BEGINS: &str = "true, false, null = True, False, None\nPLAN = ";
const BOOT: &str = "import sys; sys.path.insert(0, sys.argv[1]); import run; run.main(sys.argv[2])";
/// Where a script of bubblewrap and of our own namespaces finds things.
const SCRIPT_FOLDER: &str = "/tmp";
const PACKAGES_FOLDER: &str = "/env";
/// One file for so many bytes of the script's folder.
const BYTES_PER_FILE: u64 = 4096;
const LANDLOCK_WITH_TRUNCATION: u32 = 3;
const LANDLOCK_WITH_SIGNALS: u32 = 6;

/// Who makes the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walls {
    Own,
    Bubblewrap,
    None,
}

/// Everything about the jail that is the same for all scripts.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) walls: Walls,
    program: PathBuf,
    bubblewrap: PathBuf,
    /// The modules, and `plan.py`.
    pub(super) folder: PathBuf,
    told: Told,
}

/// As the jail reads it.
#[derive(Debug, Clone, Serialize)]
struct Told {
    sandbox: bool,
    /// Whether the jail makes them.
    namespaces: bool,
    landlock: u32,
    /// In hexadecimal: as lists of numbers they would take Python a millisecond to read.
    filters: Vec<String>,
    /// From where, to where below the new root.
    binds: Vec<(PathBuf, PathBuf)>,
    /// What it says, where it is.
    links: Vec<(PathBuf, PathBuf)>,
    /// For Landlock, as seen by the script.
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
    /// Writes the modules and the plan into a folder of that name below `folder`.
    pub(super) fn write(
        walls: Walls,
        sandbox: bool,
        interpreter: &Interpreter,
        options: &LocalOptions,
        bubblewrap: PathBuf,
        folder: &Path,
    ) -> io::Result<Self> {
        let landlock = if options.means.landlock { interpreter.landlock } else { 0 };
        let held = seccomp::Held {
            files: walls != Walls::None,
            truncation: landlock >= LANDLOCK_WITH_TRUNCATION,
            signals: walls == Walls::Own || landlock >= LANDLOCK_WITH_SIGNALS,
        };
        let programs = if options.means.seccomp && interpreter.seccomp {
            seccomp::programs(held).unwrap_or_else(|error| {
                tracing::warn!(%error, "there is no filter of system calls for this machine");
                Vec::new()
            })
        } else {
            Vec::new()
        };
        let (mut binds, links) = system();
        for place in &interpreter.folders {
            if !binds.iter().any(|(bound, _)| place.starts_with(bound)) {
                binds.push((place.clone(), place.clone()));
            }
        }
        if !binds.iter().any(|(bound, _)| interpreter.program.starts_with(bound)) {
            binds.push((interpreter.program.clone(), interpreter.program.clone()));
        }
        let readable = match walls {
            Walls::Own | Walls::Bubblewrap => vec!["/".into()],
            Walls::None => binds.iter().chain(&links).map(|(_, to)| to.clone()).collect(),
        };
        let mut own = binds.clone();
        if let (Walls::Own, Some(packages)) = (walls, &options.packages) {
            own.push((packages.folder.clone(), "/packages".into()));
        }
        let told = Told {
            sandbox,
            namespaces: walls == Walls::Own,
            landlock,
            filters: programs.iter().map(|program| hexadecimal(program)).collect(),
            binds: own,
            links,
            readable,
            packages: options.packages.is_some(),
            count_processes: match walls {
                Walls::Own => true,
                Walls::Bubblewrap => !geteuid().is_root(),
                Walls::None => false,
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
        fs::write(folder.join("plan.py"), PLAN_BEGINS.to_owned() + &serde_json::to_string(&told)?)?;
        let program = interpreter.program.clone();
        Ok(Self { walls, program, bubblewrap, folder: folder.into(), told })
    }

    /// The means, in words for people.
    pub(super) fn means(&self) -> String {
        let mut means = match self.walls {
            Walls::Own => vec!["namespaces"],
            Walls::Bubblewrap => vec!["bubblewrap"],
            Walls::None => Vec::new(),
        };
        let (landlock, seccomp) = (self.told.landlock > 0, !self.told.filters.is_empty());
        means.extend((self.told.sandbox && landlock).then_some("landlock"));
        means.extend((self.told.sandbox && seccomp).then_some("seccomp"));
        if means.is_empty() { "limits only".to_owned() } else { means.join(", ") }
    }

    /// Whether a warm interpreter can put up these walls for each script.
    pub(super) fn can_be_warm(&self) -> bool {
        self.walls != Walls::Bubblewrap
    }

    /// Where the script runs, unless in a folder that is made for it.
    pub(super) fn script_folder(&self) -> Option<&'static str> {
        (self.walls != Walls::None).then_some(SCRIPT_FOLDER)
    }

    /// Where the script finds a set of packages.
    pub(super) fn imports(&self, packages: &Path) -> PathBuf {
        match self.walls {
            Walls::None => packages.to_owned(),
            Walls::Own | Walls::Bubblewrap => PACKAGES_FOLDER.into(),
        }
    }

    /// The program of a server and its arguments; its socket is standard input.
    pub(super) fn command(&self, mode: &str, packages: Option<&Path>) -> tokio::process::Command {
        let mut command = match self.walls {
            Walls::Bubblewrap => {
                let mut command = tokio::process::Command::new(&self.bubblewrap);
                self.bubblewrap_arguments(&mut command, packages);
                command.arg("--").arg(&self.program);
                command
            }
            Walls::Own | Walls::None => tokio::process::Command::new(&self.program),
        };
        command
            .args(["-I", "-S", "-X", "utf8", "-c", BOOT])
            .arg(&self.folder)
            .arg(mode)
            .env_clear()
            .envs(OF_SCRIPTS)
            .current_dir("/");
        command
    }

    fn bubblewrap_arguments(&self, command: &mut tokio::process::Command, packages: Option<&Path>) {
        command.args(["--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL"]);
        for (from, to) in &self.told.binds {
            command.arg("--ro-bind").arg(from).arg(to);
        }
        for (target, link) in &self.told.links {
            command.arg("--symlink").arg(target).arg(link);
        }
        if let Some(packages) = packages {
            command.arg("--ro-bind").arg(packages).arg(PACKAGES_FOLDER);
        }
        command.args(["--dev", "/dev", "--proc", "/proc"]);
        command.args(["--size", &self.told.disk_bytes.to_string(), "--tmpfs", SCRIPT_FOLDER]);
        command.args(["--size", "4096", "--tmpfs", "/dev/shm"]);
        command.arg("--ro-bind").arg(&self.folder).arg(&self.folder);
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

type Places = Vec<(PathBuf, PathBuf)>;

/// What programs need of a system: its libraries and programs, and the cache of the linker.
fn system() -> (Places, Places) {
    let (mut binds, mut links) = (vec![("/usr".into(), "/usr".into())], Vec::new());
    for name in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"] {
        let place = PathBuf::from(name);
        match fs::read_link(&place) {
            Ok(target) => links.push((target, place)),
            Err(_) if place.is_dir() => binds.push((place.clone(), place)),
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
