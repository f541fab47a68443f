//! `cargo xtask web`: checks the sources of the web console, and that the committed files are built from them.

use std::process::Command;

use anyhow::Result;

use crate::{browser, console, node::Node, process, workspace};

/// Arguments of the task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Write the built files to crates/gateway/assets first
    #[arg(long)]
    accept: bool,
    /// Test the page in Chromium too, against a gateway made of Node, with its speed
    #[arg(long)]
    browser: bool,
    /// Write the pictures of the documentation first
    #[arg(long)]
    screenshots: bool,
}

/// Installs the pinned packages, and runs the checks.
pub(crate) fn run(options: &Options) -> Result<()> {
    let node = Node::find(true)?;
    let folder = workspace::root().join("web");
    let log = workspace::peers_folder()?.join("web.log");
    let run = |arguments: &[&str]| -> Result<()> {
        console::progress("web", format_args!("npm {}", arguments.join(" ")));
        let mut command = node.npm();
        command.args(arguments).current_dir(&folder).env("PATH", node.search_path()?);
        process::run_quietly(&mut command, &log)
    };
    browser::install_packages(&node)?;
    if options.accept {
        run(&["run", "build"])?;
    }
    if options.screenshots {
        let mut pictures = page_tests()?;
        pictures.arg("--grep=@screenshots");
        process::run_quietly(pictures.current_dir(&folder), &log)?;
    }
    run(&["run", "check"])?;
    // One of them compares the committed files with a new build.
    run(&["run", "test:unit"])?;
    if options.browser {
        let mut tests = page_tests()?;
        tests.arg("--grep-invert=@screenshots");
        process::run_quietly(tests.current_dir(&folder), &log)?;
    }
    Ok(())
}

/// Returns the command that runs the page in Chromium, against a gateway made of Node.
fn page_tests() -> Result<Command> {
    let playwright = browser::install(true)?;
    console::progress("web", "the page in Chromium");
    let mut command = Command::new(playwright);
    command.args(["test", "--project=page"]);
    Ok(command)
}
