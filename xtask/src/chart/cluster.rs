//! The chart on a real cluster: install, test, upgrade, roll back, uninstall, and what is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::calls::Calls;
use super::{answer, chart, complaints};
use crate::{broker_users, process, say, workspace};

const RELEASE: &str = "rockbot";
/// Ours alone: it must not be there before, and is gone afterwards.
const NAMESPACE: &str = "rockbot-chart-test";
/// Where the chart has scripts run.
const SCRIPTS: &str = "rockbot-chart-test-scripts";
/// Every kind of which the chart makes an object.
const KINDS: &str = "deployments,statefulsets,pods,services,serviceaccounts,configmaps,secrets,\
                     persistentvolumeclaims,networkpolicies,roles,rolebindings,resourcequotas,\
                     limitranges";
const PATIENCE: &str = "10m";
/// Goes through the life of a release. Whatever comes of it, the namespaces are removed.
pub(super) fn run(helm: &Path, kubectl: &Path, values: &[PathBuf]) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let fleet = Fleet { helm, kubectl, values, folder: folder.path() };
    answer(fleet.kubectl().args(["create", "namespace", NAMESPACE])).with_context(|| {
        format!("the namespace {NAMESPACE} must be ours; delete one that was left behind")
    })?;
    let outcome = fleet.live();
    if outcome.is_err() {
        fleet.tell_of_pods();
    }
    // What helm left behind must not be in the way of the next time, also after an interrupt: so not by
    // way of `answer`, which does nothing then.
    let mut remove = fleet.kubectl();
    remove.args(["delete", "namespace", NAMESPACE, SCRIPTS, "--ignore-not-found", "--timeout=5m"]);
    let removed = remove.output().context("cannot start kubectl")?;
    outcome?;
    ensure!(
        removed.status.success(),
        "the namespaces are left behind: {}",
        complaints(&removed.stderr)
    );
    Ok(())
}

struct Fleet<'a> {
    helm: &'a Path,
    kubectl: &'a Path,
    values: &'a [PathBuf],
    folder: &'a Path,
}

impl Fleet<'_> {
    fn live(&self) -> Result<()> {
        self.make_secrets()?;
        self.step("install", self.release("install"))?;
        self.test()?;
        self.change_under_calls()?;
        self.test()?;
        let mut away = self.helm();
        away.args(["uninstall", RELEASE, "--wait", "--timeout", PATIENCE]);
        self.step("uninstall", away)?;
        self.nothing_is_left()
    }

    fn step(&self, name: &str, mut command: Command) -> Result<()> {
        say::progress("chart", name);
        answer(&mut command).map(|_| ()).with_context(|| format!("the step {name} failed"))
    }

    fn kubectl(&self) -> Command {
        Command::new(self.kubectl)
    }

    fn in_namespace(&self) -> Command {
        let mut command = self.kubectl();
        command.args(["--namespace", NAMESPACE]);
        command
    }

    fn helm(&self) -> Command {
        let mut command = Command::new(self.helm);
        command.args(["--namespace", NAMESPACE]);
        command
    }

    /// Installs or upgrades with the values of the trial and those for clusters of tests.
    fn release(&self, how: &str) -> Command {
        let helm_folder = workspace::root().join("helm");
        let mut command = self.helm();
        command.args([how, RELEASE]).arg(chart()).args(["--wait", "--timeout", PATIENCE]);
        command.arg("--values").arg(helm_folder.join("examples/trial.yaml"));
        command.arg("--values").arg(helm_folder.join("tests/cluster.yaml"));
        for values in self.values {
            command.arg("--values").arg(values);
        }
        command
    }

    /// Every pod but those of broker and database is replaced, there and back, while calls come.
    fn change_under_calls(&self) -> Result<()> {
        let passwords = fs::read_to_string(self.folder.join("passwords"))?;
        let mut users = passwords.lines().filter_map(|line| line.split_once(' '));
        let (user, password) =
            users.find(|(user, _)| user.ends_with(".cli")).context("there is no user cli")?;
        let pod = format!("pod/{RELEASE}-rabbitmq-0");
        let calls = Calls::begin(self.in_namespace(), &pod, user, password)?;
        let mut upgrade = self.release("upgrade");
        upgrade.args(["--set", "log.level=debug,toolHandler.replicas=2"]);
        self.step("upgrade", upgrade)?;
        self.has_handlers("2")?;
        let mut back = self.helm();
        back.args(["rollback", RELEASE, "1", "--wait", "--timeout", PATIENCE]);
        self.step("rollback", back)?;
        self.has_handlers("1")?;
        calls.end()
    }

    /// What an installer makes before the chart comes: users of the broker, a password of the
    /// database, and here also what a model says.
    fn make_secrets(&self) -> Result<()> {
        let file = |name: &str| self.folder.join(name);
        let passwords = file("passwords");
        let words = |path: &Path| path.to_string_lossy().into_owned();
        broker_users::write_with_passwords(&passwords, self.folder)?;

        let mut broker = self.in_namespace();
        broker.args(["create", "secret", "generic", "rockbot-broker"]);
        broker.arg(format!("--from-file={}", words(&file("definitions.json"))));
        for line in fs::read_to_string(&passwords)?.lines() {
            let (user, password) =
                line.split_once(' ').context("a line of passwords is not two words")?;
            let url = format!("amqp://{user}:{password}@{RELEASE}-rabbitmq:5672/%2f");
            fs::write(file(user), url)?;
            broker.arg(format!("--from-file={}", words(&file(user))));
        }
        answer(&mut broker)?;

        // Not a secret of anything: the database is gone with the test.
        let password = "only-for-this-test";
        let url = format!("postgres://rockbot:{password}@{RELEASE}-postgresql:5432/rockbot");
        fs::write(file("password"), password)?;
        fs::write(file("url"), url)?;
        let mut store = self.in_namespace();
        store.args(["create", "secret", "generic", "rockbot-store"]);
        for name in ["password", "url"] {
            store.arg(format!("--from-file={}", words(&file(name))));
        }
        answer(&mut store)?;

        let script = workspace::root().join("examples/demo.toml");
        let mut model = self.in_namespace();
        model.args(["create", "configmap", "model-script"]);
        answer(model.arg(format!("--from-file=script.toml={}", words(&script)))).map(|_| ())
    }

    fn test(&self) -> Result<()> {
        say::progress("chart", "helm test");
        let mut command = self.helm();
        command.args(["test", RELEASE, "--timeout", PATIENCE]);
        answer(&mut command).context("helm test failed").map(|_| ())
    }

    fn has_handlers(&self, wanted: &str) -> Result<()> {
        let mut command = self.in_namespace();
        command.args(["get", "deployment", &format!("{RELEASE}-tool-handler")]);
        let ready = answer(command.args(["--output", "jsonpath={.status.readyReplicas}"]))?;
        ensure!(ready == wanted, "{ready} handlers are ready, and not {wanted}");
        Ok(())
    }

    fn nothing_is_left(&self) -> Result<()> {
        let selector = format!("app.kubernetes.io/instance={RELEASE}");
        // helm waits for the deployments, and their pods still finish what they have. That there is
        // none any more is an error of kubectl's.
        let mut gone = self.in_namespace();
        gone.args(["wait", "pods", "--for=delete", "--timeout=2m", "--selector", &selector]);
        let _ = answer(&mut gone);
        let mut command = self.kubectl();
        command.args(["get", KINDS, "--all-namespaces", "--output", "name"]);
        let left = answer(command.args(["--selector", &selector]))?;
        ensure!(left.trim().is_empty(), "helm uninstall left behind:\n{left}");
        let namespaces = answer(self.kubectl().args(["get", "namespaces", "--output", "name"]))?;
        let scripts = format!("namespace/{SCRIPTS}");
        ensure!(
            !namespaces.lines().any(|one| one == scripts),
            "helm uninstall left {SCRIPTS} behind"
        );
        say::progress("chart", "nothing is left");
        Ok(())
    }

    /// For whoever looks at why it failed.
    fn tell_of_pods(&self) {
        let mut pods = self.kubectl();
        pods.args(["get", "pods", "--all-namespaces", "--output", "wide"]);
        let mut events = self.in_namespace();
        events.args(["get", "events", "--sort-by=.lastTimestamp"]);
        let mut logs = self.in_namespace();
        logs.args(["logs", "--prefix", "--tail=20", "--all-containers", "--ignore-errors"]);
        logs.args(["--selector", &format!("app.kubernetes.io/instance={RELEASE}")]);
        for mut look in [pods, events, logs] {
            if let Err(problem) = process::run(&mut look) {
                say::failure(&problem);
            }
        }
    }
}
