//! What the chart shares with others is in one place: `deploy`. The chart has links to it, and a
//! package of the chart has its files.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{answer, chart, files};
use crate::{say, workspace};

/// Folders of the chart, what they are elsewhere, and how their files end.
const SHARED: [(&str, &str, &str); 3] = [
    ("files/scripts", "deploy/kubernetes/scripts", "yaml"),
    ("files/rules", "deploy/observability/prometheus/rules", "yaml"),
    ("files/dashboards", "deploy/observability/grafana/dashboards", "json"),
];

/// Packages the chart, and compares.
pub(super) fn check(helm: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    answer(Command::new(helm).arg("package").arg(chart()).arg("--destination").arg(folder.path()))?;
    let version = env!("CARGO_PKG_VERSION");
    let package = folder.path().join(format!("rockbot-{version}.tgz"));
    ensure!(
        package.is_file(),
        "the version in helm/rockbot/Chart.yaml is not that of the workspace, {version}"
    );
    let read = fs::read_to_string(chart().join("Chart.yaml"))?;
    ensure!(
        read.lines().any(|line| line == format!("appVersion: {version}")),
        "appVersion in helm/rockbot/Chart.yaml is not the version of the workspace, {version}"
    );
    answer(Command::new("tar").arg("-xzf").arg(&package).arg("-C").arg(folder.path()))?;
    let packed = folder.path().join("rockbot");
    let mut compared = 0;
    for (ours, theirs, end) in SHARED {
        let source = workspace::root().join(theirs);
        let link = chart().join(ours);
        let target = fs::canonicalize(&link).with_context(|| format!("{ours} leads nowhere"))?;
        ensure!(target == fs::canonicalize(&source)?, "{ours} is not a link to {theirs}");
        let sources = files(&source, end)?;
        ensure!(!sources.is_empty(), "{theirs} has no file for the chart");
        let copies = files(&packed.join(ours), end)?;
        ensure!(copies.len() == sources.len(), "the package has not every file of {theirs}");
        for (copy, source) in copies.iter().zip(&sources) {
            let same =
                copy.file_name() == source.file_name() && fs::read(copy)? == fs::read(source)?;
            ensure!(same, "the package has {} otherwise", source.display());
            compared += 1;
        }
    }
    say::progress("chart", format_args!("{compared} files are those of deploy"));
    Ok(())
}
