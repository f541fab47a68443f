//! Real MCP servers and clients, and the protocol's conformance suite, installed by `cargo xtask mcp-peers`.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::broker::{ProcessGuard, StopSignal, free_port, is_listening, tail, wait_before_poll};
use crate::mcp_comparison::{ComparedServer, QUICK_SERVERS};

const FOLDER_VARIABLE: &str = "ROCKBOT_TEST_MCP_PEERS";
/// Time limit for the start of a server. It usually takes two seconds.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A program that speaks MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpPeer {
    /// npm's `server-everything`: every kind of tool, resource, prompt and notification.
    Everything,
    /// npm's `server-filesystem`; its arguments are the directories that it may access.
    Filesystem,
    /// npm's `server-memory`; `MEMORY_FILE_PATH` in its environment names its file.
    Memory,
    /// npm's `brave-search-mcp-server`; `BRAVE_API_KEY` and `BRAVE_BASE_URL` in its environment are its key and
    /// the URL of the service.
    BraveSearch,
    /// PyPI's `mcp-server-time`.
    Time,
    /// PyPI's `mcp-server-git`; takes `--repository FOLDER` and needs `git` on `PATH`.
    Git,
    /// `xtask/peers/fastmcp_server.py` on PyPI's `fastmcp`, for revision 2026-07-28 and older ones:
    /// the tools `echo`, `add`, `slow`, `fail`, `image` and `long_text`.
    FastMcp,
    /// `xtask/peers/mcp_client.py`, a client on PyPI's `mcp` or `fastmcp`; its arguments are library, era, target
    /// and steps.
    ClientPython,
    /// `xtask/peers/mcp_client.cjs`, a client on npm's `@modelcontextprotocol/sdk` or
    /// `@modelcontextprotocol/client`, with the same arguments.
    ClientTypeScript,
    /// npm's `@modelcontextprotocol/inspector` with `--cli`.
    Inspector,
    /// The conformance suite up to revision 2025-11-25: `list`, `server …`, `client …`.
    Conformance,
    /// The conformance suite that includes revision 2026-07-28.
    ConformanceNext,
}

impl McpPeer {
    /// Returns the program and the arguments for a server on standard input and output. Further
    /// arguments can be appended.
    ///
    /// # Panics
    /// When the peers are not installed; the message says what to do.
    #[must_use]
    pub fn command(self) -> (PathBuf, Vec<String>) {
        let (name, arguments): (_, &[&str]) = match self {
            Self::Everything => ("everything", &["stdio"]),
            Self::Filesystem => ("filesystem", &[]),
            Self::Memory => ("memory", &[]),
            Self::BraveSearch => ("brave-search", &[]),
            Self::Time => ("time", &[]),
            Self::Git => ("git", &[]),
            Self::FastMcp => ("fastmcp", &[]),
            Self::ClientPython => ("client-python", &[]),
            Self::ClientTypeScript => ("client-typescript", &[]),
            Self::Inspector => ("inspector", &[]),
            Self::Conformance => ("conformance", &[]),
            Self::ConformanceNext => ("conformance-next", &[]),
        };
        (program(name), arguments.iter().map(|&word| word.to_owned()).collect())
    }
}

fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()).expect(
        "this test needs real MCP servers: run `cargo xtask test`, or `cargo xtask mcp-peers` and \
         set ROCKBOT_TEST_MCP_PEERS to the folder that it prints",
    );
    let program = PathBuf::from(folder).join(name);
    assert!(
        program.is_file(),
        "{name} is not in the folder in {FOLDER_VARIABLE}: run `cargo xtask mcp-peers` and set it to the folder that it prints"
    );
    program
}

/// Returns the servers of `xtask/mcp-servers.toml` that are quick to start.
///
/// # Panics
/// When they are not installed; the message says what to do.
#[must_use]
pub fn quick_servers() -> Vec<ComparedServer> {
    let servers = std::fs::read(program(QUICK_SERVERS)).expect("a readable file");
    serde_json::from_slice(&servers).expect("written by cargo xtask mcp-peers")
}

/// A server over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpPeer {
    /// `server-everything` over streamable HTTP, with sessions.
    EverythingStreamable,
    /// `server-everything` over HTTP with server-sent events, as of revision 2024-11-05.
    EverythingSse,
    /// The FastMCP server over streamable HTTP.
    FastMcp,
}

impl HttpPeer {
    fn path(self) -> &'static str {
        match self {
            Self::EverythingSse => "sse",
            Self::EverythingStreamable | Self::FastMcp => "mcp",
        }
    }

    fn command(self, port: u16) -> Command {
        let port = port.to_string();
        match self {
            Self::EverythingStreamable => everything("streamableHttp", &port),
            Self::EverythingSse => everything("sse", &port),
            Self::FastMcp => {
                let mut command = Command::new(program("fastmcp"));
                command.arg(port);
                command
            }
        }
    }
}

fn everything(transport: &str, port: &str) -> Command {
    let mut command = Command::new(program("everything"));
    command.arg(transport).env("PORT", port);
    command
}

/// A running HTTP server on 127.0.0.1. Dropping it kills its process group.
#[derive(Debug)]
pub struct RunningHttpPeer {
    // Dropped in this order: the processes stop before their log is removed.
    guard: ProcessGuard,
    child: Child,
    url: String,
    port: u16,
    log: TempDir,
}

impl RunningHttpPeer {
    /// Starts a server on a free port and returns when it listens. Blocks for about two seconds.
    ///
    /// # Panics
    /// When the server is not installed, exits, or does not listen within a minute.
    #[must_use]
    pub fn start(peer: HttpPeer) -> Self {
        Self::start_on(peer, free_port().expect("a free port"))
    }

    /// Like [`RunningHttpPeer::start`], on a chosen port, to simulate a restart.
    ///
    /// # Panics
    /// As for [`RunningHttpPeer::start`].
    #[must_use]
    pub fn start_on(peer: HttpPeer, port: u16) -> Self {
        let url = format!("http://127.0.0.1:{port}/{}", peer.path());
        Self::run(peer.command(port), url, port)
    }

    /// Starts a server that listens on this port.
    pub(crate) fn run(mut command: Command, url: String, port: u16) -> Self {
        let log = tempfile::tempdir().expect("a directory for the log");
        let output = File::create(log.path().join("log")).expect("a log");
        let mut guard = ProcessGuard::start(StopSignal::Kill, None).expect("a guard");
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a log"))
            .stderr(output)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        guard.watch(&child).expect("a guard");
        let mut running = Self { guard, child, url, port, log };
        running.wait_until_listening();
        running
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the end of the server's output.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log.path().join("log"))
    }

    fn wait_until_listening(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        while !is_listening(self.port) {
            let exited = self.child.try_wait().expect("the state of a child");
            assert!(exited.is_none(), "the server exited ({exited:?}):\n{}", self.log_tail());
            assert!(Instant::now() < deadline, "the server does not listen:\n{}", self.log_tail());
            wait_before_poll();
        }
    }
}

impl Drop for RunningHttpPeer {
    fn drop(&mut self) {
        self.guard.finish();
        // The guard has killed the group; the second kill ensures that the wait returns.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;

    use super::*;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

    /// Returns the server's response to `initialize`.
    fn initialize(peer: McpPeer, extra_arguments: &[&str]) -> serde_json::Value {
        let (program, arguments) = peer.command();
        let mut guard = ProcessGuard::start(StopSignal::Kill, None).unwrap();
        let mut child = Command::new(program)
            .args(arguments)
            .args(extra_arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        guard.watch(&child).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{INITIALIZE}").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        guard.finish();
        child.wait().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn stdio_servers_respond_to_initialize() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        for (peer, extra_arguments) in [
            (McpPeer::Everything, &[][..]),
            (McpPeer::Filesystem, &[path]),
            (McpPeer::Memory, &[]),
            (McpPeer::Time, &[]),
            (McpPeer::Git, &[]),
            (McpPeer::FastMcp, &[]),
        ] {
            let response = initialize(peer, extra_arguments);
            assert!(response["result"]["serverInfo"]["name"].is_string(), "{peer:?}: {response}");
        }
    }

    #[test]
    fn http_servers_listen_on_loopback_until_dropped() {
        for peer in [HttpPeer::EverythingStreamable, HttpPeer::EverythingSse, HttpPeer::FastMcp] {
            let running = RunningHttpPeer::start(peer);
            let port = running.port();
            assert!(is_listening(port), "{peer:?}");
            // A server that listens on all addresses would accept on this one too.
            assert!(TcpStream::connect(("127.0.0.2", port)).is_err(), "{peer:?}");
            drop(running);
            assert!(!is_listening(port), "{peer:?}");
        }
    }

    #[test]
    fn conformance_suites_list_their_scenarios() {
        for (peer, revision) in
            [(McpPeer::Conformance, "2025-11-25"), (McpPeer::ConformanceNext, "2026-07-28")]
        {
            let (program, arguments) = peer.command();
            let output = Command::new(program).args(arguments).arg("list").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("server-initialize") && text.contains(revision), "{text}");
        }
    }
}
