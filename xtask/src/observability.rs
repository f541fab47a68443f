//! `cargo xtask observability`: the alerts and dashboards of `deploy/observability` hold together.
//!
//! promtool knows Prometheus' language and runs the alerts; what it cannot know is checked here:
//! that every metric is one that the processes expose, and that every alert is tested and explained.

mod dashboards;
mod metrics;
mod promql;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::metrics::Metrics;
use crate::{apt, broker, process, say, workspace};

const LINT: &str = "--lint=all";
const FATAL: &str = "--lint-fatal";

/// Checks all of it and tells every problem that it finds.
pub(crate) fn check() -> Result<()> {
    let folder = workspace::root().join("deploy/observability");
    let prometheus = folder.join("prometheus");
    let manual = read(&workspace::root().join("docs/operations.md"))?;

    let mut problems = Vec::new();
    let rules = rules::read(&prometheus.join("rules"))?;
    let tests = rules::read_tests(&prometheus.join("tests"))?;
    let mut metrics = Metrics::read(&folder.join("metrics.txt"), &mut problems)?;
    metrics.add(Metrics::read(&folder.join("metrics-of-others.txt"), &mut problems)?);
    metrics.add(rules::recorded(&rules));
    rules::check(&rules, &tests, &metrics, &manual, &mut problems);

    let dashboards = dashboards::read(&folder.join("grafana/dashboards"))?;
    dashboards::check(&dashboards, &metrics, &mut problems);
    if !problems.is_empty() {
        bail!("alerts and dashboards do not hold together:\n  {}", problems.join("\n  "));
    }

    let promtool = Promtool::find()?;
    promtool.ask(&["check", "rules", LINT, FATAL], &files(&prometheus.join("rules"), "yaml")?)?;
    promtool.ask(&["check", "config", LINT, FATAL], &[prometheus.join("prometheus.yaml")])?;
    let queries = tempfile::tempdir().context("cannot create a folder for the queries")?;
    let as_rules = dashboards::write_as_rules(&dashboards, queries.path())?;
    promtool
        .ask(&["check", "rules", "--lint=none"], &as_rules)
        .context("a query of a dashboard is not PromQL")?;
    promtool.ask(&["test", "rules"], &files(&prometheus.join("tests"), "yaml")?)?;

    say::progress(
        "observability",
        format_args!(
            "{} alerts, each shown to fire and to stay quiet; {} queries of {} dashboards",
            rules::alerts(&rules).count(),
            dashboards.iter().map(|dashboard| dashboard.queries().count()).sum::<usize>(),
            dashboards.len(),
        ),
    );
    Ok(())
}

/// promtool of this machine.
struct Promtool(PathBuf);

impl Promtool {
    /// Installs it from Debian's package where it is missing and we may.
    fn find() -> Result<Self> {
        let found = || broker::find_program("promtool");
        if found().is_none() && !apt::install(&["prometheus"])? {
            bail!("there is no promtool on this machine: apt-get install prometheus");
        }
        found().map(Self).context("promtool is installed and not on PATH")
    }

    /// Asks about one file after the other, so that what it says of a bad one is all that is shown.
    fn ask(&self, question: &[&str], files: &[PathBuf]) -> Result<()> {
        let log = workspace::tools_folder()?.join("promtool.log");
        for file in files {
            process::run_quietly(Command::new(&self.0).args(question).arg(file), &log)?;
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The files of a folder with that extension, in the order of their names; at least one.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|its| its == extension) {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("{} holds no .{extension} file", folder.display());
    }
    files.sort();
    Ok(files)
}

/// What a file is called in a problem.
fn name(file: &Path) -> String {
    file.strip_prefix(workspace::root()).unwrap_or(file).display().to_string()
}
