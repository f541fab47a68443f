//! Real MCP servers and the protocol's own conformance suite, none of it written here: from npm and
//! the Python package index.
//!
//! Each is a program in one folder, which the tests find in [`VARIABLE`]; `testkit`'s `mcp_peers`
//! knows their names.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::Node;
use crate::{process, python, say, workspace};

/// Tells the tests where the programs are.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_MCP_PEERS";

/// The suite is there twice: the stable one, and the first that knows the revision of 2026-07-28.
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

/// Installs the peers if needed, and returns the folder of their programs.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let programs = peers.join("mcp");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;

    let node = Node::find(may_install)?;
    let packages = FROM_NPM.map(|(name, package)| format!("{name}@{package}"));
    let from_npm = peers.join("mcp-npm");
    node.packages(&from_npm, &packages)?;
    let node = path(process::answer(node.node().args(["-p", "process.execPath"])))?;
    for (name, _) in FROM_NPM {
        let script = from_npm.join("node_modules").join(name).join("dist").join("index.js");
        let words = [&node, Path::new("--require"), &workspace::peer_file("loopback.cjs"), &script];
        write_program(&programs.join(name), &words)?;
    }

    let environment = peers.join("mcp-pypi");
    let packages = FROM_PYPI.map(|(_, package)| package);
    python::environment(&environment, &packages, python::Needs::Dependencies, may_install)?;
    for (name, _) in FROM_PYPI {
        let program = python::program(&environment, &format!("mcp-server-{name}"));
        write_program(&programs.join(name), &[&program])?;
    }

    let environment = peers.join("mcp-fastmcp");
    python::environment(&environment, &[FASTMCP], python::Needs::Dependencies, may_install)?;
    let python = python::program(&environment, "python");
    let server = workspace::peer_file("fastmcp_server.py");
    write_program(&programs.join("fastmcp"), &[&python, &server])?;
    Ok(programs)
}

/// Installs the peers and tells how to point tests at them.
pub(crate) fn run() -> Result<()> {
    let programs = install(true)?;
    say::heading("point the tests at them:");
    say::progress("mcp-peers", format_args!("export {VARIABLE}={}", programs.display()));
    Ok(())
}

fn path(answer: Option<String>) -> Result<PathBuf> {
    answer.map(PathBuf::from).context("Node.js does not tell where it is")
}

/// Writes a program that becomes the one of `words`, with its own arguments after them.
fn write_program(program: &Path, words: &[&Path]) -> Result<()> {
    let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
    // Another run may be starting the same program: it sees the old file or the new one.
    let new = program.with_extension("new");
    fs::write(&new, script)
        .and_then(|()| fs::set_permissions(&new, Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, program))
        .with_context(|| format!("cannot write {}", program.display()))
}

/// One word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        assert_eq!(quoted("/a b/node"), "'/a b/node'");
        assert_eq!(quoted("/it's"), r"'/it'\''s'");
    }
}
