//! Clients of the OpenAI API, from PyPI and npm, with which the tests use the gateway.
//!
//! All programs are in one folder, whose path is in [`VARIABLE`]: `python`, `node` and `ai-sdk`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::Node;
use crate::{python, workspace, wrapper};

/// Variable with the folder of the programs.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_OPENAI_CLIENTS";

const FROM_PYPI: [&str; 1] = ["openai==3.57.0"];
const FROM_NPM: [&str; 3] = ["openai@7.57.0", "ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92"];
/// The programs for Node.js, and their files in `peers`.
const SCRIPTS: [(&str, &str); 2] = [("node", "openai_client.mjs"), ("ai-sdk", "ai_sdk_client.mjs")];

/// Installs the clients if needed, and returns the folder of their programs.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let programs = peers.join("openai-clients");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;

    let environment = peers.join("openai-pypi");
    python::environment(&environment, &FROM_PYPI, python::Dependencies::Install, may_install)?;
    let python = python::program(&environment, "python");
    let script = workspace::peer_file("openai_client.py");
    wrapper::write(&programs.join("python"), &[&python, Path::new("-B"), &script])?;

    let node = Node::find(may_install)?;
    let modules = peers.join("openai-npm");
    node.packages(&modules, &FROM_NPM.map(str::to_owned))?;
    let node = node.executable()?;
    for (program, file) in SCRIPTS {
        // Modules are found beside the script only.
        let script = modules.join(file);
        fs::copy(workspace::peer_file(file), &script)
            .with_context(|| format!("cannot write {}", script.display()))?;
        wrapper::write(&programs.join(program), &[&node, &script])?;
    }
    Ok(programs)
}
