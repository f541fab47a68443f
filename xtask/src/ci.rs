//! `cargo xtask ci`: everything that must hold before a change lands.
//!
//! The tests are compiled once. Beside that run the steps that need no compiler, and beside the tests,
//! which wait half of the time, those that need it at a lower priority: lints, documentation, examples.

use std::process::Command;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::runner::Built;
use crate::services::{Services, Starting, Variables, is_set};
use crate::{
    broker_users, bubblewrap, cargo_deny, chart, compose, configuration, observability, process,
    say, workspace,
};

/// What to check beside the workspace itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run one part only, where the other runs beside it on another machine
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Check the Helm chart too; needs helm
    #[arg(long)]
    chart: bool,
    /// Run the fleet of deploy/compose too, from the programs that the tests use; in a private Docker
    /// daemon, as root on Linux
    #[arg(long)]
    compose: bool,
}

/// A part of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Format, lints, documentation, dependency rules, alerts, generated files
    Lint,
    /// Tests, and the examples in the documentation
    Test,
}

/// Runs all steps. A failed step lets those that run beside it end, and no later one start.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        process::answer(workspace::cargo().args(["nextest", "--version"])).is_some(),
        "cargo-nextest is missing: cargo install --locked cargo-nextest"
    );
    let start = Instant::now();
    let summary = if options.part == Some(Part::Lint) {
        lint()?;
        None
    } else {
        Some(test(options, start)?)
    };
    say::heading(format_args!("everything holds, after {} s", start.elapsed().as_secs()));
    if let Some(summary) = summary {
        say::line(format_args!("{summary}"));
    }
    Ok(())
}

/// Runs the steps that run no test.
fn lint() -> Result<()> {
    cheap()?;
    step("dependency rules", dependency_rules)?;
    step("alerts and dashboards", observability::check)?;
    step("security advisories", advisories)?;
    step("users of the broker", broker_users::check)?;
    lints_and_documentation()
}

fn cheap() -> Result<()> {
    say::heading("format, configuration");
    step("format", || process::run(workspace::cargo().args(["fmt", "--all", "--check"])))?;
    step("configuration", configuration::check)
}

/// Runs the tests and, unless they are a part of their own, everything else beside them. Returns the
/// summary of the test runner.
fn test(options: &Options, start: Instant) -> Result<String> {
    let alone = options.part == Some(Part::Test);
    if !alone {
        cheap()?;
    }
    say::heading("build the tests, start their services");
    let starting = Starting::new(true, Vec::new())?;
    let built = std::thread::scope(|scope| {
        let mut running = vec![
            beside(scope, "system packages", || bubblewrap::install(true))?,
            beside(scope, "chart", || chart_if(options.chart))?,
            beside(scope, "base images", || base_images_if(options.compose))?,
        ];
        if !alone {
            running.extend([
                beside(scope, "dependency rules", dependency_rules)?,
                beside(scope, "alerts and dashboards", observability::check)?,
                beside(scope, "security advisories", advisories)?,
            ]);
        }
        let built = step("build", Built::new);
        all(running.into_iter().map(join))?;
        built
    })?;
    if !alone {
        step("users of the broker", broker_users::check)?;
    }
    let services = starting.join()?;
    let variables = services.variables();
    if is_set("CI") {
        ensure!(services.have_cluster(), "no Kubernetes cluster is named: set KUBECONFIG");
    }

    say::heading(format_args!("test, after {} s", start.elapsed().as_secs()));
    std::thread::scope(|scope| {
        let running = [
            beside(scope, "compiled steps", || {
                let lints = if alone { Ok(()) } else { lints_and_documentation() };
                all([lints, examples(&variables)])
            })?,
            beside(scope, "compose", || compose_if(options.compose, &built))?,
        ];
        let tested = step("tests", || tests(&built, &services));
        let others = all(running.map(join));
        match (tested, others) {
            (Ok(summary), Ok(())) => Ok(summary),
            (Err(tests), Err(others)) => Err(anyhow!("{tests:#}\n{others:#}")),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    })
}

fn tests(built: &Built, services: &Services) -> Result<String> {
    let mut command = built.run();
    command.envs(services.variables());
    if !services.have_cluster() {
        say::progress("test", "no Kubernetes cluster is named: the scripts manager is NOT tested");
        command.args(["-E", "not (package(rockbot-scripts-manager) & binary(it))"]);
    }
    with_summary(&mut command)
}

/// Runs the steps that need the compiler, one after the other: they share the target folder.
fn lints_and_documentation() -> Result<()> {
    let mut lints = patient_cargo();
    lints.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    let mut documentation = patient_cargo();
    documentation.args(["doc", "--workspace", "--no-deps", "--locked"]);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    all([logged("lints", &mut lints), logged("documentation", &mut documentation)])
}

fn examples(variables: &Variables) -> Result<()> {
    let mut examples = patient_cargo();
    examples.args(["test", "--doc", "--workspace", "--locked"]);
    logged("examples", examples.envs(variables.iter().cloned()))
}

fn logged(name: &str, command: &mut Command) -> Result<()> {
    let log = workspace::peers_folder()?.join(format!("ci-{name}.log"));
    step(name, || process::run_logged(command, &log))
}

/// Cargo that leaves the cores to the tests.
fn patient_cargo() -> Command {
    let cargo = workspace::cargo();
    let mut command = Command::new("nice");
    command.args(["-n", "15"]).arg(cargo.get_program()).current_dir(workspace::root());
    command
}

fn dependency_rules() -> Result<()> {
    // A rule may name a crate that does not use its gate today.
    let checks = ["check", "-A", "unused-wrapper", "bans", "licenses", "sources"];
    process::run(cargo_deny::command()?.args(checks))
}

/// Reports known vulnerabilities in dependencies without failing the run: the database changes by the
/// day and may be out of reach, and neither depends on the change at hand.
fn advisories() -> Result<()> {
    let outcome = process::run(cargo_deny::command()?.args(["check", "advisories"]));
    process::check_interrupt()?;
    if let Err(error) = outcome {
        say::progress("advisories", format_args!("{error:#}; not fatal, see the lines above"));
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

/// Runs a test run, prints its standard error as it comes, and returns the line with its summary.
fn with_summary(command: &mut Command) -> Result<String> {
    let mut summary = String::new();
    process::run_lines(command, |line| {
        if line.trim_start().starts_with("Summary") {
            line.trim_end().clone_into(&mut summary);
        }
    })?;
    Ok(summary)
}

fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work().with_context(|| format!("the step `{name}` failed"))?;
    say::progress("ci", format_args!("{name}: {:.1} s", start.elapsed().as_secs_f64()));
    Ok(done)
}

/// Runs a step in a thread of its own.
fn beside<'scope>(
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

/// Fails with every error among the outcomes.
fn all(outcomes: impl IntoIterator<Item = Result<()>>) -> Result<()> {
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
