//! `cargo xtask chart`: checks of the Helm chart.
//!
//! Valid values are in `helm/examples` and `helm/tests/values`; the objects rendered from them are in
//! `helm/tests/snapshots`. Invalid values are in `helm/tests/refused`, each with a first line that
//! contains the expected error. Values in `helm/tests/notes` name the expected notes.

mod calls;
mod cluster;
mod notes;
mod objects;
mod pool_isolation;
mod pools;
mod shared_files;
mod values_table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use crate::{broker, console, process, python, workspace};

/// Variables with the paths of programs that are not on `PATH`.
const HELM: &str = "ROCKBOT_HELM";
const KUBECTL: &str = "ROCKBOT_KUBECTL";

/// A validator with the schemas of the Kubernetes API.
const VALIDATE: &str = "kubernetes-validate==1.37.0";
/// The oldest and the newest API version that the validator has.
const KUBERNETES: [&str; 2] = ["1.25", "1.37"];

/// Custom resource kinds, for which the validator has no schemas.
const CUSTOM_KINDS: [&str; 6] = [
    "Cluster",
    "PrometheusRule",
    "RabbitmqCluster",
    "ScaledObject",
    "ServiceMonitor",
    "TriggerAuthentication",
];

/// Arguments of the task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Update the snapshots and the table of values in the chart's README
    #[arg(long)]
    accept: bool,
    /// Install, test, upgrade, roll back and uninstall on the cluster of KUBECONFIG, which must have
    /// or be able to pull the images of the chart
    #[arg(long)]
    cluster: bool,
    /// Values for the cluster, in addition to the trial values
    #[arg(long, value_name = "FILE", requires = "cluster")]
    values: Vec<PathBuf>,
}

/// Runs the checks, cheapest first.
pub(crate) fn run(options: &Options) -> Result<()> {
    let helm = program("helm", HELM)?;
    let cases = cases()?;
    shared_files::check(&helm)?;
    values_table::check(options.accept)?;
    lint(&helm, &cases)?;
    check_refused(&helm)?;
    notes::check(&helm)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    for case in &cases {
        let rendered = rendered(&helm, &case.values)
            .with_context(|| format!("cannot render the chart with {}", case.values.display()))?;
        objects::check_hardening(&rendered)
            .and_then(|()| pools::check(&rendered))
            .with_context(|| format!("values {}", case.name))?;
        snapshot(&case.name, &rendered, options.accept)?;
        fs::write(folder.path().join(format!("{}.yaml", case.name)), &rendered)?;
    }
    console::progress("chart", format_args!("{} snapshots match", cases.len()));
    check_schemas(folder.path(), &cases)?;
    if options.cluster {
        let kubectl = program("kubectl", KUBECTL)?;
        cluster::run(&helm, &kubectl, &options.values)?;
    }
    Ok(())
}

/// Values that the chart must accept.
struct Case {
    name: String,
    values: PathBuf,
}

fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for folder in ["examples", "tests/values"] {
        for values in files(&workspace::root().join("helm").join(folder), "yaml")? {
            let name = values.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            cases.push(Case { name, values });
        }
    }
    ensure!(!cases.is_empty(), "no values in helm/examples and helm/tests/values");
    Ok(cases)
}

fn chart() -> PathBuf {
    workspace::root().join("helm").join("rockbot")
}

/// Returns the files of a folder with an extension, sorted by path.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Finds a program by its variable or on `PATH`.
fn program(name: &str, variable: &str) -> Result<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.filter(|path| path.is_file()).or_else(|| broker::find_program(name)).with_context(|| {
        format!(
            "{name} is not installed: install it (https://helm.sh/docs/intro/install, \
             https://kubernetes.io/docs/tasks/tools), or set {variable} to its path"
        )
    })
}

/// Runs a program and returns its output, also on failure.
fn output(command: &mut Command) -> Result<Output> {
    process::check_interrupt()?;
    let name = command.get_program().to_string_lossy().into_owned();
    command.output().with_context(|| format!("cannot start {name}"))
}

/// Runs a program and returns its standard output, or an error with all of its output.
fn stdout(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|one| one.to_string_lossy()).collect();
        let (stdout, stderr) = (text(&output.stdout), error_text(&output.stderr));
        bail!("`{}` failed:\n{stdout}{stderr}", arguments.join(" "));
    }
    Ok(text(&output.stdout))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the text without helm's warnings about symbolic links, which the chart has on purpose.
fn error_text(stderr: &[u8]) -> String {
    let lines = text(stderr);
    let lines = lines.lines().filter(|line| !line.contains("found symbolic link in path"));
    lines.collect::<Vec<_>>().join("\n")
}

fn lint(helm: &Path, cases: &[Case]) -> Result<()> {
    stdout(Command::new(helm).args(["lint", "--strict", "--quiet"]).arg(chart()))?;
    for case in cases {
        let mut command = Command::new(helm);
        command.args(["lint", "--strict", "--quiet"]).arg(chart());
        stdout(command.arg("--values").arg(&case.values))?;
    }
    console::progress("chart", "helm lint --strict passed");
    Ok(())
}

/// Returns `helm template` for release and namespace `rockbot`, which the examples assume.
fn template(helm: &Path, values: &Path) -> Command {
    template_of(helm, &chart(), values)
}

fn template_of(helm: &Path, chart: &Path, values: &Path) -> Command {
    let mut command = Command::new(helm);
    command.args(["template", "rockbot"]).arg(chart);
    command.args(["--namespace", "rockbot", "--values"]).arg(values);
    command
}

fn rendered(helm: &Path, values: &Path) -> Result<String> {
    stdout(&mut template(helm, values))
}

fn check_refused(helm: &Path) -> Result<()> {
    let invalid = files(&workspace::root().join("helm/tests/refused"), "yaml")?;
    ensure!(!invalid.is_empty(), "no values in helm/tests/refused");
    for values in &invalid {
        let path = values.display();
        let first = fs::read_to_string(values)?;
        let first = first.lines().next().unwrap_or_default();
        let expected = first
            .strip_prefix("# refused: ")
            .with_context(|| format!("{path} does not begin with `# refused: ` and an error"))?;
        let output = output(&mut template(helm, values))?;
        let stderr = error_text(&output.stderr);
        ensure!(!output.status.success(), "{path} is not refused");
        ensure!(stderr.contains(expected), "{path} is refused without {expected:?}:\n{stderr}");
    }
    console::progress("chart", format_args!("{} invalid values are refused", invalid.len()));
    Ok(())
}

/// Compares the rendered chart with its snapshot, or updates the snapshot.
fn snapshot(name: &str, rendered: &str, accept: bool) -> Result<()> {
    let file = workspace::root().join("helm/tests/snapshots").join(format!("{name}.yaml"));
    let actual = objects::normalized(rendered);
    if accept {
        return fs::write(&file, actual)
            .with_context(|| format!("cannot write {}", file.display()));
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    if expected == actual {
        return Ok(());
    }
    let index = expected.lines().zip(actual.lines()).position(|(one, other)| one != other);
    let index = index.unwrap_or_else(|| expected.lines().count().min(actual.lines().count()));
    let line = |text: &str| text.lines().nth(index).unwrap_or("(end)").to_owned();
    bail!(
        "the chart rendered with {name} differs from {}, line {}:\n  expected  {}\n  actual    {}\n\
         Review the difference, and accept it with `cargo xtask chart --accept`",
        file.display(),
        index + 1,
        line(&expected),
        line(&actual)
    )
}

/// Validates every object against the schemas of the Kubernetes API; unknown keys are errors.
fn check_schemas(folder: &Path, cases: &[Case]) -> Result<()> {
    let environment = workspace::tools_folder()?.join("kubernetes-validate");
    python::environment(&environment, &[VALIDATE], python::Dependencies::Install, true)?;
    let validate = python::program(&environment, "kubernetes-validate");
    let misspelled = folder.join("misspelled.txt");
    fs::write(&misspelled, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {}\n")?;
    for version in KUBERNETES {
        let validation = |file: &Path| {
            let mut command = Command::new(&validate);
            command.args(["--strict", "--kubernetes-version", version]).arg(file);
            command
        };
        let result = output(&mut validation(&misspelled))?;
        ensure!(
            !result.status.success(),
            "kubernetes-validate accepts a misspelled key for {version}"
        );
        for case in cases {
            let report = stdout(&mut validation(&folder.join(format!("{}.yaml", case.name))))?;
            let unknown =
                report.lines().filter(|line| line.contains("Couldn't find schema for kind"));
            for line in unknown {
                let is_custom = |kind: &&str| line.contains(&format!("for kind {kind} with"));
                ensure!(CUSTOM_KINDS.iter().any(is_custom), "values {}: {line}", case.name);
            }
        }
    }
    console::progress(
        "chart",
        format_args!("all objects are valid for Kubernetes {}", KUBERNETES.join(", ")),
    );
    Ok(())
}
