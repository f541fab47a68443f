//! Servers of versions that are not installed on this machine, provided by a script.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::broker::wait_before_poll;
use crate::services::Variables;
use crate::{broker, console, process};

/// Variable with the path of the script. `SCRIPT up SUITE [--postgres]` starts RabbitMQ, and PostgreSQL,
/// of a Debian suite and prints `export NAME=VALUE` lines. `SCRIPT ctl SUITE` runs its rabbitmqctl,
/// `SCRIPT run SUITE COMMAND` runs a command with the programs of that RabbitMQ on `PATH`, and
/// `SCRIPT down SUITE` stops all. `ctl` fails if the broker does not run.
const SCRIPT: &str = "ROCKBOT_TEST_SERVERS_SCRIPT";
/// Debian suites, and their versions of RabbitMQ and PostgreSQL. The last suite has the newest releases.
const SUITES: [Suite; 2] = [
    Suite { name: "trixie", broker: Some("4.0"), postgres: "17" },
    Suite { name: NEWEST, broker: None, postgres: "18" },
];
const NEWEST: &str = "sid";

/// Time limit of `SCRIPT up`. The first start of a suite downloads it.
const UP_LIMIT: Duration = Duration::from_secs(600);
/// Time limit of `SCRIPT ctl`.
const CTL_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for other runs on this machine to stop using the servers of a suite.
const LOCK_LIMIT: Duration = Duration::from_secs(1200);

/// A Debian suite.
struct Suite {
    name: &'static str,
    /// `None` if its version changes.
    broker: Option<&'static str>,
    postgres: &'static str,
}

/// Running servers of a Debian suite, used by one run of a machine at a time. Dropping them stops them, unless they
/// were started by something else.
pub(crate) struct NewerServers {
    script: PathBuf,
    suite: &'static str,
    variables: Variables,
    /// Set if this run started the servers, or an earlier run that was killed.
    is_owner: bool,
    /// Locked while this run uses the servers.
    _lock: File,
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

    /// Starts the newest broker of the script, without other servers, and returns it with its version. Returns
    /// `None` without a script.
    pub(crate) fn start_newest_broker() -> Result<Option<(Self, String)>> {
        let Some(script) = std::env::var_os(SCRIPT).filter(|script| !script.is_empty()) else {
            return Ok(None);
        };
        let newest = Self::up(script.into(), NEWEST, true, false)?;
        let version = newest.broker_version()?;
        Ok(Some((newest, version)))
    }

    /// Returns the version of the broker. Fails if it does not run.
    fn broker_version(&self) -> Result<String> {
        self.call(&["ctl", self.suite, "version"], CTL_LIMIT)
    }

    fn up(script: PathBuf, suite: &'static str, broker: bool, postgres: bool) -> Result<Self> {
        ensure!(script.is_file(), "{SCRIPT} is not the path of a file: {}", script.display());
        let record = record(suite);
        let lock = lock(suite, &record)?;
        let mut servers =
            Self { script, suite, variables: Vec::new(), is_owner: false, _lock: lock };
        let ran_before = servers.broker_version().is_ok();
        process::check_interrupt()?;
        console::progress(
            "servers",
            format_args!("starting servers of Debian's {suite}; the first time takes some minutes"),
        );
        // A failed start can leave processes.
        servers.is_owner = !ran_before;
        let arguments = ["up", suite, "--postgres"];
        let exports = servers.call(&arguments[..if postgres { 3 } else { 2 }], UP_LIMIT)?;
        if ran_before {
            // Each start has other ports.
            servers.is_owner = fs::read_to_string(&record).is_ok_and(|started| started == exports);
        } else {
            fs::write(&record, &exports)
                .with_context(|| format!("cannot write {}", record.display()))?;
        }
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

    /// Runs the script within a time limit and returns its trimmed standard output.
    fn call(&self, arguments: &[&str], limit: Duration) -> Result<String> {
        let mut command = Command::new("bash");
        command.arg(&self.script).args(arguments);
        Ok(process::run_captured(&mut command, limit)?.trim().to_owned())
    }
}

impl Drop for NewerServers {
    fn drop(&mut self) {
        if !self.is_owner {
            return;
        }
        let mut down = Command::new("bash");
        // Runs after an interrupt too. Background processes of the script may keep its standard error open.
        down.arg(&self.script).args(["down", self.suite]).stderr(Stdio::inherit());
        if process::stdout(&mut down).is_none() {
            let script = self.script.display();
            console::progress(
                "servers",
                format_args!("cannot stop the servers: `{script} down {}` failed", self.suite),
            );
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

/// Returns the path of the file that is locked by the run that uses the servers of a suite. It contains the output of
/// `SCRIPT up` of the last run that started them.
fn record(suite: &str) -> PathBuf {
    std::env::temp_dir().join(format!("rockbot-servers-{suite}.lock"))
}

/// Waits until no other run on this machine uses the servers of the suite.
fn lock(suite: &str, record: &Path) -> Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(record);
    let file = file.with_context(|| format!("cannot open {}", record.display()))?;
    let deadline = Instant::now() + LOCK_LIMIT;
    let mut is_reported = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", record.display()));
            }
        }
        ensure!(
            Instant::now() < deadline,
            "another run on this machine used the servers of Debian's {suite} for {LOCK_LIMIT:?}; try again after it"
        );
        process::check_interrupt()?;
        if !is_reported {
            console::progress(
                "servers",
                format_args!("waiting for another run that uses those of Debian's {suite}"),
            );
            is_reported = true;
        }
        wait_before_poll();
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
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::{NewerServers, SUITES, is_version, record};

    /// A script that writes its verbs to a file. Its broker runs if there is the file `running`.
    const STAND_IN: &str = r#"
folder=$(dirname "$0")
echo "$1" >> "$folder/verbs"
case $1 in
    ctl) [ -e "$folder/running" ] && echo 4.3.0 ;;
    up) echo export ROCKBOT_TEST_AMQP_URL=amqp://host
        echo export ROCKBOT_TEST_AMQP_MANAGEMENT_URL=http://host ;;
esac
"#;

    /// Writes the script and returns its path.
    fn stand_in(folder: &Path) -> PathBuf {
        let script = folder.join("servers.sh");
        fs::write(&script, STAND_IN).unwrap();
        script
    }

    /// Starts and stops the servers of a suite, and returns the verbs that the script was called with.
    fn verbs(folder: &Path, suite: &'static str) -> String {
        let servers = NewerServers::up(stand_in(folder), suite, true, false).unwrap();
        assert_eq!(servers.variables()[0], ("ROCKBOT_TEST_AMQP_URL", "amqp://host".to_owned()));
        drop(servers);
        let verbs = fs::read_to_string(folder.join("verbs")).unwrap();
        fs::remove_file(folder.join("verbs")).unwrap();
        verbs.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns a name of a suite that no other process uses.
    fn own_suite(name: &str) -> &'static str {
        format!("test-{name}-{}", std::process::id()).leak()
    }

    #[test]
    fn started_servers_are_stopped_and_running_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (started, running) = (own_suite("started"), own_suite("running"));
        assert_eq!(verbs(folder.path(), started), "ctl up down");
        fs::write(folder.path().join("running"), "").unwrap();
        assert_eq!(verbs(folder.path(), running), "ctl up");
        assert_eq!(verbs(folder.path(), started), "ctl up down", "left by a killed run");
        for suite in [started, running] {
            fs::remove_file(record(suite)).unwrap();
        }
    }

    #[test]
    fn servers_of_a_failed_start_are_stopped() {
        let suite = own_suite("missing");
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("servers.sh");
        let text = "echo \"$1\" >> \"$(dirname \"$0\")/verbs\"\nexit 1\n";
        fs::write(&script, text).unwrap();
        let error = NewerServers::up(script, suite, true, false).err().unwrap();
        assert!(error.to_string().contains(&format!("up {suite}` failed")), "{error}");
        let verbs = fs::read_to_string(folder.path().join("verbs")).unwrap();
        assert_eq!(verbs, "ctl\nup\ndown\n");
        fs::remove_file(record(suite)).unwrap();
    }

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
