//! `cargo xtask test`: all tests, against real services.

use anyhow::Result;

use crate::newer_servers::NewerServers;
use crate::runner::Runner;
use crate::services::{Starting, is_set};
use crate::{bubblewrap, console, observability, process, workspace};

/// Arguments of the task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Do not install system packages; fail with the name of a missing one
    #[arg(long)]
    no_broker_install: bool,
    /// Test against this version of RabbitMQ, such as 3.10, 4.0 or 4.3
    #[arg(long, value_name = "VERSION")]
    broker: Option<String>,
    /// Test against this major version of PostgreSQL, such as 15 or 17
    #[arg(long, value_name = "VERSION")]
    postgres: Option<String>,
    /// Arguments for the test runner, for example `-- -p rockbot-bus`
    #[arg(last = true, value_name = "NEXTEST ARGS")]
    runner: Vec<String>,
}

/// Starts a broker, a database, a Docker daemon and two model servers and installs MCP servers while
/// the tests compile, runs the tests, and stops the services.
///
/// A service whose variable is set is not started. The last line of output is the summary of the test
/// runner.
pub(crate) fn run(options: &Options) -> Result<()> {
    let runner = Runner::find(&options.runner);
    print_introduction(&runner);
    console::heading("build the tests, start their services");
    let may_install = !options.no_broker_install;
    let newer = NewerServers::start(options.broker.as_deref(), options.postgres.as_deref())?;
    let provided = newer.as_ref().map(|newer| newer.variables().clone()).unwrap_or_default();
    let starting = Starting::new(may_install, provided)?;
    process::run(&mut runner.build())?;
    bubblewrap::install(may_install)?;
    observability::install_promtool(may_install)?;
    let services = starting.join()?;

    if options.runner.is_empty() {
        console::heading("examples in the documentation");
        process::run(doc_tests().envs(services.variables()))?;
    } else {
        console::progress("test", "tests were selected: examples in the documentation are not run");
    }
    console::heading("tests");
    let mut runner_options: &[&str] = &[];
    if options.runner.is_empty() && !in_ci() && !services.have_cluster() {
        // Not silent: a skipped crate is an untested one.
        console::progress("test", "no Kubernetes cluster: the scripts manager is NOT tested");
        console::progress("test", "to test it: kind create cluster, then set KUBECONFIG");
        runner_options = runner.without_cluster();
    }
    let mut command = runner.run(runner_options);
    command.envs(services.variables());
    match newer {
        Some(newer) => process::run(&mut newer.wrap(&command)),
        None => process::run(&mut command),
    }
}

/// Returns the command that runs the examples in the documentation.
fn doc_tests() -> std::process::Command {
    let mut command = workspace::cargo();
    command.args(["test", "--doc", "--workspace", "--locked"]);
    command
}

/// Returns whether the run is in continuous integration, which must not skip tests.
fn in_ci() -> bool {
    is_set("CI")
}

/// Prints the installations and duration of a first run, and how to run fewer tests.
fn print_introduction(runner: &Runner) {
    let line = |text: &str| console::progress("test", text);
    console::heading("every test of the workspace, against real services");
    line(
        "installs missing services: RabbitMQ, PostgreSQL, Docker, bubblewrap, Chromium, libfaketime, user-mode",
    );
    line(
        "  Linux (apt-get), a model, model servers and MCP servers (npm, PyPI), which are kept in target/",
    );
    line("a first run compiles for 10 to 15 minutes on two cores; the tests take 5 to 10 minutes");
    line("slow: soak (80 s), broker cluster, broker restarts, pods of the scripts manager");
    line("one crate:  cargo xtask test -- -p rockbot-bus");
    line("one test:   cargo xtask test -- -p rockbot-bus -E 'test(name_of_the_test)'");
    line("no service: cargo test -p rockbot-contracts");
    if !runner.is_nextest() {
        line("cargo-nextest is not installed: using cargo test, which is slower");
    }
}
