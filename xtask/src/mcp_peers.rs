//! Third-party MCP servers and clients, and the protocol's conformance suite, from npm and PyPI.
//!
//! All programs are in one folder, whose path is in [`VARIABLE`]. Their names are in `testkit`'s
//! `mcp_peers`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::mcp_comparison::QUICK_SERVERS;
use crate::node::Node;
use crate::{console, mcp_servers, python, workspace, wrapper};

/// Variable with the folder of the programs.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_MCP_PEERS";

/// Names, packages, and the file of `xtask/peers` that each loads first. The conformance suite has two
/// versions: the stable one, and the first for the protocol revision 2026-07-28.
const FROM_NPM: [(&str, &str, &str); 6] = [
    ("everything", "npm:@modelcontextprotocol/server-everything@2026.8.31", LOOPBACK),
    ("filesystem", "npm:@modelcontextprotocol/server-filesystem@2026.8.31", LOOPBACK),
    ("memory", "npm:@modelcontextprotocol/server-memory@2026.8.31", LOOPBACK),
    ("brave-search", "npm:@brave/brave-search-mcp-server@2.1.4", "brave_search.cjs"),
    ("conformance", "npm:@modelcontextprotocol/conformance@0.1.16", LOOPBACK),
    ("conformance-next", "npm:@modelcontextprotocol/conformance@0.2.0-alpha.12", LOOPBACK),
];
const LOOPBACK: &str = "loopback.cjs";
const FROM_PYPI: [(&str, &str); 2] =
    [("time", "mcp-server-time==2026.10.19"), ("git", "mcp-server-git==2026.10.19")];
/// Brings the official SDK, which is a dependency.
const FASTMCP: &str = "fastmcp==4.1.2";
const FASTMCP_FOLDER: &str = "mcp-fastmcp";
/// The official SDK in both versions, and the inspector.
const CLIENTS_FROM_NPM: [&str; 3] = [
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/inspector@2.12.0",
];
const INSPECTOR: &str =
    "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";

/// Installs the servers and clients if needed, and returns the folder of their programs.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let programs = peers.join("mcp");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;

    let node = Node::find(may_install)?;
    let packages = FROM_NPM.map(|(name, package, _)| format!("{name}@{package}"));
    let from_npm = peers.join("mcp-npm");
    node.packages(&from_npm, &packages)?;
    let clients = peers.join("mcp-clients-npm");
    node.packages(&clients, &CLIENTS_FROM_NPM.map(str::to_owned))?;
    mcp_servers::install_quick(&programs.join(QUICK_SERVERS), &node, may_install)?;
    let node = node.executable()?;
    install_npm_clients(&programs, &clients, &node)?;
    for (name, _, preload) in FROM_NPM {
        let script = from_npm.join("node_modules").join(name).join("dist").join("index.js");
        let preload = workspace::peer_file(preload);
        let command = [&node, Path::new("--require"), &preload, &script];
        wrapper::write(&programs.join(name), &command)?;
    }

    let environment = peers.join("mcp-pypi");
    let packages = FROM_PYPI.map(|(_, package)| package);
    python::environment(&environment, &packages, python::Dependencies::Install, may_install)?;
    for (name, _) in FROM_PYPI {
        let program = python::program(&environment, &format!("mcp-server-{name}"));
        wrapper::write(&programs.join(name), &[&program])?;
    }

    install_python_client(may_install)?;
    let python = python::program(&peers.join(FASTMCP_FOLDER), "python");
    let server = workspace::peer_file("fastmcp_server.py");
    wrapper::write(&programs.join("fastmcp"), &[&python, &server])?;
    Ok(programs)
}

/// Installs the client on the official Python SDK if needed, and returns its program.
pub(crate) fn install_python_client(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let (environment, programs) = (peers.join(FASTMCP_FOLDER), peers.join("mcp"));
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;
    python::environment(&environment, &[FASTMCP], python::Dependencies::Install, may_install)?;
    let (python, client) =
        (python::program(&environment, "python"), workspace::peer_file("mcp_client.py"));
    let program = programs.join("client-python");
    wrapper::write(&program, &[&python, &client])?;
    Ok(program)
}

fn install_npm_clients(programs: &Path, packages: &Path, node: &Path) -> Result<()> {
    let script = packages.join("mcp_client.cjs");
    // A script finds the packages of its own folder.
    fs::copy(workspace::peer_file("mcp_client.cjs"), &script)
        .with_context(|| format!("cannot write {}", script.display()))?;
    wrapper::write(&programs.join("client-typescript"), &[node, &script])?;
    wrapper::write(
        &programs.join("inspector"),
        &[node, &packages.join(INSPECTOR), Path::new("--cli")],
    )
}

/// Installs the servers and prints the variable for the tests.
pub(crate) fn run() -> Result<()> {
    let programs = install(true)?;
    console::heading("point the tests at them:");
    console::progress("mcp-peers", format_args!("export {VARIABLE}={}", programs.display()));
    Ok(())
}
