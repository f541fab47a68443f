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
/// Debian suites and their major version of PostgreSQL.
const SUITES: [(&str, &str); 2] = [("trixie", "17"), ("sid", "18")];

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
        for (suite, suite_postgres) in SUITES {
            if postgres.is_some_and(|version| version != suite_postgres) {
                continue;
            }
            let servers = Self::up(script.clone(), suite, broker.is_some(), postgres.is_some())?;
            let version = servers.call(&["ctl", suite, "version"])?;
            if broker.is_none_or(|wanted| is_version(Some(&version), wanted)) {
                console::progress("servers", format_args!("{wanted}, from Debian's {suite}"));
                return Ok(Some(servers));
            }
            console::progress("servers", format_args!("{suite} has RabbitMQ {version}"));
        }
        bail!("no Debian suite of {} has {wanted}", script.display())
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
    use super::is_version;

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
