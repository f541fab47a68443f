//! A private RabbitMQ node: on free ports of the loopback interface, in a temporary directory, and
//! removed with its owner.
//!
//! It neither reads nor writes anything of the machine's own broker: the node has its own name, port
//! mapper, cookie, configuration and data. The file needs no async runtime, so that `xtask` can
//! include it.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// The time limit from the start of a node until it speaks AMQP. About 10 s is usual.
const START_LIMIT: Duration = Duration::from_secs(300);
/// The interval between two checks of a process that cannot send events.
const POLL: Duration = Duration::from_millis(100);
/// The time limit for one check of a port.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Ports are chosen below the ephemeral range, so that no outgoing connection takes a free port before
/// its server binds it.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Directories where packages install the server, best first. Debian's `/usr/sbin/rabbitmq-server` is
/// a wrapper that changes user and directory, so the real script comes before `PATH`.
const SERVER_FOLDERS: [&str; 6] = [
    "/usr/lib/rabbitmq/bin",
    "/opt/homebrew/opt/rabbitmq/sbin",
    "/opt/homebrew/sbin",
    "/usr/local/opt/rabbitmq/sbin",
    "/usr/local/sbin",
    "/usr/sbin",
];

/// Hint for error messages when no broker is available.
pub const HOW_TO_GET_A_BROKER: &str = "install RabbitMQ 3.10 or later (Debian and Ubuntu: apt-get \
     install rabbitmq-server; macOS: brew install rabbitmq), or set ROCKBOT_TEST_AMQP_URL to a \
     broker that the tests may write to";

/// A running RabbitMQ node for one owner. Dropping it stops the node and removes its data.
#[derive(Debug)]
pub struct PrivateBroker {
    // Dropped in this order: the processes stop before their directory is removed.
    guard: ProcessGuard,
    server: Child,
    /// `None` when the node shares the port mapper of another one.
    port_mapper: Option<Child>,
    layout: Layout,
}

impl PrivateBroker {
    /// Starts a node on free ports and returns when it speaks AMQP and its management API accepts
    /// connections. Blocks for about 10 s, at most 120 s.
    ///
    /// # Errors
    /// When RabbitMQ is not installed, or the node exits or does not reply; the message then holds the
    /// end of the node's log.
    pub fn start() -> Result<Self> {
        Self::start_on(free_port()?)
    }

    /// Like [`PrivateBroker::start`], with a chosen AMQP port on 127.0.0.1.
    ///
    /// # Errors
    /// As for [`PrivateBroker::start`].
    pub fn start_on(amqp_port: u16) -> Result<Self> {
        Self::start_node(amqp_port, "", &[])
    }

    /// Like [`PrivateBroker::start`], with additional lines of `rabbitmq.conf` and plugins.
    ///
    /// # Errors
    /// As for [`PrivateBroker::start`], and when the node rejects the configuration.
    pub fn start_with(configuration: &str, plugins: &[&str]) -> Result<Self> {
        Self::start_node(free_port()?, configuration, plugins)
    }

    fn start_node(amqp_port: u16, configuration: &str, plugins: &[&str]) -> Result<Self> {
        let layout = Layout::write(amqp_port, None, configuration, plugins)?;
        let mut broker = Self::launch(layout)?;
        broker.wait_until_ready(Instant::now() + START_LIMIT)?;
        Ok(broker)
    }

    /// Like [`PrivateBroker::start`], as a node that can join a cluster with `first`: it has the same port
    /// mapper and cookie. Returns before the node is ready.
    pub(crate) fn launch_beside(first: &Self) -> Result<Self> {
        Self::launch(Layout::write(free_port()?, Some(&first.layout), "", &[])?)
    }

    fn launch(layout: Layout) -> Result<Self> {
        let mut guard = ProcessGuard::start(StopSignal::Kill, Some(layout.folder.path()))?;
        let port_mapper = layout.start_port_mapper(&mut guard)?;
        let server = layout.spawn(&mut Command::new(installed_server()?), "console.log")?;
        guard.watch(&server)?;
        Ok(Self { guard, server, port_mapper, layout })
    }

    /// Stops the node gracefully and keeps its data, for [`PrivateBroker::restart`].
    ///
    /// # Errors
    /// When the node does not stop.
    pub fn shut_down(&mut self) -> Result<()> {
        // Stops the Erlang runtime, which ends the server's process too.
        self.ctl(&["stop"])?;
        self.server.wait().context("cannot wait for the node")?;
        Ok(())
    }

    /// Kills the node with SIGKILL, as a crash would, and keeps its data.
    ///
    /// # Errors
    /// When the node cannot be killed.
    pub fn crash(&mut self) -> Result<()> {
        let group = format!("-{}", self.server.id());
        let killed = Command::new("kill").args(["-s", "KILL", "--", &group]).status()?;
        ensure!(killed.success(), "the node cannot be killed");
        self.server.wait().context("cannot wait for the node")?;
        Ok(())
    }

    /// Restarts the node on the same ports with its data, and returns when it speaks AMQP.
    ///
    /// # Errors
    /// As for [`PrivateBroker::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.relaunch()?;
        self.wait_until_ready(Instant::now() + START_LIMIT)
    }

    /// Restarts the node without waiting until it is ready.
    pub(crate) fn relaunch(&mut self) -> Result<()> {
        ensure!(!self.is_running(), "the node is already running");
        self.server = self.layout.spawn(&mut Command::new(installed_server()?), "console.log")?;
        self.guard.watch(&self.server)
    }

    /// Runs `rabbitmqctl` on this node and returns its output.
    ///
    /// # Errors
    /// When it fails; the message holds its output.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        let program = installed_server()?.with_file_name("rabbitmqctl");
        let mut command = Command::new(program);
        command.arg("--quiet").args(arguments);
        self.layout.prepare(&mut command);
        let output = command.stdin(Stdio::null()).output().context("cannot start rabbitmqctl")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "rabbitmqctl {} failed: {printed}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(printed)
    }

    /// Returns the major and minor version of RabbitMQ.
    ///
    /// # Errors
    /// When `rabbitmqctl` fails or prints no version.
    pub fn version(&self) -> Result<(u32, u32)> {
        let printed = self.ctl(&["version"])?;
        let mut numbers = printed.trim().split('.').map_while(|number| number.parse().ok());
        numbers.next().zip(numbers.next()).with_context(|| format!("no version: {printed}"))
    }

    /// Returns the node's name in a cluster.
    #[must_use]
    pub fn node_name(&self) -> String {
        self.layout.node_name()
    }

    /// Returns the URL for a user other than `guest`.
    #[must_use]
    pub fn url_for(&self, user: &str, password: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}/%2f", self.layout.amqp_port)
    }

    /// Returns the URL for AMQP clients: `amqp://guest:guest@127.0.0.1:PORT/%2f`.
    #[must_use]
    pub fn amqp_url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.layout.amqp_port)
    }

    /// Returns the base URL of the management API, without a trailing slash:
    /// `http://guest:guest@127.0.0.1:PORT`; requests go to `/api/...` below it.
    #[must_use]
    pub fn management_url(&self) -> String {
        format!("http://guest:guest@127.0.0.1:{}", self.layout.management_port)
    }

    /// Returns the end of the node's console output and log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let console = tail(&self.layout.folder.path().join("console.log"));
        let log = tail(&self.layout.folder.path().join("log").join("rabbit.log"));
        format!("{console}\n{log}")
    }

    /// Stops the node and removes its data; returns when both are done. Dropping does the same.
    pub fn stop(self) {}

    /// Returns `true` while the node's process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.server.try_wait(), Ok(None))
    }

    pub(crate) fn wait_until_ready(&mut self, deadline: Instant) -> Result<()> {
        let Layout { amqp_port, management_port, .. } = self.layout;
        while !(speaks_amqp(amqp_port) && is_listening(management_port)) {
            if !self.is_running() {
                bail!("the private RabbitMQ node exited while starting:\n{}", self.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "the private RabbitMQ node did not speak AMQP within {} s:\n{}",
                START_LIMIT.as_secs(),
                self.log_tail()
            );
            wait_before_poll();
        }
        Ok(())
    }
}

impl Drop for PrivateBroker {
    fn drop(&mut self) {
        self.guard.finish();
        for process in std::iter::once(&mut self.server).chain(&mut self.port_mapper) {
            // The guard has killed both groups; the second kill ensures that the wait, which reaps
            // the leaders, returns. Errors have no remedy here.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The directory of a node, with its configuration and ports.
#[derive(Debug)]
struct Layout {
    folder: TempDir,
    amqp_port: u16,
    management_port: u16,
    mapper_port: u16,
    distribution_port: u16,
    cookie: String,
    /// `true` if another node owns the port mapper.
    shares_mapper: bool,
}

impl Layout {
    /// Creates the directory; with `first`, for a node of the same cluster. `configuration` are additional
    /// lines of `rabbitmq.conf`, `plugins` additional plugins.
    fn write(
        amqp_port: u16,
        first: Option<&Self>,
        configuration: &str,
        plugins: &[&str],
    ) -> Result<Self> {
        let layout = Self {
            folder: tempfile::Builder::new().prefix("rockbot-broker-").tempdir()?,
            amqp_port,
            management_port: free_port()?,
            mapper_port: first.map_or_else(free_port, |first| Ok(first.mapper_port))?,
            distribution_port: free_port()?,
            cookie: first
                .map_or_else(|| format!("ROCKBOT{amqp_port}PRIVATE"), |first| first.cookie.clone()),
            shares_mapper: first.is_some(),
        };
        layout.file("rabbitmq.conf", &(layout.configuration() + configuration))?;
        let plugins = [&["rabbitmq_management"], plugins].concat().join(",");
        layout.file("enabled_plugins", &format!("[{plugins}].\n"))?;
        // Replaces /etc/rabbitmq/rabbitmq-env.conf, which belongs to the system's node.
        layout.file("rabbitmq-env.conf", "")?;
        let cookie = layout.file(".erlang.cookie", &layout.cookie)?;
        fs::set_permissions(cookie, Permissions::from_mode(0o400))?;
        Ok(layout)
    }

    fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Returns the node's `rabbitmq.conf`. The alarms for memory and disk are relaxed, so that a full disk
    /// of the test machine does not block publishers.
    fn configuration(&self) -> String {
        format!(
            "listeners.tcp.1 = 127.0.0.1:{}\n\
             management.tcp.ip = 127.0.0.1\n\
             management.tcp.port = {}\n\
             collect_statistics_interval = 1000\n\
             disk_free_limit.absolute = 1MB\n\
             max_message_size = 4194304\n\
             consumer_timeout = 90000000\n\
             vm_memory_high_watermark.relative = 0.9\n\
             log.console = false\n\
             log.file = rabbit.log\n\
             log.file.level = info\n",
            self.amqp_port, self.management_port
        )
    }

    fn node_name(&self) -> String {
        format!("rockbot-{}@localhost", self.amqp_port)
    }

    fn start_port_mapper(&self, guard: &mut ProcessGuard) -> Result<Option<Child>> {
        if self.shares_mapper {
            return Ok(None);
        }
        let port = self.mapper_port;
        let mut command = Command::new(find_port_mapper(&installed_server()?)?);
        command.args(["-port", &port.to_string(), "-address", "127.0.0.1"]);
        let mapper = self.spawn(&mut command, "epmd.log")?;
        guard.watch(&mapper)?;
        let deadline = Instant::now() + START_LIMIT;
        while !is_listening(port) {
            ensure!(Instant::now() < deadline, "epmd does not accept connections on port {port}");
            wait_before_poll();
        }
        Ok(Some(mapper))
    }

    /// Starts `command` as the leader of its own process group, with the node's environment and its
    /// output in the file `log`.
    fn spawn(&self, command: &mut Command, log: &str) -> Result<Child> {
        let output = File::create(self.folder.path().join(log))?;
        self.prepare(command);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        command.spawn().with_context(|| format!("cannot start {command:?}"))
    }

    /// Sets the environment of this node and removes the variables of the system's node.
    fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("RABBITMQ_") || name.starts_with("ERL_") {
                command.env_remove(name.as_ref());
            }
        }
        let folder = self.folder.path();
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("ERL_EPMD_PORT", self.mapper_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_CRASH_DUMP", "/dev/null")
            .env("RABBITMQ_NODENAME", self.node_name())
            .env("RABBITMQ_DIST_PORT", self.distribution_port.to_string())
            .env("RABBITMQ_CONF_ENV_FILE", folder.join("rabbitmq-env.conf"))
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", folder.join("advanced.config"))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", folder.join("generated"))
            .env("RABBITMQ_SCHEMA_DIR", folder.join("schema"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("enabled_plugins"))
            .env("RABBITMQ_MNESIA_BASE", folder.join("data"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_PID_FILE", folder.join("pid"))
            // Two schedulers without busy waiting leave the cores to the tests.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none \
                 -kernel inet_dist_use_interface {127,0,0,1}",
            );
    }
}

/// Returns the path of the `rabbitmq-server` script, if RabbitMQ is installed.
#[must_use]
pub fn find_server() -> Option<PathBuf> {
    find_in(SERVER_FOLDERS.iter().map(PathBuf::from), "rabbitmq-server")
        .or_else(|| find_program("rabbitmq-server"))
}

fn installed_server() -> Result<PathBuf> {
    find_server()
        .with_context(|| format!("rabbitmq-server is not installed: {HOW_TO_GET_A_BROKER}"))
}

/// Returns the first file called `name` in the directories of `PATH`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    find_in(std::env::split_paths(&std::env::var_os("PATH")?), name)
}

fn find_in(folders: impl IntoIterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns the path of `epmd`. Erlang would start it as a daemon that outlives every node; this one is
/// started first and in the foreground, so that it stops with the node.
fn find_port_mapper(server: &Path) -> Result<PathBuf> {
    let near = ["/opt/homebrew/bin", "/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    find_program("epmd").or_else(|| find_in(near, "epmd")).with_context(|| {
        format!(
            "{} is installed, but Erlang's epmd is not on PATH: add the directory of Erlang's programs",
            server.display()
        )
    })
}

/// Returns a free port of 127.0.0.1, a different one at each call in one process.
///
/// # Errors
/// When none of the ports 20000 to 31999 is free.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test processes that start together have adjacent ids: spread their first ports.
    let start = std::process::id().wrapping_mul(61);
    for _ in 0..PORTS {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % u32::from(PORTS);
        let port = FIRST_PORT + u16::try_from(offset)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port between {FIRST_PORT} and {} is free on 127.0.0.1", FIRST_PORT + PORTS - 1)
}

/// Returns `true` if a server on 127.0.0.1 accepts connections on `port`.
#[must_use]
pub fn is_listening(port: u16) -> bool {
    connect(port).is_ok()
}

/// Connects to `port` on 127.0.0.1. Connect, reads and writes each time out after two seconds.
///
/// # Errors
/// When the connection is not accepted within two seconds.
pub fn connect(port: u16) -> std::io::Result<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, PROBE_LIMIT)?;
    stream.set_read_timeout(Some(PROBE_LIMIT))?;
    stream.set_write_timeout(Some(PROBE_LIMIT))?;
    Ok(stream)
}

/// Returns `true` if the reply to the AMQP 0-9-1 protocol header is the method `connection.start`.
fn speaks_amqp(port: u16) -> bool {
    const METHOD_FRAME: u8 = 1;
    const CONNECTION_START: [u8; 4] = [0, 10, 0, 10];
    let Ok(mut stream) = connect(port) else { return false };
    let mut reply = [0; 11];
    stream.write_all(b"AMQP\x00\x00\x09\x01").is_ok()
        && stream.read_exact(&mut reply).is_ok()
        && reply[0] == METHOD_FRAME
        && reply[7..] == CONNECTION_START
}

/// Waits 100 ms before the next check of another process.
#[expect(clippy::disallowed_methods, reason = "a process that boots sends no event to wait for")]
pub fn wait_before_poll() {
    std::thread::sleep(POLL);
}

/// Returns the last 30 lines of a log file, or why it cannot be read.
#[must_use]
pub fn tail(log: &Path) -> String {
    const LINES: usize = 30;
    match fs::read(log) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(LINES)..].join("\n")
        }
        Err(error) => format!("({} cannot be read: {error})", log.display()),
    }
}

/// Signal with which a [`ProcessGuard`] stops the processes that it watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGKILL: for servers whose state is discarded.
    Kill,
    /// SIGTERM, then SIGKILL after ten seconds: for programs that must stop their
    /// children in other process groups themselves.
    Terminate,
    /// Like [`StopSignal::Terminate`] with SIGQUIT: PostgreSQL then disconnects its clients, frees its
    /// shared memory and saves nothing.
    Quit,
}

/// Stops process groups when its owner ends, by a return, a panic, Ctrl-C or SIGKILL.
///
/// It is a small shell in its own process group that reads a pipe from the owner. The kernel closes
/// the pipe when the owner ends, and that is the signal.
#[derive(Debug)]
pub struct ProcessGuard {
    shell: Child,
    pipe: Option<ChildStdin>,
}

/// Reads process groups line by line; an empty line means that all have exited.
const GUARD_SCRIPT: &str = r#"
groups=
while read -r group; do
  [ -n "$group" ] || exit 0
  groups="$groups -$group"
done
if [ -n "$1" ] && [ -n "$groups" ]; then
  kill -s "$1" -- $groups
  tries=0
  while kill -s 0 -- $groups && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
fi
[ -z "$groups" ] || kill -s KILL -- $groups
[ -z "$2" ] || rm -rf -- "$2"
"#;

impl ProcessGuard {
    /// Starts a guard that also removes `folder`.
    ///
    /// # Errors
    /// When `sh` cannot be started.
    pub fn start(signal: StopSignal, folder: Option<&Path>) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", GUARD_SCRIPT, "rockbot-guard"])
            .arg(match signal {
                StopSignal::Kill => "",
                StopSignal::Terminate => "TERM",
                StopSignal::Quit => "QUIT",
            })
            .arg(folder.unwrap_or(Path::new("")))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh, which stops the processes of the tests")?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, pipe })
    }

    /// Watches the process group of `leader`, which must have been started with `process_group(0)`.
    ///
    /// # Errors
    /// When the guard has exited.
    pub fn watch(&mut self, leader: &Child) -> Result<()> {
        self.watch_group(leader.id())
    }

    /// Watches the process group whose leader has this id.
    ///
    /// # Errors
    /// When the guard has exited.
    pub fn watch_group(&mut self, leader: u32) -> Result<()> {
        self.send(&format!("{leader}\n")).context("the process guard has exited")
    }

    /// Stops the guard without effect, because every process has exited: nothing is killed or removed.
    pub fn dismiss(&mut self) {
        // The guard may have exited already.
        let _ = self.send("\n");
        self.finish();
    }

    /// Stops the watched processes and returns when that is done. Dropping does the same.
    pub fn finish(&mut self) {
        drop(self.pipe.take());
        let _ = self.shell.wait();
    }

    /// Has the guard stop the processes without waiting for it.
    pub fn release(&mut self) {
        drop(self.pipe.take());
    }

    fn send(&mut self, line: &str) -> std::io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush()),
            None => Ok(()),
        }
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.finish();
    }
}
