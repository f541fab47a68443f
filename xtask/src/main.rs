//! `cargo xtask …`: development tasks of the workspace.
//!
//! Each task has one file. Shared modules: [`process`] runs interruptible programs, [`server`] runs
//! servers for the tests, [`install`] caches installations between runs.

mod a2a_clients;
mod aimock;
mod apt;
mod article_pages;
mod bench;
mod browser;
mod bubblewrap;
mod cargo_deny;
mod chaos;
mod chart;
mod ci;
mod compose;
mod configuration;
mod console;
mod cron_peers;
mod docker;
mod durable_turns;
mod e2e_suite;
mod faketime;
mod images;
mod install;
mod line_program;
mod mcp_peers;
mod mcp_servers;
mod newer_servers;
mod node;
mod observability;
mod openai_clients;
mod openapi_peers;
mod postgresql;
mod process;
mod python;
mod rabbitmq;
mod rockbot;
mod runner;
mod server;
mod services;
mod smollm2;
mod test;
mod uml;
mod web;
mod web_bench;
mod worker_examples;
mod workspace;
mod wrapper;

// Included by path: a dependency on the test kit would compile tokio and the bus before every task.
#[path = "../../crates/testkit/src/broker.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod broker;
#[cfg(test)]
#[path = "../../crates/testkit/src/documented_commands.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod documented_commands;
#[path = "../../crates/testkit/src/mcp_comparison.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod mcp_comparison;
#[path = "../../crates/testkit/src/postgres.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod postgres;
#[path = "../../crates/testkit/src/docker.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library's file; its users are the test crates")]
mod private_docker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Development tasks of the RockBot workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test against a private broker and database, a scripted and a real model server
    Test(test::Options),
    /// Run what continuous integration runs: format, lints, docs, dependency rules, tests
    Ci(ci::Options),
    /// Measure speed, as ratios, on a private RabbitMQ node
    Bench(bench::Options),
    /// Inject random faults under load and check what each call promises
    Chaos(chaos::Options),
    /// Run a private RabbitMQ node until Ctrl-C
    Broker(rabbitmq::Options),
    /// Run a private PostgreSQL server until Ctrl-C
    Postgres(postgresql::Options),
    /// Run a private Docker daemon with an image for scripts until Ctrl-C
    Docker,
    /// Build the images of all programs and print their sizes
    Images(images::Options),
    /// Check deploy/compose, or run its fleet
    Compose(compose::Options),
    /// Check that docs/configuration.md matches the commented defaults of the programs
    Configuration(configuration::Options),
    /// Serve a small language model, without a key or a GPU, until Ctrl-C
    LocalModel(smollm2::Options),
    /// Check the alert rules and dashboards in deploy/observability
    Observability,
    /// Install the MCP servers and the conformance suite that the tests use
    McpPeers,
    /// Compare MCP servers from npm and PyPI behind rockbot with the official Python client
    McpServers(mcp_servers::Options),
    /// Install the validating mock server and the OpenAPI documents that the tests use
    OpenapiPeers,
    /// Install the example workers of handler pools that the tests use
    WorkerExamples,
    /// Check the sources of the web console, and that the committed files are built from them
    Web(web::Options),
    /// Check the Helm chart: lint, snapshots, rejected values; with --cluster, on a real cluster
    Chart(chart::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = process::listen_for_interrupts().and_then(|()| match cli.task {
        Task::Test(options) => test::run(&options),
        Task::Ci(options) => ci::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Chaos(options) => chaos::run(&options),
        Task::Broker(options) => rabbitmq::serve(&options),
        Task::Postgres(options) => postgresql::serve(&options),
        Task::Docker => docker::serve(),
        Task::Images(options) => images::run(&options),
        Task::Compose(options) => compose::run(&options),
        Task::Configuration(options) => configuration::run(&options),
        Task::LocalModel(options) => smollm2::serve(&options),
        Task::Observability => observability::check(),
        Task::McpPeers => mcp_peers::run(),
        Task::McpServers(options) => mcp_servers::run(&options),
        Task::OpenapiPeers => openapi_peers::run(),
        Task::WorkerExamples => worker_examples::run(),
        Task::Web(options) => web::run(&options),
        Task::Chart(options) => chart::run(&options),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<process::Interrupted>() => ExitCode::from(130),
        Err(error) => {
            console::failure(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn documented_tasks_exist() {
        let commands = documented_commands::in_documents(workspace::root(), &["cargo xtask"]);
        assert!(commands.len() > 40, "{} commands", commands.len());
        for command in commands {
            let words = command.words.iter().map(String::as_str);
            if let Err(error) = Cli::try_parse_from(std::iter::once("cargo xtask").chain(words)) {
                let is_task = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
                assert!(is_task, "{}: {error}", command.place);
            }
        }
    }
}
