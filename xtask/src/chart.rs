//! `cargo xtask chart`: the Helm chart makes the objects that it should, and refuses bad values.
//!
//! Values that must work are in `helm/examples` and `helm/tests/values`; what they make is kept in
//! `helm/tests/snapshots`. Values that must be refused are in `helm/tests/refused`, each with a first
//! line that says with what words.

mod calls;
mod cluster;
mod objects;
mod one_source;
mod values_table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use crate::{broker, process, python, say, workspace};

/// Names the programs where they are not on the path.
const HELM: &str = "ROCKBOT_HELM";
const KUBECTL: &str = "ROCKBOT_KUBECTL";

/// The schemas of the Kubernetes API, with the program that holds objects against them.
const VALIDATE: &str = "kubernetes-validate==1.37.0";
/// The oldest and the newest that it has.
const KUBERNETES: [&str; 2] = ["1.25", "1.37"];

/// Kinds of operators, which the schemas do not have.
const OF_OPERATORS: [&str; 6] = [
    "Cluster",
    "PrometheusRule",
    "RabbitmqCluster",
    "ScaledObject",
    "ServiceMonitor",
    "TriggerAuthentication",
];

/// What to do beside the checks that need no cluster.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Write the snapshots, and the table of values in the chart's README, anew
    #[arg(long)]
    accept: bool,
    /// Install, test, upgrade, roll back and uninstall on the cluster of KUBECONFIG. It must have, or
    /// be able to fetch, the images of the chart
    #[arg(long)]
    cluster: bool,
    /// Values for the cluster, on top of those of the trial
    #[arg(long, value_name = "FILE", requires = "cluster")]
    values: Vec<PathBuf>,
}

/// Makes the checks, cheapest first.
pub(crate) fn run(options: &Options) -> Result<()> {
    let helm = program("helm", HELM)?;
    let cases = cases()?;
    one_source::check(&helm)?;
    values_table::check(options.accept)?;
    lint(&helm, &cases)?;
    refused(&helm)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    for case in &cases {
        let rendered = rendered(&helm, &case.values)
            .with_context(|| format!("the values {} do not work", case.values.display()))?;
        objects::check_fences(&rendered).with_context(|| format!("values {}", case.name))?;
        snapshot(&case.name, &rendered, options.accept)?;
        fs::write(folder.path().join(format!("{}.yaml", case.name)), &rendered)?;
    }
    say::progress("chart", format_args!("{} cases are as they were", cases.len()));
    against_schemas(folder.path(), &cases)?;
    if options.cluster {
        let kubectl = program("kubectl", KUBECTL)?;
        cluster::run(&helm, &kubectl, &options.values)?;
    }
    Ok(())
}

/// Values that must work.
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
    ensure!(!cases.is_empty(), "there are no values to try in helm/examples and helm/tests/values");
    Ok(cases)
}

fn chart() -> PathBuf {
    workspace::root().join("helm").join("rockbot")
}

/// The files of a folder whose names end so, in order.
fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == end) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A program from the variable or the path.
fn program(name: &str, variable: &str) -> Result<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.filter(|path| path.is_file()).or_else(|| broker::find_program(name)).with_context(|| {
        format!(
            "there is no {name} here: install it (https://helm.sh/docs/intro/install, \
             https://kubernetes.io/docs/tasks/tools), or name it with {variable}"
        )
    })
}

/// Runs a program to its end; what it says is for whoever looks at it.
fn ask(command: &mut Command) -> Result<Output> {
    process::check_interrupt()?;
    let name = command.get_program().to_string_lossy().into_owned();
    command.output().with_context(|| format!("cannot start {name}"))
}

/// What it prints, or an error with what it said.
fn answer(command: &mut Command) -> Result<String> {
    let output = ask(command)?;
    if !output.status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let (said, complained) = (text(&output.stdout), complaints(&output.stderr));
        bail!("`{}` failed:\n{said}{complained}", words.join(" "));
    }
    Ok(text(&output.stdout))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Without helm's words about the links in the chart, which are there on purpose.
fn complaints(stderr: &[u8]) -> String {
    let lines = text(stderr);
    let lines = lines.lines().filter(|line| !line.contains("found symbolic link in path"));
    lines.collect::<Vec<_>>().join("\n")
}

fn lint(helm: &Path, cases: &[Case]) -> Result<()> {
    answer(Command::new(helm).args(["lint", "--strict", "--quiet"]).arg(chart()))?;
    for case in cases {
        let mut command = Command::new(helm);
        command.args(["lint", "--strict", "--quiet"]).arg(chart());
        answer(command.arg("--values").arg(&case.values))?;
    }
    say::progress("chart", "helm lint --strict finds nothing");
    Ok(())
}

/// As release and namespace `rockbot`, which is what the examples are written for.
fn template(helm: &Path, values: &Path) -> Command {
    let mut command = Command::new(helm);
    command.args(["template", "rockbot"]).arg(chart());
    command.args(["--namespace", "rockbot", "--values"]).arg(values);
    command
}

fn rendered(helm: &Path, values: &Path) -> Result<String> {
    answer(&mut template(helm, values))
}

fn refused(helm: &Path) -> Result<()> {
    let bad = files(&workspace::root().join("helm/tests/refused"), "yaml")?;
    ensure!(!bad.is_empty(), "there are no bad values to try in helm/tests/refused");
    for values in &bad {
        let shown = values.display();
        let first = fs::read_to_string(values)?;
        let first = first.lines().next().unwrap_or_default();
        let words = first
            .strip_prefix("# refused: ")
            .with_context(|| format!("{shown} does not begin with `# refused: ` and the words"))?;
        let output = ask(&mut template(helm, values))?;
        let said = complaints(&output.stderr);
        ensure!(!output.status.success(), "{shown} is not refused");
        ensure!(said.contains(words), "{shown} is refused without the words {words:?}:\n{said}");
    }
    say::progress("chart", format_args!("{} bad values are refused", bad.len()));
    Ok(())
}

/// Compares what the chart makes with what it made when somebody last looked, or keeps it.
fn snapshot(name: &str, rendered: &str, accept: bool) -> Result<()> {
    let file = workspace::root().join("helm/tests/snapshots").join(format!("{name}.yaml"));
    let now = objects::essential(rendered);
    if accept {
        return fs::write(&file, now).with_context(|| format!("cannot write {}", file.display()));
    }
    let then = fs::read_to_string(&file).unwrap_or_default();
    if then == now {
        return Ok(());
    }
    let at = then.lines().zip(now.lines()).position(|(then, now)| then != now);
    let at = at.unwrap_or_else(|| then.lines().count().min(now.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
    bail!(
        "the chart makes something else of {name} than {} line {} says:\n  it was  {}\n  it is   {}\n\
         Look at it, and keep it with `cargo xtask chart --accept`",
        file.display(),
        at + 1,
        line(&then),
        line(&now)
    )
}

/// Holds every object against the schemas of the Kubernetes API, unknown keys included.
fn against_schemas(folder: &Path, cases: &[Case]) -> Result<()> {
    let environment = workspace::tools_folder()?.join("kubernetes-validate");
    python::environment(&environment, &[VALIDATE], python::Needs::Dependencies, true)?;
    let validate = python::program(&environment, "kubernetes-validate");
    let misspelt = folder.join("misspelt.txt");
    fs::write(&misspelt, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {}\n")?;
    for version in KUBERNETES {
        let hold = |file: &Path| {
            let mut command = Command::new(&validate);
            command.args(["--strict", "--kubernetes-version", version]).arg(file);
            command
        };
        let found = ask(&mut hold(&misspelt))?;
        ensure!(!found.status.success(), "kubernetes-validate takes a misspelt key of {version}");
        for case in cases {
            let said = answer(&mut hold(&folder.join(format!("{}.yaml", case.name))))?;
            let unknown =
                said.lines().filter(|line| line.contains("Couldn't find schema for kind"));
            for line in unknown {
                let known = |kind: &&str| line.contains(&format!("for kind {kind} with"));
                ensure!(OF_OPERATORS.iter().any(known), "values {}: {line}", case.name);
            }
        }
    }
    say::progress(
        "chart",
        format_args!("the API of Kubernetes {} knows all", KUBERNETES.join(", ")),
    );
    Ok(())
}
