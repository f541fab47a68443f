//! `cargo xtask observability`: checks of the alerts and dashboards in `deploy/observability`.
//!
//! promtool checks the syntax and runs the alert tests. This task also checks that the processes expose
//! every used metric, and that every alert is tested and documented.

mod dashboards;
mod metrics;
mod promql;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::metrics::Metrics;
use crate::{apt, broker, console, process, workspace};

const LINT: &str = "--lint=all";
const FATAL: &str = "--lint-fatal";

/// Runs all checks and reports every problem.
pub(crate) fn check() -> Result<()> {
    let folder = workspace::root().join("deploy/observability");
    let prometheus = folder.join("prometheus");
    let operations_md = read(&workspace::root().join("docs/operations.md"))?;

    let mut problems = Vec::new();
    let rules = rules::read(&prometheus.join("rules"))?;
    let tests = rules::read_tests(&prometheus.join("tests"))?;
    let mut metrics = Metrics::read(&folder.join("metrics.txt"), &mut problems)?;
    metrics.add(Metrics::read(&folder.join("external-metrics.txt"), &mut problems)?);
    metrics.add(rules::recorded_metrics(&rules));
    rules::check(&rules, &tests, &metrics, &operations_md, &mut problems);

    let dashboards = dashboards::read(&folder.join("grafana/dashboards"))?;
    dashboards::check(&dashboards, &metrics, &mut problems);
    if !problems.is_empty() {
        bail!("alerts and dashboards have problems:\n  {}", problems.join("\n  "));
    }

    let promtool = Promtool::find(true)?;
    promtool.run(&["check", "rules", LINT, FATAL], &files(&prometheus.join("rules"), "yaml")?)?;
    promtool.run(&["check", "config", LINT, FATAL], &[prometheus.join("prometheus.yaml")])?;
    let queries = tempfile::tempdir().context("cannot create a folder for the queries")?;
    let as_rules = dashboards::write_as_rules(&dashboards, queries.path())?;
    promtool
        .run(&["check", "rules", "--lint=none"], &as_rules)
        .context("a query of a dashboard is not PromQL")?;
    promtool.run(&["test", "rules"], &files(&prometheus.join("tests"), "yaml")?)?;

    console::progress(
        "observability",
        format_args!(
            "{} alerts with tests; {} queries of {} dashboards",
            rules::alerts(&rules).count(),
            dashboards.iter().map(|dashboard| dashboard.queries().count()).sum::<usize>(),
            dashboards.len(),
        ),
    );
    Ok(())
}

/// Ensures that promtool is available. Installs it with `may_install` if it is missing.
pub(crate) fn install_promtool(may_install: bool) -> Result<()> {
    Promtool::find(may_install).map(drop)
}

/// The installed promtool.
struct Promtool(PathBuf);

impl Promtool {
    /// Finds promtool, or installs Debian's package with `may_install`.
    fn find(may_install: bool) -> Result<Self> {
        let find = || broker::find_program("promtool");
        if find().is_none() && !(may_install && apt::install(&["prometheus"])?) {
            bail!("promtool is not installed: apt-get install prometheus");
        }
        find().map(Self).context("promtool is installed but not on PATH")
    }

    /// Runs promtool for each file separately, so that an error shows the output for one file only.
    fn run(&self, arguments: &[&str], files: &[PathBuf]) -> Result<()> {
        let log = workspace::tools_folder()?.join("promtool.log");
        for file in files {
            process::run_quietly(Command::new(&self.0).args(arguments).arg(file), &log)?;
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Returns the files of a folder with an extension, sorted by name. Fails if it has no such file.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("{} has no .{extension} file", folder.display());
    }
    files.sort();
    Ok(files)
}

/// Returns the path of a file relative to the workspace, for messages.
fn relative_name(file: &Path) -> String {
    file.strip_prefix(workspace::root()).unwrap_or(file).display().to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn shipped_alerts_and_dashboards_pass_all_checks() {
        super::check().unwrap();
    }
}
