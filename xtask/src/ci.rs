//! `cargo xtask ci`: everything that must hold before a change lands, cheapest first.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{
    broker_users, cargo_deny, configuration, observability, process, say, test, workspace,
};

/// Runs the steps one after the other and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    step("format", || process::run(workspace::cargo().args(["fmt", "--all", "--check"])))?;
    step("configuration", configuration::check)?;
    step("lints", || {
        process::run(
            workspace::cargo()
                .args(["clippy", "--workspace", "--all-targets", "--locked"])
                .args(["--", "-D", "warnings"]),
        )
    })?;
    step("documentation", || {
        process::run(
            workspace::cargo()
                .args(["doc", "--workspace", "--no-deps", "--locked"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })?;
    step("users of the broker", broker_users::check)?;
    step("dependency rules", || {
        // A fence may name a crate that does not use its gate today.
        let checks = ["check", "-A", "unused-wrapper", "bans", "licenses", "sources"];
        process::run(cargo_deny::command()?.args(checks))
    })?;
    step("alerts and dashboards", observability::check)?;
    step("security advisories", advisories)?;
    say::heading(format_args!("test, after {} s", start.elapsed().as_secs()));
    // Last, so that the closing line of the test runner is the last line of the whole run.
    test::run(&test::Options::default()).context("the step `test` failed")
}

/// A known vulnerability in a dependency is told and does not fail the run: the database changes
/// by the day and may be out of reach, and neither says anything about the change at hand.
fn advisories() -> Result<()> {
    let outcome = process::run(cargo_deny::command()?.args(["check", "advisories"]));
    process::check_interrupt()?;
    if let Err(error) = outcome {
        say::progress("advisories", format_args!("{error:#}; not fatal, look at the lines above"));
    }
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    say::heading(name);
    let start = Instant::now();
    work().with_context(|| format!("the step `{name}` failed"))?;
    say::progress("ci", format_args!("{name}: {:.1} s", start.elapsed().as_secs_f64()));
    Ok(())
}
