//! The example workers, with their dependencies from PyPI and npm.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::Node;
use crate::{console, install, process, python, workspace, wrapper};

/// Variable with the folder of the programs.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_WORKERS";

/// Installs the workers if needed, and returns the folder of their programs: `python` and `typescript`.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let programs = peers.join("workers");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;

    let examples = workspace::root().join("examples").join("workers");
    let python = install_python(&peers.join("worker-python"), &examples, may_install)?;
    let worker = examples.join("python").join("worker.py");
    // Without compiled files beside the sources.
    wrapper::write(&programs.join("python"), &[&python, Path::new("-B"), &worker])?;

    let node = Node::find(may_install)?;
    let folder = peers.join("worker-typescript");
    install_typescript(&node, &folder, &examples.join("typescript"))?;
    let node = node.executable()?;
    wrapper::write(&programs.join("typescript"), &[&node, &folder.join("worker.ts")])?;
    Ok(programs)
}

/// Installs the pinned packages of the Python worker, and returns its interpreter.
fn install_python(folder: &Path, examples: &Path, may_install: bool) -> Result<PathBuf> {
    let requirements = read(&examples.join("python").join("requirements.txt"))?;
    let packages: Vec<&str> = requirements.lines().map(str::trim).collect();
    python::environment(folder, &packages, python::Dependencies::Install, may_install)?;
    Ok(python::program(folder, "python"))
}

/// Installs the packages of the lock file, and copies the current sources beside them, where Node.js
/// finds the packages.
fn install_typescript(node: &Node, folder: &Path, sources: &Path) -> Result<()> {
    let files = ["package.json", "package-lock.json"];
    let content = files.map(|name| read(&sources.join(name)));
    let content = content.into_iter().collect::<Result<String>>()?;
    install::once(folder, &content, || {
        console::progress("worker-typescript", "installing the packages of its lock file");
        for name in files {
            copy(&sources.join(name), &folder.join(name))?;
        }
        let mut command = node.npm();
        command.args([
            "ci",
            "--omit=dev",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
        ]);
        process::run_installer(command.arg(folder), &folder.with_extension("install.log"))
    })?;
    let entries = fs::read_dir(sources);
    for entry in entries.with_context(|| format!("cannot read {}", sources.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ts")
            && let Some(name) = path.file_name()
        {
            copy(&path, &folder.join(name))?;
        }
    }
    Ok(())
}

/// Installs the workers and prints the variable for the tests.
pub(crate) fn run() -> Result<()> {
    let programs = install(true)?;
    console::heading("point the tests at them:");
    console::progress("worker-examples", format_args!("export {VARIABLE}={}", programs.display()));
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Copies a file, unless the copy is equal: a concurrent run may be reading it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let text = read(from)?;
    if fs::read_to_string(to).is_ok_and(|present| present == text) {
        return Ok(());
    }
    let new = to.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, to))
        .with_context(|| format!("cannot write {}", to.display()))
}
