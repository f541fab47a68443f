//! `cargo xtask …`: the chores of the workspace, in Rust.
//!
//! One file a chore; what several chores share is named by what it is: a [`process`] that can be
//! interrupted, a [`server`] the tests talk to, an [`install`] kept between runs.

mod aimock;
mod apt;
mod bench;
mod broker_users;
mod bubblewrap;
mod cargo_deny;
mod chart;
mod ci;
mod compose;
mod configuration;
mod docker;
mod images;
mod install;
mod mcp_peers;
mod newer_servers;
mod node;
mod observability;
mod postgresql;
mod process;
mod python;
mod rabbitmq;
mod runner;
mod say;
mod server;
mod services;
mod smollm2;
mod test;
mod workspace;

// The chores must not wait for tokio and the bus to compile, which the test kit depends on.
#[path = "../../crates/testkit/src/broker.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod broker;
#[path = "../../crates/testkit/src/postgres.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod postgres;
#[path = "../../crates/testkit/src/docker.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod private_docker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The chores of the RockBot workspace")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Run every test against a private broker and database, a scripted and a real model server
    Test(test::Options),
    /// Run what continuous integration runs: format, lints, docs, dependency rules, tests
    Ci(ci::Options),
    /// Measure speed, as ratios, on a private RabbitMQ node
    Bench(bench::Options),
    /// Run a private RabbitMQ node until Ctrl-C
    Broker(rabbitmq::Options),
    /// Run a private PostgreSQL server until Ctrl-C
    Postgres(postgresql::Options),
    /// Run a private Docker daemon with an image for scripts until Ctrl-C
    Docker,
    /// Build the images of all programs, and tell their sizes
    Images(images::Options),
    /// Check deploy/compose, write its secrets, or run the fleet of it
    Compose(compose::Options),
    /// Check that docs/configuration.md says what the commented defaults of the programs say
    Configuration(configuration::Options),
    /// Write the users of a fleet on RabbitMQ and what each may do, into deploy/rabbitmq
    BrokerUsers(broker_users::Options),
    /// Serve a small real language model, without a key or a GPU, until Ctrl-C
    LocalModel(smollm2::Options),
    /// Check the alert rules and dashboards in deploy/observability
    Observability,
    /// Install the MCP servers and the conformance suite that the tests talk to
    McpPeers,
    /// Check the Helm chart: lint, what it makes, what it refuses; with --cluster, on a real one
    Chart(chart::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = process::listen_for_interrupts().and_then(|()| match cli.chore {
        Chore::Test(options) => test::run(&options),
        Chore::Ci(options) => ci::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Broker(options) => rabbitmq::serve(&options),
        Chore::Postgres(options) => postgresql::serve(&options),
        Chore::Docker => docker::serve(),
        Chore::Images(options) => images::run(&options),
        Chore::Compose(options) => compose::run(&options),
        Chore::Configuration(options) => configuration::run(&options),
        Chore::BrokerUsers(options) => broker_users::run(&options),
        Chore::LocalModel(options) => smollm2::serve(&options),
        Chore::Observability => observability::check(),
        Chore::McpPeers => mcp_peers::run(),
        Chore::Chart(options) => chart::run(&options),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<process::Interrupted>() => ExitCode::from(130),
        Err(error) => {
            say::failure(&error);
            ExitCode::FAILURE
        }
    }
}
