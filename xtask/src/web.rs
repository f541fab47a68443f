//! `cargo xtask web`: checks the sources of the web console, and that the committed files are built from them.

use std::{env, ffi::OsString};

use anyhow::{Context, Result};

use crate::{console, node::Node, process, workspace};

/// Arguments of the task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Write the built files to crates/gateway/assets first
    #[arg(long)]
    accept: bool,
    /// Test the page in Chromium too, against a gateway made of Node
    #[arg(long)]
    browser: bool,
}

/// Installs the pinned packages, and runs the checks.
pub(crate) fn run(options: &Options) -> Result<()> {
    let node = Node::find(true)?;
    let folder = workspace::root().join("web");
    let log = workspace::peers_folder()?.join("web.log");
    let run = |arguments: &[&str]| -> Result<()> {
        console::progress("web", format_args!("npm {}", arguments.join(" ")));
        let mut command = node.npm();
        command.args(arguments).current_dir(&folder).env("PATH", search_path(&node)?);
        process::run_quietly(&mut command, &log)
    };
    run(&["ci", "--no-audit", "--no-fund"])?;
    if options.accept {
        run(&["run", "build"])?;
    }
    run(&["run", "check"])?;
    // One of them compares the committed files with a new build.
    run(&["run", "test:unit"])?;
    if options.browser {
        run(&["run", "test:browser"])?;
    }
    Ok(())
}

/// Returns the search path for scripts of packages, which start `node` by its name.
fn search_path(node: &Node) -> Result<OsString> {
    let own = node.programs();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(env::split_paths(&path));
    env::join_paths(folders).context("PATH has an invalid folder")
}
