//! A private RabbitMQ node for the tests and for manual use.

use anyhow::{Result, bail, ensure};

use crate::broker::{self, HOW_TO_GET_A_BROKER, PrivateBroker, free_port};
use crate::{apt, console, process};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The AMQP port on 127.0.0.1; a free one by default
    #[arg(long)]
    port: Option<u16>,
}

/// Starts a node on `port`. If RabbitMQ is missing, installs it when `may_install` is set.
pub(crate) fn start(port: u16, may_install: bool) -> Result<PrivateBroker> {
    if broker::find_server().is_none() && !(may_install && apt::install(&["rabbitmq-server"])?) {
        bail!("RabbitMQ is not installed: {HOW_TO_GET_A_BROKER}");
    }
    console::progress("broker", "starting a private RabbitMQ node");
    let broker = PrivateBroker::start_on(port)?;
    console::progress("broker", format_args!("listening at {}", broker.amqp_url()));
    Ok(broker)
}

/// Runs a node until Ctrl-C.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let port = match options.port {
        Some(port) => port,
        None => free_port()?,
    };
    ensure!(!broker::is_listening(port), "port {port} is in use: choose another one with --port");
    let mut broker = start(port, true)?;
    console::heading("point RockBot at it, in another terminal:");
    console::progress("broker", format_args!("export ROCKBOT_BUS__URL={}", broker.amqp_url()));
    console::progress("broker", format_args!("management: {}", broker.management_url()));
    console::progress("broker", "Ctrl-C stops it and removes its data");
    while process::check_interrupt().is_ok() {
        if !broker.is_running() {
            bail!("the node exited:\n{}", broker.log_tail());
        }
        broker::wait_before_poll();
    }
    Ok(())
}
