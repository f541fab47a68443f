//! A private PostgreSQL server for the tests, and for trying things by hand.

use anyhow::{Result, bail, ensure};

use crate::broker::{accepts, free_port, pause};
use crate::postgres::{self, HOW_TO_GET_POSTGRESQL, PrivatePostgres};
use crate::{apt, process, say};

/// How to run a database by hand.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The port on 127.0.0.1; a free one when left out
    #[arg(long)]
    port: Option<u16>,
}

/// Starts a server on `port`. With `may_install`, PostgreSQL is installed if it is missing and this
/// machine lets us.
pub(crate) fn start(port: u16, may_install: bool) -> Result<PrivatePostgres> {
    if postgres::find_programs().is_none() && !(may_install && apt::install(&["postgresql"])?) {
        bail!("there is no PostgreSQL on this machine: {HOW_TO_GET_POSTGRESQL}");
    }
    say::progress("postgres", "starting a private PostgreSQL server");
    let server = PrivatePostgres::start_on(port)?;
    say::progress("postgres", format_args!("answers on 127.0.0.1:{port}"));
    Ok(server)
}

/// Runs a server until Ctrl-C.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let port = match options.port {
        Some(port) => port,
        None => free_port()?,
    };
    ensure!(!accepts(port), "port {port} is taken: choose another one with --port");
    let mut server = start(port, true)?;
    say::heading("point the tests at it, in another terminal:");
    let url = server.url();
    say::progress("postgres", format_args!("export ROCKBOT_TEST_POSTGRES_URL={url}"));
    say::progress("postgres", "Ctrl-C ends it and removes its data");
    while process::check_interrupt().is_ok() {
        if !server.is_running() {
            bail!("the server ended by itself:\n{}", server.log_tail());
        }
        pause();
    }
    Ok(())
}
