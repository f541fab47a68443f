//! The Python and JavaScript clients of A2A, from PyPI and npm, with which the tests use the gateway, and the Python server,
//! which the gateway uses as a remote agent.
//!
//! The programs are in one folder, whose path is in [`VARIABLE`]: `python`, `node` and `python-server`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::Node;
use crate::{python, workspace, wrapper};

/// Variable with the folder of the programs.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_A2A_CLIENTS";

const FROM_PYPI: [&str; 2] = ["a2a-sdk[http-server,signing]==1.3.0", "uvicorn==0.54.0"];
const FROM_NPM: [&str; 1] = ["@a2a-js/sdk@1.3.0"];
/// The program for Node.js in `peers`.
const SCRIPT: &str = "a2a_client.mjs";

/// Installs the clients if needed, and returns the folder of their programs.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let programs = peers.join("a2a-clients");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;

    let environment = peers.join("a2a-pypi");
    python::environment(&environment, &FROM_PYPI, python::Dependencies::Install, may_install)?;
    let python = python::program(&environment, "python");
    for (program, script) in [("python", "a2a_client.py"), ("python-server", "a2a_server.py")] {
        let script = workspace::peer_file(script);
        wrapper::write(&programs.join(program), &[&python, Path::new("-B"), &script])?;
    }

    let node = Node::find(may_install)?;
    let modules = peers.join("a2a-npm");
    node.packages(&modules, &FROM_NPM.map(str::to_owned))?;
    // Modules are found beside the script only.
    let script = modules.join(SCRIPT);
    fs::copy(workspace::peer_file(SCRIPT), &script)
        .with_context(|| format!("cannot write {}", script.display()))?;
    wrapper::write(&programs.join("node"), &[&node.executable()?, &script])?;
    Ok(programs)
}
