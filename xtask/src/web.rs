//! `cargo xtask web`: checks the sources of the web console, and that the committed files are built from them.

use std::process::Command;

use anyhow::Result;

use crate::{browser, console, node::Node, process, workspace};

/// Filter of the test that makes the pictures.
const PICTURES: &str = "test(console::pictures_show_the_real_programs)";

/// Arguments of the task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Write the built files to crates/gateway/assets first
    #[arg(long)]
    accept: bool,
    /// Test the page in Chromium too, against a gateway made of Node, with its speed
    #[arg(long)]
    browser: bool,
    /// Write the pictures of the documentation first, of the programs with a broker
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
        write_pictures()?;
    }
    run(&["run", "check"])?;
    // One of them compares the committed files with a new build.
    run(&["run", "test:unit"])?;
    if options.browser {
        process::run_quietly(page_tests()?.current_dir(&folder), &log)?;
    }
    Ok(())
}

/// Runs the test that makes the pictures, with its services.
fn write_pictures() -> Result<()> {
    console::progress("web", "pictures of the programs, in Chromium");
    let mut test = workspace::cargo();
    test.args(["xtask", "test", "--", "-p", "rockbot-tests", "-E", PICTURES]);
    process::run(test.env("ROCKBOT_CONSOLE_PICTURES", "1"))
}

/// Returns the command that runs the page in Chromium, against a gateway made of Node.
fn page_tests() -> Result<Command> {
    let playwright = browser::install(true)?;
    console::progress("web", "the page in Chromium");
    let mut command = Command::new(playwright);
    command.args(["test", "--project=page"]);
    Ok(command)
}
