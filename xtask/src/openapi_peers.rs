//! Prism, which serves OpenAPI documents as mocks that validate requests, and documents, both from npm.

use std::path::PathBuf;

use anyhow::Result;

use crate::node::Node;
use crate::{console, workspace, wrapper};

/// Variable with the folder of the program `run-prism`, and of `documents`.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_OPENAPI_PEERS";

const PACKAGES: [(&str, &str); 2] =
    [("prism", "npm:@stoplight/prism-cli@5.16.0"), ("documents", "npm:@readme/oas-examples@8.2.2")];

/// Installs the packages if needed, and returns their folder.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let node = Node::find(may_install)?;
    let folder = workspace::peers_folder()?.join("openapi");
    node.packages(&folder, &PACKAGES.map(|(name, package)| format!("{name}@{package}")))?;
    let modules = folder.join("node_modules");
    let node = node.executable()?;
    let script = modules.join("prism").join("dist").join("index.js");
    wrapper::write(&modules.join("run-prism"), &[&node, &script])?;
    Ok(modules)
}

/// Installs the packages and prints the variable for the tests.
pub(crate) fn run() -> Result<()> {
    let folder = install(true)?;
    console::heading("point the tests at them:");
    console::progress("openapi-peers", format_args!("export {VARIABLE}={}", folder.display()));
    Ok(())
}
