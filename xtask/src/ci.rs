//! `cargo xtask ci`: the checks of continuous integration.
//!
//! The tests are compiled once. Steps without a compiler run in parallel to that. Lints, documentation
//! and examples run at a lower priority in parallel to the tests, which wait half of the time, and to the Compose
//! fleet after them.

use std::process::Command;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::newer_servers::NewerServers;
use crate::runner::Built;
use crate::services::{Services, Starting, Variables, is_set};
use crate::{
    bubblewrap, cargo_deny, chart, compose, console, observability, process, web, workspace,
};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run one part only; the other runs on another machine
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Check the Helm chart too; needs helm
    #[arg(long)]
    chart: bool,
    /// Run the fleet of deploy/compose too, with the programs of the tests, in a private Docker daemon;
    /// needs root and Linux
    #[arg(long)]
    compose: bool,
}

/// A group of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Format, lints, documentation, dependency rules, broker users
    Lint,
    /// Tests, and the examples in the documentation
    Test,
}

/// Runs all steps. After a failed step, parallel steps finish and no later step starts.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        process::stdout(workspace::cargo().args(["nextest", "--version"])).is_some(),
        "cargo-nextest is missing: cargo install --locked cargo-nextest"
    );
    let start = Instant::now();
    let summary = if options.part == Some(Part::Lint) {
        lint()?;
        None
    } else {
        Some(test(options, start)?)
    };
    console::heading(format_args!("all checks passed after {} s", start.elapsed().as_secs()));
    if let Some(summary) = summary {
        console::line(format_args!("{summary}"));
    }
    Ok(())
}

/// Runs the steps other than tests.
fn lint() -> Result<()> {
    check_format()?;
    step("dependency rules", dependency_rules)?;
    step("security advisories", advisories)?;
    lints_and_documentation()
}

fn check_format() -> Result<()> {
    console::heading("format");
    step("format", || process::run(workspace::cargo().args(["fmt", "--all", "--check"])))
}

/// Runs the tests and, unless a part is selected, all other steps in parallel. Returns the summary of
/// the test runner.
fn test(options: &Options, start: Instant) -> Result<String> {
    let tests_only = options.part == Some(Part::Test);
    if !tests_only {
        check_format()?;
    }
    console::heading("build the tests, start their services");
    let starting = Starting::new(true, Vec::new())?;
    let built = std::thread::scope(|scope| {
        let mut running = vec![
            spawn_step(scope, "system packages", system_packages)?,
            spawn_step(scope, "chart", || chart_if(options.chart))?,
            spawn_step(scope, "base images", || base_images_if(options.compose))?,
            spawn_step(scope, "web console", || web::run(&web::Options::default()))?,
        ];
        if !tests_only {
            running.extend([
                spawn_step(scope, "dependency rules", dependency_rules)?,
                spawn_step(scope, "security advisories", advisories)?,
            ]);
        }
        let built = step("build", Built::new);
        combine(running.into_iter().map(join))?;
        built
    })?;
    let services = starting.join()?;
    let variables = services.variables();
    if is_set("CI") {
        ensure!(services.have_cluster(), "no Kubernetes cluster is configured: set KUBECONFIG");
    }

    console::heading(format_args!("test, after {} s", start.elapsed().as_secs()));
    std::thread::scope(|scope| {
        let compiled = spawn_step(scope, "compiled steps", || {
            let lints = if tests_only { Ok(()) } else { lints_and_documentation() };
            combine([lints, examples(&variables)])
        })?;
        // The containers of Compose would take the cores from the tests.
        let tests = step("tests", || tests(&built, &services)).and_then(|summary| {
            step("tests on the newest broker", || newest_broker(&built, &services))?;
            step("compose", || compose_if(options.compose, &built)).map(|()| summary)
        });
        let others = join(compiled);
        match (tests, others) {
            (Ok(summary), Ok(())) => Ok(summary),
            (Err(tests), Err(others)) => Err(anyhow!("{tests:#}\n{others:#}")),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    })
}

fn system_packages() -> Result<()> {
    bubblewrap::install(true)?;
    observability::install_promtool(true)
}

fn tests(built: &Built, services: &Services) -> Result<String> {
    let mut command = built.run();
    command.envs(services.variables());
    if !services.have_cluster() {
        console::progress("test", "no Kubernetes cluster: the scripts manager is NOT tested");
        command.args(["-E", "not (package(rockbot-scripts-manager) & binary(it))"]);
    }
    with_summary(&mut command)
}

/// The tests that run on the newest RabbitMQ too: the adapter, and processes where brokers differ.
const NEWEST_BROKER_TESTS: &str = "package(rockbot-bus-rabbitmq) | \
     (package(rockbot-tests) & test(/^(held_calls|workers)::/))";

/// Runs tests on the newest RabbitMQ, if a script provides it, and prints their summary. A broker that cannot be
/// provided does not fail the run, because its release and its download do not depend on the change under test.
fn newest_broker(built: &Built, services: &Services) -> Result<()> {
    let provided = NewerServers::start_newest_broker();
    process::check_interrupt()?;
    let (newest, version) = match provided {
        Ok(Some(newest)) => newest,
        Ok(None) => {
            console::progress(
                "test",
                "no script with newer servers: the newest broker is NOT tested",
            );
            return Ok(());
        }
        Err(error) => {
            console::progress(
                "test",
                format_args!("the newest broker is NOT tested: {error:#}; not fatal"),
            );
            return Ok(());
        }
    };
    console::heading(format_args!("tests on RabbitMQ {version}"));
    let mut command = built.run();
    command.args(["-E", NEWEST_BROKER_TESTS]);
    command.envs(services.variables()).envs(newest.variables().iter().cloned());
    let summary = with_summary(&mut newest.wrap(&command))?;
    console::progress("ci", format_args!("RabbitMQ {version}: {}", summary.trim_start()));
    Ok(())
}

/// Runs the steps that need the compiler sequentially, because they share the target folder.
fn lints_and_documentation() -> Result<()> {
    let mut lints = low_priority_cargo();
    lints.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    let mut documentation = low_priority_cargo();
    documentation.args(["doc", "--workspace", "--no-deps", "--locked"]);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    combine([logged("lints", &mut lints), logged("documentation", &mut documentation)])
}

fn examples(variables: &Variables) -> Result<()> {
    let mut examples = low_priority_cargo();
    examples.args(["test", "--doc", "--workspace", "--locked"]);
    logged("examples", examples.envs(variables.iter().cloned()))
}

fn logged(name: &str, command: &mut Command) -> Result<()> {
    let log = workspace::peers_folder()?.join(format!("ci-{name}.log"));
    step(name, || process::run_logged(command, &log))
}

/// Returns Cargo at a low priority, so that tests get the cores.
fn low_priority_cargo() -> Command {
    let cargo = workspace::cargo();
    let mut command = Command::new("nice");
    command.args(["-n", "15"]).arg(cargo.get_program()).current_dir(workspace::root());
    command
}

fn dependency_rules() -> Result<()> {
    // A rule may list a wrapper crate that does not use the dependency yet.
    let checks = ["check", "-A", "unused-wrapper", "bans", "licenses", "sources"];
    process::run(cargo_deny::command()?.args(checks))
}

/// Reports known vulnerabilities of dependencies without failing the run, because the database changes
/// daily and may be unreachable, independently of the change under test.
fn advisories() -> Result<()> {
    let outcome = process::run(cargo_deny::command()?.args(["check", "advisories"]));
    process::check_interrupt()?;
    if let Err(error) = outcome {
        console::progress("advisories", format_args!("{error:#}; not fatal, see the lines above"));
    }
    Ok(())
}

fn chart_if(wanted: bool) -> Result<()> {
    if wanted { chart::run(&chart::Options::default()) } else { Ok(()) }
}

fn base_images_if(wanted: bool) -> Result<()> {
    if wanted { compose::prepare() } else { Ok(()) }
}

fn compose_if(wanted: bool, built: &Built) -> Result<()> {
    if wanted { compose::run_programs(&built.programs) } else { Ok(()) }
}

/// Runs the test runner, forwards its standard error, and returns its summary line. An error has the lines from
/// the summary on, which name the failed tests.
fn with_summary(command: &mut Command) -> Result<String> {
    let mut end = Vec::new();
    let outcome = process::run_lines(command, |line| {
        if !end.is_empty() || line.trim_start().starts_with("Summary") {
            end.push(line.trim_end().to_owned());
        }
    });
    match outcome {
        Ok(()) => Ok(end.into_iter().next().unwrap_or_default()),
        Err(error) if error.is::<process::Interrupted>() => Err(error),
        Err(error) => Err(anyhow!("{error:#}\n{}", end.join("\n"))),
    }
}

fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work().with_context(|| format!("the step `{name}` failed"))?;
    console::progress("ci", format_args!("{name}: {:.1} s", start.elapsed().as_secs_f64()));
    Ok(done)
}

/// Runs a step in a new thread.
fn spawn_step<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &'static str,
    work: impl FnOnce() -> Result<()> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<()>>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn_scoped(scope, move || step(name, work)).context("cannot start a thread")
}

fn join(running: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    running.join().map_err(|_| anyhow!("a step panicked"))?
}

/// Combines the errors of all outcomes into one.
fn combine(outcomes: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    if errors.iter().any(anyhow::Error::is::<process::Interrupted>) {
        return Err(process::Interrupted.into());
    }
    if errors.is_empty() {
        return Ok(());
    }
    let texts: Vec<_> = errors.iter().map(|error| format!("{error:#}")).collect();
    bail!("{}", texts.join("\n"))
}
