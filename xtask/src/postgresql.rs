//! A private PostgreSQL server for the tests and for manual use.

use anyhow::{Result, bail, ensure};

use crate::broker::{free_port, is_listening, wait_before_poll};
use crate::postgres::{self, HOW_TO_GET_POSTGRESQL, PrivatePostgres};
use crate::{apt, console, process};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The port on 127.0.0.1; a free one by default
    #[arg(long)]
    port: Option<u16>,
}

/// Starts a server on `port`. Installs PostgreSQL with `may_install` if it is missing.
pub(crate) fn start(port: u16, may_install: bool) -> Result<PrivatePostgres> {
    if postgres::find_programs().is_none() && !(may_install && apt::install(&["postgresql"])?) {
        bail!("PostgreSQL is not installed: {HOW_TO_GET_POSTGRESQL}");
    }
    console::progress("postgres", "starting a private PostgreSQL server");
    let server = PrivatePostgres::start_on(port)?;
    console::progress("postgres", format_args!("listening on 127.0.0.1:{port}"));
    Ok(server)
}

/// Runs a server until Ctrl-C.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let port = match options.port {
        Some(port) => port,
        None => free_port()?,
    };
    ensure!(!is_listening(port), "port {port} is in use: choose another one with --port");
    let mut server = start(port, true)?;
    console::heading("point the tests at it, in another terminal:");
    let url = server.url();
    console::progress("postgres", format_args!("export ROCKBOT_TEST_POSTGRES_URL={url}"));
    console::progress("postgres", "Ctrl-C stops it and removes its data");
    while process::check_interrupt().is_ok() {
        if !server.is_running() {
            bail!("the server exited:\n{}", server.log_tail());
        }
        wait_before_poll();
    }
    Ok(())
}
