//! Third-party MCP servers and the protocol's conformance suite, from npm and PyPI.
//!
//! All programs are in one folder, whose path is in [`VARIABLE`]. Their names are in `testkit`'s
//! `mcp_peers`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::Node;
use crate::{console, process, python, workspace};

/// Variable with the folder of the programs.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_MCP_PEERS";

/// The suite has two versions: the stable one, and the first for the protocol revision 2026-07-28.
const FROM_NPM: [(&str, &str); 5] = [
    ("everything", "npm:@modelcontextprotocol/server-everything@2026.8.31"),
    ("filesystem", "npm:@modelcontextprotocol/server-filesystem@2026.8.31"),
    ("memory", "npm:@modelcontextprotocol/server-memory@2026.8.31"),
    ("conformance", "npm:@modelcontextprotocol/conformance@0.1.16"),
    ("conformance-next", "npm:@modelcontextprotocol/conformance@0.2.0-alpha.12"),
];
const FROM_PYPI: [(&str, &str); 2] =
    [("time", "mcp-server-time==2026.10.19"), ("git", "mcp-server-git==2026.10.19")];
const FASTMCP: &str = "fastmcp==4.1.2";

/// Installs the servers if needed, and returns the folder of their programs.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let programs = peers.join("mcp");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;

    let node = Node::find(may_install)?;
    let packages = FROM_NPM.map(|(name, package)| format!("{name}@{package}"));
    let from_npm = peers.join("mcp-npm");
    node.packages(&from_npm, &packages)?;
    let node = path(process::stdout(node.node().args(["-p", "process.execPath"])))?;
    for (name, _) in FROM_NPM {
        let script = from_npm.join("node_modules").join(name).join("dist").join("index.js");
        let preload = workspace::peer_file("loopback.cjs");
        let command = [&node, Path::new("--require"), &preload, &script];
        write_wrapper(&programs.join(name), &command)?;
    }

    let environment = peers.join("mcp-pypi");
    let packages = FROM_PYPI.map(|(_, package)| package);
    python::environment(&environment, &packages, python::Dependencies::Install, may_install)?;
    for (name, _) in FROM_PYPI {
        let program = python::program(&environment, &format!("mcp-server-{name}"));
        write_wrapper(&programs.join(name), &[&program])?;
    }

    let environment = peers.join("mcp-fastmcp");
    python::environment(&environment, &[FASTMCP], python::Dependencies::Install, may_install)?;
    let python = python::program(&environment, "python");
    let server = workspace::peer_file("fastmcp_server.py");
    write_wrapper(&programs.join("fastmcp"), &[&python, &server])?;
    Ok(programs)
}

/// Installs the servers and prints the variable for the tests.
pub(crate) fn run() -> Result<()> {
    let programs = install(true)?;
    console::heading("point the tests at them:");
    console::progress("mcp-peers", format_args!("export {VARIABLE}={}", programs.display()));
    Ok(())
}

fn path(output: Option<String>) -> Result<PathBuf> {
    output.map(PathBuf::from).context("Node.js printed no path of its executable")
}

/// Writes a shell script that executes `command` with the arguments of the script.
fn write_wrapper(program: &Path, command: &[&Path]) -> Result<()> {
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
    // Replaced atomically, because a concurrent run may start the same program.
    let new = program.with_extension("new");
    fs::write(&new, script)
        .and_then(|()| fs::set_permissions(&new, Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, program))
        .with_context(|| format!("cannot write {}", program.display()))
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn path_is_quoted_as_one_word() {
        assert_eq!(quoted("/a b/node"), "'/a b/node'");
        assert_eq!(quoted("/it's"), r"'/it'\''s'");
    }
}
