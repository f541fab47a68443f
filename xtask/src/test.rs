//! `cargo xtask test`: every test, against real services.

use anyhow::Result;

use crate::newer_servers::NewerServers;
use crate::runner::Runner;
use crate::services::{Starting, is_set};
use crate::{bubblewrap, process, say, workspace};

/// Which tests to run, and how.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Install no system package; fail and name what is missing
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
/// the tests compile, runs the tests, and stops all.
///
/// A service whose variable is set already is used as it is. The closing line of the test runner is
/// the last line printed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let runner = Runner::find(&options.runner);
    introduce(&runner);
    say::heading("build the tests, start their services");
    let may_install = !options.no_broker_install;
    let newer = NewerServers::start(options.broker.as_deref(), options.postgres.as_deref())?;
    let named = newer.as_ref().map(|newer| newer.variables().clone()).unwrap_or_default();
    let starting = Starting::new(may_install, named)?;
    bubblewrap::install(may_install)?;
    process::run(&mut runner.build())?;
    let services = starting.join()?;

    if options.runner.is_empty() {
        say::heading("examples in the documentation");
        process::run(doc_tests().envs(services.variables()))?;
    } else {
        say::progress("test", "tests were selected: examples in the documentation are not run");
    }
    say::heading("tests");
    let mut options_of_runner: &[&str] = &[];
    if options.runner.is_empty() && !in_ci() && !services.have_cluster() {
        // Reported, because what is not tested is not known to work.
        say::progress("test", "no Kubernetes cluster is named: the scripts manager is NOT tested");
        say::progress("test", "to test it: kind create cluster, then set KUBECONFIG");
        options_of_runner = runner.without_cluster();
    }
    let mut command = runner.run(options_of_runner);
    command.envs(services.variables());
    match newer {
        Some(newer) => process::run(&mut newer.wrap(&command)),
        None => process::run(&mut command),
    }
}

/// Runs the examples in the documentation.
fn doc_tests() -> std::process::Command {
    let mut command = workspace::cargo();
    command.args(["test", "--doc", "--workspace", "--locked"]);
    command
}

/// Returns whether no test may be left out.
fn in_ci() -> bool {
    is_set("CI")
}

/// Prints what a first run installs, what takes time, and how to run less.
fn introduce(runner: &Runner) {
    let line = |text: &str| say::progress("test", text);
    say::heading("every test of the workspace, against real services");
    line(
        "installs what is missing: RabbitMQ, PostgreSQL, Docker, bubblewrap (apt-get), and a model,",
    );
    line("  model servers and MCP servers (npm, PyPI), which are kept below target/");
    line("a first run compiles for 10 to 15 minutes on two cores; the tests take 5 to 10 minutes");
    line("slow: soak (80 s), a cluster of brokers, broker restarts, pods of the scripts manager");
    line("one crate:  cargo xtask test -- -p rockbot-bus");
    line("one test:   cargo xtask test -- -p rockbot-bus -E 'test(name_of_the_test)'");
    line("no service: cargo test -p rockbot-contracts");
    if !runner.is_nextest() {
        line("cargo-nextest is not installed: using cargo test, which runs the tests slower");
    }
}
