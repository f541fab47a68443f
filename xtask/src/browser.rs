//! Chromium and Playwright, with which the tests use the web console.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::node::Node;
use crate::{apt, broker, console, install, process, workspace, wrapper};

/// Variable with the path of Playwright, which runs tests of `web` in Chromium.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_PLAYWRIGHT";
/// Variable with the path of another browser based on Chromium.
const BROWSER: &str = "ROCKBOT_CHROMIUM";
/// Names of the browser, in Debian, Ubuntu, and the packages of Google.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Installs the packages of `web` and Chromium if needed, and returns the path of Playwright.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let chromium = chromium(may_install)?;
    let node = Node::find(may_install)?;
    install_packages(&node)?;
    let playwright = workspace::root().join("web/node_modules/@playwright/test/cli.js");
    let program = workspace::peers_folder()?.join("playwright");
    let browser = format!("{BROWSER}={}", chromium.display());
    let words = [Path::new("env"), Path::new(&browser), &node.executable()?, &playwright];
    wrapper::write(&program, &words)?;
    Ok(program)
}

/// Installs the pinned packages of `web`, unless an earlier run did.
pub(crate) fn install_packages(node: &Node) -> Result<()> {
    let folder = workspace::root().join("web");
    let pinned = folder.join("package-lock.json");
    let content =
        fs::read_to_string(&pinned).with_context(|| format!("cannot read {}", pinned.display()))?;
    install::once(&folder.join("node_modules"), &content, || {
        console::progress("web", "installing the packages of web/package-lock.json");
        let log = workspace::peers_folder()?.join("web.install.log");
        let mut command = node.npm();
        command.args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder);
        process::run_installer(command.env("PATH", node.search_path()?), &log)
            .context("the packages of the web console cannot be installed from npm")
    })
}

/// Finds Chromium, or installs Debian's package with `may_install`.
fn chromium(may_install: bool) -> Result<PathBuf> {
    if let Some(path) = env::var_os(BROWSER).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("{BROWSER} names no program: {}", path.display());
        }
        return Ok(path);
    }
    let find = || NAMES.into_iter().find_map(broker::find_program);
    if find().is_none() && !(may_install && apt::install(&["chromium"])?) {
        bail!("Chromium is not installed: apt-get install chromium, or set {BROWSER} to its path");
    }
    find().context("Chromium is installed but not on PATH")
}
