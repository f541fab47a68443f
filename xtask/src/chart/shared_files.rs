//! Files that the chart shares with `deploy`: symbolic links in the chart, copies in its package.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{chart, files, stdout};
use crate::{console, workspace};

/// Folders of the chart, the folders that they link to, and the extension of the files.
const SHARED: [(&str, &str, &str); 4] = [
    ("files/packages", "deploy/kubernetes/packages", "yaml"),
    ("files/scripts", "deploy/kubernetes/scripts", "yaml"),
    ("files/rules", "deploy/observability/prometheus/rules", "yaml"),
    ("files/dashboards", "deploy/observability/grafana/dashboards", "json"),
];

/// Packages the chart and compares the shared files.
pub(super) fn check(helm: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    stdout(Command::new(helm).arg("package").arg(chart()).arg("--destination").arg(folder.path()))?;
    let version = env!("CARGO_PKG_VERSION");
    let package = folder.path().join(format!("rockbot-{version}.tgz"));
    ensure!(
        package.is_file(),
        "the version in helm/rockbot/Chart.yaml is not that of the workspace, {version}"
    );
    let metadata = fs::read_to_string(chart().join("Chart.yaml"))?;
    ensure!(
        metadata.lines().any(|line| line == format!("appVersion: {version}")),
        "appVersion in helm/rockbot/Chart.yaml is not the version of the workspace, {version}"
    );
    stdout(Command::new("tar").arg("-xzf").arg(&package).arg("-C").arg(folder.path()))?;
    let packed = folder.path().join("rockbot");
    let mut compared = 0;
    for (link_name, source_name, extension) in SHARED {
        let source = workspace::root().join(source_name);
        let link = chart().join(link_name);
        let target = fs::canonicalize(&link)
            .with_context(|| format!("the link {link_name} has no target"))?;
        ensure!(target == fs::canonicalize(&source)?, "{link_name} is no link to {source_name}");
        let sources = files(&source, extension)?;
        ensure!(!sources.is_empty(), "{source_name} has no .{extension} file");
        let copies = files(&packed.join(link_name), extension)?;
        ensure!(copies.len() == sources.len(), "the package lacks a file of {source_name}");
        for (copy, source) in copies.iter().zip(&sources) {
            let same =
                copy.file_name() == source.file_name() && fs::read(copy)? == fs::read(source)?;
            ensure!(same, "the copy of {} in the package differs", source.display());
            compared += 1;
        }
    }
    console::progress("chart", format_args!("{compared} shared files match those of deploy"));
    Ok(())
}
