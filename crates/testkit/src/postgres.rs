//! A private PostgreSQL server: on a free port of the loopback interface, in a temporary directory, and
//! removed with its owner.
//!
//! Like [`broker`](crate::broker), whose guard it uses, the file needs no async runtime, so that `xtask`
//! can include it.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::broker::{
    ProcessGuard, StopSignal, find_program, free_port, is_listening, tail, wait_before_poll,
};

/// The time limit from the start of a server until it accepts connections. About 1 s is usual.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Debian's parent directory of one directory per major version.
const DEBIAN_FOLDER: &str = "/usr/lib/postgresql";
/// Other directories where packages install the programs.
const FOLDERS: [&str; 4] = [
    "/opt/homebrew/opt/postgresql/bin",
    "/opt/homebrew/bin",
    "/usr/local/opt/postgresql/bin",
    "/usr/local/bin",
];
/// Users to run the server as when this process runs as root, which the server refuses; the first that
/// exists is used.
const SERVER_USERS: [&str; 2] = ["postgres", "nobody"];

/// Hint for error messages when no server is available.
pub const HOW_TO_GET_POSTGRESQL: &str = "install PostgreSQL 13 or later (Debian and Ubuntu: \
     apt-get install postgresql; macOS: brew install postgresql), or set ROCKBOT_TEST_POSTGRES_URL \
     to a database that the tests may write to";

/// A running PostgreSQL server for one owner. Dropping it stops the server and removes its data.
#[derive(Debug)]
pub struct PrivatePostgres {
    port: u16,
    password: String,
    programs: PathBuf,
    // Dropped in this order: the server stops before its directory is removed.
    guard: ProcessGuard,
    server: Child,
    cluster: Cluster,
}

impl PrivatePostgres {
    /// Starts a server on a free port and returns when it accepts connections. Blocks for about 2 s, at
    /// most 60 s.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or the server exits or does not reply; the message then holds
    /// the end of its log.
    pub fn start() -> Result<Self> {
        Self::start_on(free_port()?)
    }

    /// Like [`PrivatePostgres::start`], with a chosen port on 127.0.0.1.
    ///
    /// # Errors
    /// As for [`PrivatePostgres::start`].
    pub fn start_on(port: u16) -> Result<Self> {
        let programs = find_programs()
            .with_context(|| format!("PostgreSQL is not installed: {HOW_TO_GET_POSTGRESQL}"))?;
        let password = random_password()?;
        let cluster = Cluster::create(&programs, &password)?;
        let server = cluster.serve(&programs, port)?;
        let guard = cluster.guard(&server)?;
        let mut postgres = Self { port, password, programs, guard, server, cluster };
        postgres.wait_until_ready()?;
        Ok(postgres)
    }

    /// Stops every process of the server with SIGSTOP until [`PrivatePostgres::resume`]: clients keep
    /// their connections and get no reply.
    ///
    /// # Errors
    /// When the processes cannot be listed or signaled.
    pub fn pause(&mut self) -> Result<()> {
        // First the parent, so that the list of its children is final.
        signal("STOP", &[self.server.id()])?;
        let children = self.children()?;
        signal("STOP", &children)?;
        // Each child leads a process group of its own, and a stopped child does not notice that the
        // server ended.
        children.iter().try_for_each(|child| self.guard.watch_group(*child))
    }

    /// Continues a server that [`PrivatePostgres::pause`] stopped.
    ///
    /// # Errors
    /// When the processes cannot be listed or signaled.
    pub fn resume(&mut self) -> Result<()> {
        signal("CONT", &self.children()?)?;
        signal("CONT", &[self.server.id()])?;
        let guard = self.cluster.guard(&self.server)?;
        self.guard.dismiss();
        self.guard = guard;
        Ok(())
    }

    /// Kills every process of the server with SIGKILL, as a crash of the machine would, and keeps its
    /// data for [`PrivatePostgres::restart`].
    ///
    /// # Errors
    /// When the processes cannot be listed or signaled.
    pub fn crash(&mut self) -> Result<()> {
        signal("STOP", &[self.server.id()])?;
        signal("KILL", &self.children()?)?;
        self.server.kill().context("cannot kill the server")?;
        self.server.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// Restarts a crashed server on the same port with its data, and returns when it accepts connections.
    ///
    /// # Errors
    /// As for [`PrivatePostgres::start`].
    pub fn restart(&mut self) -> Result<()> {
        ensure!(!self.is_running(), "the server is already running");
        self.server = self.cluster.serve(&self.programs, self.port)?;
        let guard = self.cluster.guard(&self.server)?;
        self.guard.dismiss();
        self.guard = guard;
        self.wait_until_ready()
    }

    /// Returns the ids of the processes that the server started.
    fn children(&self) -> Result<Vec<u32>> {
        let output = Command::new("ps")
            .args(["-A", "-o", "pid=", "-o", "ppid="])
            .output()
            .context("cannot start ps, which lists the processes of the server")?;
        ensure!(output.status.success(), "ps failed ({})", output.status);
        let server = self.server.id();
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        let rows = table.lines().filter_map(|line| {
            let mut ids = line.split_whitespace().map(str::parse::<u32>);
            Some((ids.next()?.ok()?, ids.next()?.ok()?))
        });
        Ok(rows.filter(|(_, parent)| *parent == server).map(|(id, _)| id).collect())
    }

    /// Returns the URL for clients: `postgres://rockbot:PASSWORD@127.0.0.1:PORT/postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://rockbot:{}@127.0.0.1:{}/postgres", self.password, self.port)
    }

    /// Returns the end of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.cluster.folder.path().join("server.log"))
    }

    /// Stops the server and removes its data; returns when both are done. Dropping does the same.
    pub fn stop(self) {}

    /// Returns `true` while the server's process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.server.try_wait(), Ok(None))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !(is_listening(self.port) && self.reports_ready()) {
            if !self.is_running() {
                bail!("the private PostgreSQL server exited while starting:\n{}", self.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "the private PostgreSQL server was not ready within {} s:\n{}",
                START_LIMIT.as_secs(),
                self.log_tail()
            );
            wait_before_poll();
        }
        Ok(())
    }

    /// Reads the server's state from the file that holds its process id.
    fn reports_ready(&self) -> bool {
        let state = fs::read_to_string(self.cluster.folder.path().join("data/postmaster.pid"));
        state.is_ok_and(|text| text.lines().any(|line| line.trim() == "ready"))
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        self.guard.finish();
        // The guard has stopped the server; the kill ensures that the wait returns.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The data of a server, in a directory that its user owns.
#[derive(Debug)]
struct Cluster {
    folder: TempDir,
    owner: Option<User>,
}

impl Cluster {
    fn create(programs: &Path, password: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("rockbot-postgres-").tempdir()?;
        let owner = if is_root(folder.path())? { Some(User::for_server()?) } else { None };
        let cluster = Self { folder, owner };
        let path = cluster.folder.path();
        let password_file = path.join("password");
        fs::write(&password_file, password)?;
        fs::set_permissions(&password_file, Permissions::from_mode(0o600))?;
        if let Some(User { id, group }) = cluster.owner {
            for path in [path, &password_file] {
                chown(path, Some(id), Some(group))?;
            }
        }
        let output = cluster
            .command(&programs.join("initdb"))
            // A login with SCRAM hashes 4096 times, which takes a debug build a tenth of a second. The
            // password is random and lives as long as the server.
            .args(["--username=rockbot", "--auth=md5", "--pwfile=password"])
            .args(["--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"])
            .args(["-D", "data"])
            .stdin(Stdio::null())
            .output()
            .context("cannot start initdb")?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb failed ({}):\n{printed}", output.status);
        Ok(cluster)
    }

    /// Starts a guard that stops the server and removes the directory.
    fn guard(&self, server: &Child) -> Result<ProcessGuard> {
        let mut guard = ProcessGuard::start(StopSignal::Quit, Some(self.folder.path()))?;
        guard.watch(server)?;
        Ok(guard)
    }

    /// Starts the server as the leader of its own process group.
    fn serve(&self, programs: &Path, port: u16) -> Result<Child> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("server.log"))?;
        self.command(&programs.join("postgres"))
            .args(["-D", "data", "-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""])
            // Writes reach the disk as in production; memory is reduced for tests.
            .args(["-c", "fsync=on", "-c", "max_connections=300", "-c", "shared_buffers=32MB"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot start postgres")
    }

    /// Returns a command in the server's directory, run as its owner, without `PG*` variables.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        if let Some(User { id, group }) = self.owner {
            command.uid(id).gid(group);
        }
        command
    }
}

/// Sends a signal to processes. One that has exited is no error: a child of the server can end at any time.
fn signal(name: &str, processes: &[u32]) -> Result<()> {
    if processes.is_empty() {
        return Ok(());
    }
    let ids = processes.iter().map(u32::to_string);
    let mut kill = Command::new("kill");
    kill.args(["-s", name, "--"]).args(ids).stderr(Stdio::null());
    kill.status().context("cannot start kill")?;
    Ok(())
}

/// A user of this machine.
#[derive(Debug, Clone, Copy)]
struct User {
    id: u32,
    group: u32,
}

impl User {
    fn for_server() -> Result<Self> {
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        SERVER_USERS.iter().find_map(|name| Self::parse(&users, name)).with_context(|| {
            format!("PostgreSQL does not run as root: add one of the users {SERVER_USERS:?}")
        })
    }

    /// Parses lines of the form `name:password:id:group:...`.
    fn parse(users: &str, name: &str) -> Option<Self> {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map(str::parse);
        Some(Self { id: numbers.next()?.ok()?, group: numbers.next()?.ok()? })
    }
}

/// Returns `true` if root owns `folder`, which this process just created.
fn is_root(folder: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(folder)?.uid() == 0)
}

/// Returns the directory with `initdb` and `postgres` of the newest installed PostgreSQL.
#[must_use]
pub fn find_programs() -> Option<PathBuf> {
    let on_path = || find_program("initdb").and_then(|program| Some(program.parent()?.to_owned()));
    let candidates = debian_folders().into_iter().chain(FOLDERS.iter().map(PathBuf::from));
    candidates
        .chain(on_path())
        .find(|folder| ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file()))
}

/// Returns Debian's directories, newest version first.
fn debian_folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(DEBIAN_FOLDER).into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|one, other| other.cmp(one));
    versions
        .into_iter()
        .map(|version| Path::new(DEBIAN_FOLDER).join(version.to_string()).join("bin"))
        .collect()
}

/// Generates a password that keeps other users of this machine out: a PostgreSQL superuser can start
/// programs.
fn random_password() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
