//! Servers of versions that are not installed on this machine, provided by a script.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::services::Variables;
use crate::{broker, console, process};

/// Variable with the path of the script. `SCRIPT up SUITE [--postgres]` starts RabbitMQ, and PostgreSQL,
/// of a Debian suite and prints `export NAME=VALUE` lines. `SCRIPT ctl SUITE` runs its rabbitmqctl,
/// `SCRIPT run SUITE COMMAND` runs a command with the programs of that RabbitMQ on `PATH`, and
/// `SCRIPT down SUITE` stops all.
const SCRIPT: &str = "ROCKBOT_TEST_SERVERS_SCRIPT";
/// Debian suites, and their versions of RabbitMQ and PostgreSQL. The last suite has the newest releases.
const SUITES: [Suite; 2] = [
    Suite { name: "trixie", broker: Some("4.0"), postgres: "17" },
    Suite { name: NEWEST, broker: None, postgres: "18" },
];
const NEWEST: &str = "sid";

/// A Debian suite.
struct Suite {
    name: &'static str,
    /// `None` if its version changes.
    broker: Option<&'static str>,
    postgres: &'static str,
}

/// Running servers of a Debian suite. Dropping them stops them.
pub(crate) struct NewerServers {
    script: PathBuf,
    suite: &'static str,
    variables: Variables,
}

impl NewerServers {
    /// Starts the servers that are not installed in the requested version. Returns `None` if all are.
    pub(crate) fn start(broker: Option<&str>, postgres: Option<&str>) -> Result<Option<Self>> {
        let broker = broker.filter(|version| !is_version(installed_broker().as_deref(), version));
        let postgres =
            postgres.filter(|version| !is_version(installed_postgres().as_deref(), version));
        if broker.is_none() && postgres.is_none() {
            return Ok(None);
        }
        let wanted = [("RabbitMQ", broker), ("PostgreSQL", postgres)];
        let wanted =
            wanted.iter().filter_map(|(name, version)| Some(format!("{name} {}", (*version)?)));
        let wanted = wanted.collect::<Vec<_>>().join(" and ");
        let Some(script) = std::env::var_os(SCRIPT).map(PathBuf::from) else {
            bail!(
                "{wanted} is not installed: install it, or start it elsewhere and set \
                 ROCKBOT_TEST_AMQP_URL with ROCKBOT_TEST_AMQP_MANAGEMENT_URL, or \
                 ROCKBOT_TEST_POSTGRES_URL"
            )
        };
        for suite in SUITES.into_iter().filter(|suite| suite.may_have(broker, postgres)) {
            let name = suite.name;
            let servers = Self::up(script.clone(), name, broker.is_some(), postgres.is_some())?;
            let version = servers.broker_version()?;
            if broker.is_none_or(|wanted| is_version(Some(&version), wanted)) {
                console::progress("servers", format_args!("{wanted}, from Debian's {name}"));
                return Ok(Some(servers));
            }
            console::progress("servers", format_args!("{name} has RabbitMQ {version}"));
        }
        bail!("no Debian suite of {} has {wanted}", script.display())
    }

    /// Starts the newest broker of the script, without other servers. Returns `None` without a script.
    pub(crate) fn start_newest_broker() -> Result<Option<Self>> {
        let script = std::env::var_os(SCRIPT).filter(|script| !script.is_empty());
        script.map(|script| Self::up(script.into(), NEWEST, true, false)).transpose()
    }

    /// Returns the version of the broker.
    pub(crate) fn broker_version(&self) -> Result<String> {
        self.call(&["ctl", self.suite, "version"])
    }

    fn up(script: PathBuf, suite: &'static str, broker: bool, postgres: bool) -> Result<Self> {
        console::progress("servers", format_args!("starting servers of Debian's {suite}"));
        let mut servers = Self { script, suite, variables: Vec::new() };
        let arguments = ["up", suite, "--postgres"];
        let exports = servers.call(&arguments[..if postgres { 3 } else { 2 }])?;
        let mut names = Vec::new();
        if broker {
            names.extend(["ROCKBOT_TEST_AMQP_URL", "ROCKBOT_TEST_AMQP_MANAGEMENT_URL"]);
        }
        if postgres {
            names.push("ROCKBOT_TEST_POSTGRES_URL");
        }
        for name in names {
            let prefix = format!("export {name}=");
            let value = exports.lines().find_map(|line| line.strip_prefix(&prefix));
            let value =
                value.with_context(|| format!("the script exports no {name}:\n{exports}"))?;
            servers.variables.push((name, value.to_owned()));
        }
        Ok(servers)
    }

    pub(crate) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Returns `command` in the environment of the script, so that brokers started by tests have this
    /// version too.
    pub(crate) fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("bash");
        wrapped.arg(&self.script).args(["run", self.suite]);
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped
    }

    fn call(&self, arguments: &[&str]) -> Result<String> {
        let script = self.script.display();
        ensure!(self.script.is_file(), "{SCRIPT} is not the path of a file: {script}");
        let mut command = Command::new("bash");
        // Background processes of the script may keep its standard error open.
        command.arg(&self.script).args(arguments).stderr(Stdio::inherit());
        process::stdout(&mut command)
            .with_context(|| format!("{script} {} failed", arguments.join(" ")))
    }
}

impl Drop for NewerServers {
    fn drop(&mut self) {
        if let Err(error) = self.call(&["down", self.suite]) {
            console::progress("servers", format_args!("cannot stop the servers: {error:#}"));
        }
    }
}

impl Suite {
    /// Returns `false` if the suite is known to lack one of these versions.
    fn may_have(&self, broker: Option<&str>, postgres: Option<&str>) -> bool {
        let has_broker = |wanted: &str| self.broker.is_none_or(|has| is_version(Some(wanted), has));
        broker.is_none_or(has_broker) && postgres.is_none_or(|wanted| wanted == self.postgres)
    }
}

fn installed_broker() -> Option<String> {
    process::stdout(
        Command::new(broker::find_server()?.with_file_name("rabbitmqctl")).arg("version"),
    )
}

/// Returns the version in a line such as `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn installed_postgres() -> Option<String> {
    let program = crate::postgres::find_programs()?.join("postgres");
    let line = process::stdout(Command::new(program).arg("--version"))?;
    line.split_whitespace().nth(2).map(str::to_owned)
}

/// Returns whether `found` is the version `wanted` or one of its patch releases.
fn is_version(found: Option<&str>, wanted: &str) -> bool {
    found
        .and_then(|found| found.strip_prefix(wanted))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+', '~']))
}

#[cfg(test)]
mod tests {
    use super::{SUITES, is_version};

    #[test]
    fn suite_with_another_known_version_is_skipped() {
        let names = |broker, postgres| {
            let suites = SUITES.iter().filter(|suite| suite.may_have(broker, postgres));
            suites.map(|suite| suite.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Some("4.3"), None), ["sid"]);
        assert_eq!(names(Some("4.0"), None), ["trixie", "sid"]);
        assert_eq!(names(Some("4.0.5"), Some("17")), ["trixie"]);
        assert_eq!(names(None, Some("18")), ["sid"]);
    }

    #[test]
    fn version_matches_its_patch_releases_only() {
        assert!(is_version(Some("4.3.0"), "4.3"));
        assert!(is_version(Some("4.3.0-rc.1"), "4.3.0"));
        assert!(is_version(Some("17.6"), "17"));
        assert!(!is_version(Some("4.30.1"), "4.3"));
        assert!(!is_version(Some("3.10.8"), "4.3"));
        assert!(!is_version(None, "4.3"));
    }
}
