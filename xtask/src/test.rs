//! `cargo xtask test`: every test, against real neighbours.

use std::num::NonZero;
use std::process::Command;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};

use crate::broker::{free_port, pause};
use crate::{
    aimock, bubblewrap, docker, mcp_peers, postgresql, process, rabbitmq, say, smollm2, workspace,
};

/// Which tests to run, and how.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Install no system package: fail and tell what is missing
    #[arg(long)]
    no_broker_install: bool,
    /// Arguments for the test runner, for example `-- -p rockbot-bus`
    #[arg(last = true, value_name = "NEXTEST ARGS")]
    runner: Vec<String>,
}

/// Variables for the tests, and the server they point at, if it is one that runs.
type Neighbour = (Vec<(&'static str, String)>, Option<Box<dyn Send>>);
type Starting = JoinHandle<Result<Neighbour>>;

/// Starts a broker, a database, a Docker daemon and two model servers and installs MCP servers while the tests
/// compile, runs the tests, stops all.
///
/// A neighbour whose variable is set already is used as it is, and none is started. The closing
/// line of the test runner is the last line printed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let runner = Runner::find(&options.runner);
    say::heading("build the tests, start their neighbours");
    let may_install = !options.no_broker_install;
    let starting = [
        neighbour("ROCKBOT_TEST_AMQP_URL", move || broker(may_install))?,
        neighbour("ROCKBOT_TEST_POSTGRES_URL", move || {
            let server = postgresql::start(free_port()?, may_install)?;
            Ok((vec![("ROCKBOT_TEST_POSTGRES_URL", server.url())], Some(Box::new(server))))
        })?,
        neighbour("ROCKBOT_TEST_AIMOCK_URL", move || {
            let server = aimock::start(may_install)?;
            Ok((vec![("ROCKBOT_TEST_AIMOCK_URL", server.base_url())], Some(Box::new(server))))
        })?,
        neighbour("ROCKBOT_TEST_SMOLLM2_URL", move || {
            let server = smollm2::start(free_port()?, may_install)?;
            Ok((vec![("ROCKBOT_TEST_SMOLLM2_URL", server.base_url())], Some(Box::new(server))))
        })?,
        neighbour("ROCKBOT_TEST_DOCKER_HOST", move || {
            let daemon = docker::start(may_install)?;
            let image = ("ROCKBOT_TEST_DOCKER_IMAGE", docker::IMAGE.to_owned());
            let variables = vec![("ROCKBOT_TEST_DOCKER_HOST", daemon.host()), image];
            Ok((variables, Some(Box::new(daemon))))
        })?,
        neighbour(mcp_peers::VARIABLE, move || {
            let programs = mcp_peers::install(may_install)?;
            Ok((vec![(mcp_peers::VARIABLE, programs.display().to_string())], None))
        })?,
    ];
    bubblewrap::install(may_install)?;
    process::run(&mut runner.command(&["--no-run"]))?;
    let neighbours = starting.into_iter().map(join).collect::<Result<Vec<_>>>()?;
    let variables = || neighbours.iter().flat_map(|(variables, _)| variables.iter().cloned());

    if options.runner.is_empty() {
        say::heading("examples in the documentation");
        let mut command = workspace::cargo();
        process::run(command.args(["test", "--doc", "--workspace"]).envs(variables()))?;
    } else {
        say::progress("test", "a selection was asked for: examples in the documentation not run");
    }
    say::heading("tests");
    if options.runner.is_empty() && !in_ci() && !names_a_cluster() {
        // Told, because what is not tested is not known to work.
        say::progress("test", "no Kubernetes cluster is named: the scripts manager is NOT tested");
        say::progress("test", "to test it: kind create cluster, then set KUBECONFIG");
        return process::run(runner.run(runner.without_cluster()).envs(variables()));
    }
    process::run(runner.run(&[]).envs(variables()))
}

fn names_a_cluster() -> bool {
    is_set("ROCKBOT_TEST_KUBECONFIG") || is_set("KUBECONFIG")
}

/// Where nothing may be left out.
fn in_ci() -> bool {
    is_set("CI")
}

/// A variable without a value counts as none.
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn broker(may_install: bool) -> Result<Neighbour> {
    let broker = rabbitmq::start(free_port()?, may_install)?;
    let variables = vec![
        ("ROCKBOT_TEST_AMQP_URL", broker.amqp_url()),
        ("ROCKBOT_TEST_AMQP_MANAGEMENT_URL", broker.management_url()),
    ];
    Ok((variables, Some(Box::new(broker))))
}

/// Starts a neighbour in a thread of its own, unless `variable` names one already.
fn neighbour(
    variable: &'static str,
    start: impl FnOnce() -> Result<Neighbour> + Send + 'static,
) -> Result<Starting> {
    let given = std::env::var(variable).is_ok_and(|url| !url.is_empty());
    std::thread::Builder::new()
        .name(variable.to_owned())
        .spawn(move || {
            if given {
                say::progress("test", format_args!("{variable} is set: using that one"));
                return Ok((Vec::new(), None));
            }
            start()
        })
        .context("cannot start a thread")
}

/// Waits for a neighbour. On an interrupt the thread is left behind: the end of this process ends
/// it, and with it what it started.
fn join(starting: Starting) -> Result<Neighbour> {
    while !starting.is_finished() {
        process::check_interrupt()?;
        pause();
    }
    starting
        .join()
        .map_err(|_| anyhow!("the thread that starts a server for the tests panicked"))?
}

/// How many tests run at once, for nextest.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

/// The test runner of this machine with the selection of packages and tests.
struct Runner {
    words: Vec<String>,
    nextest: bool,
}

impl Runner {
    fn find(arguments: &[String]) -> Self {
        let nextest = process::answer(workspace::cargo().args(["nextest", "--version"])).is_some();
        Self { words: selection(arguments), nextest }
    }

    /// Leaves out the tests that need a cluster.
    fn without_cluster(&self) -> &'static [&'static str] {
        match self.nextest {
            true => &["-E", "not (package(rockbot-scripts-manager) & binary(it))"],
            false => &["--exclude", "rockbot-scripts-manager"],
        }
    }

    /// To run the tests.
    fn run(&self, options: &[&str]) -> Command {
        let mut command = self.command(options);
        if !is_set(TEST_THREADS) {
            // Half of them wait, for a broker, a pod or a time-out.
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            command.env(TEST_THREADS, (2 * cores).to_string());
        }
        command
    }

    /// Options go before the selection, which may hold a `--` of its own.
    fn command(&self, options: &[&str]) -> Command {
        let mut command = workspace::cargo();
        command.args(if self.nextest { &["nextest", "run"][..] } else { &["test"] });
        command.args(options).args(&self.words);
        command
    }
}

/// The whole workspace, unless the arguments choose packages.
fn selection(arguments: &[String]) -> Vec<String> {
    let chooses = |word: &String| {
        word == "-p"
            || word == "--workspace"
            || word == "--all"
            || word.starts_with("--package")
            || (word.starts_with("-p") && !word.starts_with("--"))
    };
    let mut words = Vec::new();
    if !arguments.iter().take_while(|word| *word != "--").any(chooses) {
        words.push("--workspace".to_owned());
    }
    words.extend_from_slice(arguments);
    words
}

#[cfg(test)]
mod tests {
    use super::selection;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_whole_workspace_is_tested_unless_packages_are_chosen() {
        assert_eq!(selection(&[]), words("--workspace"));
        assert_eq!(selection(&words("a_test_name")), words("--workspace a_test_name"));
        assert_eq!(selection(&words("-p xtask name")), words("-p xtask name"));
        assert_eq!(selection(&words("--package=xtask")), words("--package=xtask"));
        assert_eq!(selection(&words("name -- -p")), words("--workspace name -- -p"));
    }
}
