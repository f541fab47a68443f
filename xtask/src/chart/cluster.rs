//! The chart on a real cluster: install, test, upgrade, roll back, uninstall, and a check for leftovers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::calls::{Calls, Forward};
use super::pool_isolation;
use super::{chart, error_text, output, stdout, text};
use crate::{console, process, rockbot, workspace};

const RELEASE: &str = "rockbot";
/// The namespace of the test release. The run creates it, fails if it exists, and deletes it afterwards.
const NAMESPACE: &str = "rockbot-chart-test";
/// The namespace that the chart creates for scripts.
const SCRIPTS_NAMESPACE: &str = "rockbot-chart-test-scripts";
/// Every kind that the chart creates.
const KINDS: &str = "deployments,statefulsets,pods,services,serviceaccounts,configmaps,secrets,\
                     persistentvolumeclaims,networkpolicies,roles,rolebindings,resourcequotas,\
                     limitranges";
const TIMEOUT: &str = "10m";
/// The pools of `helm/tests/cluster.yaml`.
const POOLS: [&str; 2] = ["web", "api"];

/// Runs the lifecycle of a release. The namespaces are removed in any case.
pub(super) fn run(helm: &Path, kubectl: &Path, values: &[PathBuf]) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let fleet = Fleet { helm, kubectl, values, folder: folder.path() };
    stdout(fleet.kubectl().args(["create", "namespace", NAMESPACE])).with_context(|| {
        format!("cannot create the namespace {NAMESPACE}; delete one that an earlier run left")
    })?;
    let outcome = fleet.run_lifecycle();
    if outcome.is_err() {
        fleet.print_diagnostics();
    }
    // `stdout` fails at once after an interrupt, and the namespaces must be deleted even then.
    let mut remove = fleet.kubectl();
    remove.args(["delete", "namespace", NAMESPACE, SCRIPTS_NAMESPACE]);
    remove.args(["--ignore-not-found", "--timeout=5m"]);
    let removed = remove.output().context("cannot start kubectl")?;
    outcome?;
    ensure!(
        removed.status.success(),
        "cannot delete the namespaces: {}",
        error_text(&removed.stderr)
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
    fn run_lifecycle(&self) -> Result<()> {
        self.create_secrets()?;
        self.step("install", self.release("install"))?;
        self.test()?;
        self.check_pools()?;
        self.check_user_commands()?;
        self.upgrade_under_load()?;
        self.test()?;
        let mut uninstall = self.helm();
        uninstall.args(["uninstall", RELEASE, "--wait", "--timeout", TIMEOUT]);
        self.step("uninstall", uninstall)?;
        self.check_leftovers()
    }

    fn step(&self, name: &str, mut command: Command) -> Result<()> {
        console::progress("chart", name);
        stdout(&mut command).map(|_| ()).with_context(|| format!("the step {name} failed"))
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

    /// Returns `helm install` or `helm upgrade` with the trial values and those for test clusters.
    fn release(&self, verb: &str) -> Command {
        let helm_folder = workspace::root().join("helm");
        let mut command = self.helm();
        command.args([verb, RELEASE]).arg(chart()).args(["--wait", "--timeout", TIMEOUT]);
        command.arg("--values").arg(helm_folder.join("examples/trial.yaml"));
        command.arg("--values").arg(helm_folder.join("tests/cluster.yaml"));
        for values in self.values {
            command.arg("--values").arg(values);
        }
        command
    }

    /// Returns the URL of the embedded broker for a user, through a forwarded port.
    fn broker_url(&self, forward: &Forward, user: &str) -> Result<String> {
        let passwords = fs::read_to_string(self.folder.join("passwords"))?;
        let mut users = passwords.lines().filter_map(|line| line.split_once(' '));
        let (name, password) = users
            .find(|(name, _)| name.split_once('.').is_some_and(|(_, name)| name == user))
            .with_context(|| format!("the user {user} is missing"))?;
        Ok(format!("amqp://{name}:{password}@127.0.0.1:{}/%2f", forward.port()))
    }

    fn forward_broker(&self) -> Result<Forward> {
        Forward::start(self.in_namespace(), &format!("pod/{RELEASE}-rabbitmq-0"))
    }

    /// Checks that a handler cannot read what belongs to another pool.
    fn check_pools(&self) -> Result<()> {
        console::progress("chart", "isolation of pools");
        let forward = self.forward_broker()?;
        let (caller, handler) =
            (self.broker_url(&forward, "cli")?, self.broker_url(&forward, "tool-handler")?);
        pool_isolation::check_key(&caller)?;
        pool_isolation::check_queue(&handler)?;
        pool_isolation::check_account(self.kubectl, NAMESPACE)
    }

    /// Checks commands of broker users: dead letters, calls, agents that are tools, large results, and a limit of
    /// the values.
    fn check_user_commands(&self) -> Result<()> {
        console::progress("chart", "commands of users");
        let forward = self.forward_broker()?;
        let rockbot = |user: &str, arguments: &[&str]| -> Result<Output> {
            let mut command = Command::new(workspace::program("rockbot")?);
            command.args(arguments).env("ROCKBOT_BUS__URL", self.broker_url(&forward, user)?);
            output(command.env("ROCKBOT_FLEET__POOLS", format!("{POOLS:?}")))
        };
        for (user, arguments, expected) in [
            ("operator", &["dlq", "list"][..], &["tool.invoke", "tool.invoke.pool.web"][..]),
            ("monitor", &["watch", "--json", "--for", "1"], &[]),
            ("cli", &["agents"], &["assistant", "running", "reviewer", "tool of assistant"]),
            ("cli", &["tools", "list", "--agent", "assistant"], &["agent__reviewer", "web_browse"]),
            (
                "cli",
                &["tools", "call", "bash", r#"{"command":"seq 40000"}"#],
                &[r#""handle":"out-"#],
            ),
        ] {
            let output = rockbot(user, arguments)?;
            let (shown, errors) = (text(&output.stdout), text(&output.stderr));
            let line = arguments.join(" ");
            ensure!(output.status.success(), "`rockbot {line}` failed as {user}:\n{shown}{errors}");
            for part in expected {
                let start = shown.chars().take(2_000).collect::<String>();
                ensure!(shown.contains(part), "`rockbot {line}` does not show {part}:\n{start}");
            }
        }
        // The time limit of bash in cluster.yaml.
        let limited = rockbot("cli", &["tools", "call", "bash", r#"{"command":"sleep 50"}"#])?;
        let errors = text(&limited.stderr);
        ensure!(limited.status.code() == Some(75), "bash has no time limit:\n{errors}");
        Ok(())
    }

    /// Upgrades and rolls back while calls are made. Each replaces every pod except those of the broker and the
    /// database. The upgrade also replaces a tool of the pool `api` by another one.
    fn upgrade_under_load(&self) -> Result<()> {
        let forward = self.forward_broker()?;
        let url = self.broker_url(&forward, "cli")?;
        let unnamed = Calls::start(&url, "list_files", "tool.invoke")?;
        let pool = Calls::start(&url, "kept", "tool.invoke.pool.api")?;
        let mut upgrade = self.release("upgrade");
        upgrade.arg("--values").arg(workspace::root().join("helm/tests/cluster-upgrade.yaml"));
        self.step("upgrade", upgrade)?;
        self.check_handlers("2")?;
        Calls::start(&url, "added", "tool.invoke.pool.api")?.finish()?;
        let mut rollback = self.helm();
        rollback.args(["rollback", RELEASE, "1", "--wait", "--timeout", TIMEOUT]);
        self.step("rollback", rollback)?;
        self.check_handlers("1")?;
        unnamed.finish()?;
        pool.finish()
    }

    /// Creates the secrets that the chart requires, for broker users and the database, and the script of
    /// the scripted model.
    fn create_secrets(&self) -> Result<()> {
        rockbot::write_chart_secrets(&POOLS, self.folder)?;
        for name in ["broker", "store"] {
            let mut secret = self.in_namespace();
            secret.args(["create", "secret", "generic", &format!("rockbot-{name}")]);
            let folder = self.folder.join(name);
            stdout(secret.arg(format!("--from-file={}", folder.display())))?;
        }
        let mut key = self.in_namespace();
        key.args(["create", "secret", "generic", "web-keys"]);
        stdout(key.arg(format!("--from-literal=brave={}", pool_isolation::KEY)))?;
        let (tokens, token) =
            rockbot::write_gateway_token(&workspace::program("rockbot")?, self.folder)?;
        for (name, file, source) in
            [("gateway-tokens", "tokens.toml", &tokens), ("gateway-token", "token", &token)]
        {
            let mut secret = self.in_namespace();
            secret.args(["create", "secret", "generic", name]);
            stdout(secret.arg(format!("--from-file={file}={}", source.display())))?;
        }
        let script = workspace::root().join("examples/demo.toml");
        let mut model = self.in_namespace();
        model.args(["create", "configmap", "model-script"]);
        stdout(model.arg(format!("--from-file=script.toml={}", script.display()))).map(|_| ())
    }

    fn test(&self) -> Result<()> {
        console::progress("chart", "helm test");
        let mut command = self.helm();
        command.args(["test", RELEASE, "--timeout", TIMEOUT]);
        stdout(&mut command).context("helm test failed").map(|_| ())
    }

    fn check_handlers(&self, expected: &str) -> Result<()> {
        let mut command = self.in_namespace();
        command.args(["get", "deployment", &format!("{RELEASE}-tool-handler")]);
        let ready = stdout(command.args(["--output", "jsonpath={.status.readyReplicas}"]))?;
        ensure!(ready == expected, "{ready} handlers are ready instead of {expected}");
        Ok(())
    }

    fn check_leftovers(&self) -> Result<()> {
        let selector = format!("app.kubernetes.io/instance={RELEASE}");
        // helm waits for the deployments, but their pods still drain. kubectl fails if no pod is left.
        let mut wait = self.in_namespace();
        wait.args(["wait", "pods", "--for=delete", "--timeout=2m", "--selector", &selector]);
        let _ = stdout(&mut wait);
        let mut command = self.kubectl();
        command.args(["get", KINDS, "--all-namespaces", "--output", "name"]);
        let left = stdout(command.args(["--selector", &selector]))?;
        ensure!(left.trim().is_empty(), "helm uninstall left behind:\n{left}");
        let namespaces = stdout(self.kubectl().args(["get", "namespaces", "--output", "name"]))?;
        let scripts = format!("namespace/{SCRIPTS_NAMESPACE}");
        ensure!(
            !namespaces.lines().any(|one| one == scripts),
            "helm uninstall left {SCRIPTS_NAMESPACE} behind"
        );
        console::progress("chart", "helm uninstall left no objects");
        Ok(())
    }

    /// Prints pods, events and logs.
    fn print_diagnostics(&self) {
        let mut pods = self.kubectl();
        pods.args(["get", "pods", "--all-namespaces", "--output", "wide"]);
        let mut events = self.in_namespace();
        events.args(["get", "events", "--sort-by=.lastTimestamp"]);
        let mut logs = self.in_namespace();
        logs.args(["logs", "--prefix", "--tail=20", "--all-containers", "--ignore-errors"]);
        logs.args(["--selector", &format!("app.kubernetes.io/instance={RELEASE}")]);
        for mut command in [pods, events, logs] {
            if let Err(error) = process::run(&mut command) {
                console::failure(&error);
            }
        }
    }
}
