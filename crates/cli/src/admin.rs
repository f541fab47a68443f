//! `rockbot admin`: the broker users of a fleet, their passwords and URLs.

mod broker_users;
mod passwords;
mod secrets;

use std::path::PathBuf;

use rockbot_contracts::{AgentName, definitions::Fleet};
use rockbot_service::exit;

use crate::{
    arguments::{Admin, FleetUsers, Layout},
    failure::{Failure, OrExit, Outcome},
    print::outln,
    render,
    settings::Settings,
    work_queues,
};

pub(crate) fn run(settings: &Settings, command: Admin) -> Outcome {
    match command {
        Admin::BrokerUsers { fleet, out, passwords } => {
            let fleet = broker_fleet(settings, &fleet)?;
            let written = broker_users::write(&fleet, &out, passwords.as_deref());
            report(&written.or_exit(exit::IO)?)
        }
        Admin::Secrets { fleet, out, layout, broker, database } => {
            let fleet = broker_fleet(settings, &fleet)?;
            let written = match layout {
                Layout::Kubernetes => {
                    let broker = secrets::UrlWithoutUser::parse(&broker, &["amqp", "amqps"]);
                    let database = secrets::UrlWithoutUser::parse(&database, &["postgres"]);
                    let (broker, database) =
                        (broker.or_exit(exit::USAGE)?, database.or_exit(exit::USAGE)?);
                    secrets::write_for_kubernetes(&fleet, &out, &broker, &database)
                }
                Layout::Compose => secrets::write_for_compose(&fleet, &out),
            };
            report(&written.or_exit(exit::IO)?)
        }
        Admin::Check { fleet, dir } => {
            let fleet = broker_fleet(settings, &fleet)?;
            broker_users::check(&fleet, &dir).or_exit(exit::ANSWERED_WITH_ERROR)?;
            outln!("the broker users are up to date")?;
            Ok(exit::OK)
        }
    }
}

fn report(written: &[PathBuf]) -> Outcome {
    for file in written {
        outln!("wrote {}", render::path(file))?;
    }
    Ok(exit::OK)
}

/// Returns the fleet with the named agents and pools, or with the configured ones.
fn broker_fleet(settings: &Settings, options: &FleetUsers) -> Result<Fleet, Failure> {
    let named = options.agents.iter().map(|name| AgentName::new(name.as_str()));
    let mut agents = named.collect::<Result<Vec<_>, _>>().or_exit(exit::USAGE)?;
    if agents.is_empty() {
        agents = work_queues::configured_agents(settings)?;
    }
    let namespace = options.namespace.as_deref().unwrap_or(&settings.bus.namespace);
    let pools = if options.pools.is_empty() { &settings.fleet.pools } else { &options.pools };
    let fleet = Fleet::new(namespace, &options.vhost, agents).or_exit(exit::USAGE)?;
    Ok(fleet.with_pools(pools.iter().cloned()))
}
