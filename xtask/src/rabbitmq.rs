//! A private RabbitMQ node for the tests, and for trying things by hand.

use anyhow::{Result, bail, ensure};

use crate::broker::{self, HOW_TO_GET_A_BROKER, PrivateBroker, free_port};
use crate::{apt, process, say};

/// How to run a broker by hand.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The AMQP port on 127.0.0.1; a free one when left out
    #[arg(long)]
    port: Option<u16>,
}

/// Starts a node on `port`. With `may_install`, RabbitMQ is installed if it is missing and this
/// machine lets us.
pub(crate) fn start(port: u16, may_install: bool) -> Result<PrivateBroker> {
    if broker::find_server().is_none() && !(may_install && apt::install(&["rabbitmq-server"])?) {
        bail!("there is no RabbitMQ on this machine: {HOW_TO_GET_A_BROKER}");
    }
    say::progress("broker", "starting a private RabbitMQ node");
    let broker = PrivateBroker::start_on(port)?;
    say::progress("broker", format_args!("answers at {}", broker.amqp_url()));
    Ok(broker)
}

/// Runs a node until Ctrl-C.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let port = match options.port {
        Some(port) => port,
        None => free_port()?,
    };
    ensure!(!broker::accepts(port), "port {port} is taken: choose another one with --port");
    let mut broker = start(port, true)?;
    say::heading("point RockBot at it, in another terminal:");
    say::progress("broker", format_args!("export ROCKBOT_BUS__URL={}", broker.amqp_url()));
    say::progress("broker", format_args!("management: {}", broker.management_url()));
    say::progress("broker", "Ctrl-C ends it and removes its data");
    while process::check_interrupt().is_ok() {
        if !broker.is_running() {
            bail!("the node ended by itself:\n{}", broker.log_tail());
        }
        broker::pause();
    }
    Ok(())
}
