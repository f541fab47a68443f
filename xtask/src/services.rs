//! The services that the tests use, started beside the build.

use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};

use crate::broker::{free_port, pause};
use crate::{aimock, docker, mcp_peers, postgresql, process, rabbitmq, say, smollm2};

/// Names a script that provides a Kubernetes cluster: `SCRIPT up` prints `export KUBECONFIG=…`, and
/// `SCRIPT down` ends it.
const CLUSTER_SCRIPT: &str = "ROCKBOT_TEST_CLUSTER_SCRIPT";
/// Names the cluster for the tests, before `KUBECONFIG`.
const CLUSTER: &str = "ROCKBOT_TEST_KUBECONFIG";

/// Variables for the tests.
pub(crate) type Variables = Vec<(&'static str, String)>;
/// Variables for the tests, and the guard of the server that they name, if one was started.
type Service = (Variables, Option<Box<dyn Send>>);

/// Services that are being started, each in a thread.
pub(crate) struct Starting {
    starting: Vec<JoinHandle<Result<Service>>>,
    named: Variables,
}

/// Running services. Dropping them ends each.
pub(crate) struct Services(Vec<Service>);

impl Starting {
    /// Starts every service whose variable is neither among `named` nor set.
    pub(crate) fn new(may_install: bool, named: Variables) -> Result<Self> {
        let mut starting = Vec::new();
        let names: Vec<_> = named.iter().map(|(name, _)| *name).collect();

        if !names_a_cluster() && is_set(CLUSTER_SCRIPT) {
            starting.push(service(CLUSTER, &names, cluster)?);
        }
        starting.extend([
            service("ROCKBOT_TEST_AMQP_URL", &names, move || broker(may_install))?,
            service("ROCKBOT_TEST_POSTGRES_URL", &names, move || {
                let server = postgresql::start(free_port()?, may_install)?;
                Ok((vec![("ROCKBOT_TEST_POSTGRES_URL", server.url())], Some(Box::new(server))))
            })?,
            service("ROCKBOT_TEST_AIMOCK_URL", &names, move || {
                let server = aimock::start(may_install)?;
                Ok((vec![("ROCKBOT_TEST_AIMOCK_URL", server.base_url())], Some(Box::new(server))))
            })?,
            service("ROCKBOT_TEST_SMOLLM2_URL", &names, move || {
                let server = smollm2::start(free_port()?, may_install)?;
                Ok((vec![("ROCKBOT_TEST_SMOLLM2_URL", server.base_url())], Some(Box::new(server))))
            })?,
            service("ROCKBOT_TEST_DOCKER_HOST", &names, move || {
                let daemon = docker::start(may_install)?;
                let image = ("ROCKBOT_TEST_DOCKER_IMAGE", docker::IMAGE.to_owned());
                let variables = vec![("ROCKBOT_TEST_DOCKER_HOST", daemon.host()), image];
                Ok((variables, Some(Box::new(daemon))))
            })?,
            service(mcp_peers::VARIABLE, &names, move || {
                let programs = mcp_peers::install(may_install)?;
                Ok((vec![(mcp_peers::VARIABLE, programs.display().to_string())], None))
            })?,
        ]);
        Ok(Self { starting, named })
    }

    /// Waits for all of them. On an interrupt the threads are left behind: the end of this process
    /// ends them, and with them what they started.
    pub(crate) fn join(self) -> Result<Services> {
        let mut services = vec![(self.named, None)];
        for starting in self.starting {
            services.push(join(starting)?);
        }
        Ok(Services(services))
    }
}

impl Services {
    /// The variables that name them to the tests.
    pub(crate) fn variables(&self) -> Variables {
        self.0.iter().flat_map(|(variables, _)| variables.iter().cloned()).collect()
    }

    /// Returns whether the tests have a Kubernetes cluster.
    pub(crate) fn have_cluster(&self) -> bool {
        names_a_cluster() || self.variables().iter().any(|(name, _)| *name == CLUSTER)
    }
}

fn names_a_cluster() -> bool {
    is_set(CLUSTER) || is_set("KUBECONFIG")
}

/// Returns whether a variable has a value; an empty one counts as unset.
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn broker(may_install: bool) -> Result<Service> {
    let broker = rabbitmq::start(free_port()?, may_install)?;
    let variables = vec![
        ("ROCKBOT_TEST_AMQP_URL", broker.amqp_url()),
        ("ROCKBOT_TEST_AMQP_MANAGEMENT_URL", broker.management_url()),
    ];
    Ok((variables, Some(Box::new(broker))))
}

fn cluster() -> Result<Service> {
    let script = std::env::var(CLUSTER_SCRIPT)?;
    say::progress("cluster", "starting a Kubernetes cluster");
    let cluster = Cluster { script };
    let exports = match cluster.call("up") {
        Ok(exports) => exports,
        // A cluster that was killed can leave mounts behind, which prevent the next start.
        Err(_) => cluster.call("down").and_then(|_| cluster.call("up"))?,
    };
    let Some(file) = exports.lines().find_map(|line| line.strip_prefix("export KUBECONFIG="))
    else {
        bail!("{} up printed no `export KUBECONFIG=…`:\n{exports}", cluster.script)
    };
    say::progress("cluster", format_args!("ready: {file}"));
    Ok((vec![(CLUSTER, file.to_owned())], Some(Box::new(cluster))))
}

/// A cluster that a script started. Dropping it ends the cluster.
struct Cluster {
    script: String,
}

impl Cluster {
    fn call(&self, verb: &str) -> Result<String> {
        let mut command = Command::new("bash");
        // What it leaves running may keep its standard error open.
        command.arg(&self.script).arg(verb).stderr(Stdio::inherit());
        process::answer(&mut command).with_context(|| format!("{} {verb} failed", self.script))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.call("down") {
            say::progress("cluster", format_args!("cluster not stopped: {error:#}"));
        }
    }
}

/// Starts a service in a thread of its own, unless `variable` names one already.
fn service(
    variable: &'static str,
    named: &[&str],
    start: impl FnOnce() -> Result<Service> + Send + 'static,
) -> Result<JoinHandle<Result<Service>>> {
    let started = named.contains(&variable);
    let named = is_set(variable);
    std::thread::Builder::new()
        .name(variable.to_owned())
        .spawn(move || {
            if started {
                return Ok((Vec::new(), None));
            }
            if named {
                say::progress("test", format_args!("{variable} is set: using that one"));
                return Ok((Vec::new(), None));
            }
            start()
        })
        .context("cannot start a thread")
}

fn join(starting: JoinHandle<Result<Service>>) -> Result<Service> {
    while !starting.is_finished() {
        process::check_interrupt()?;
        pause();
    }
    starting
        .join()
        .map_err(|_| anyhow!("the thread that starts a service for the tests panicked"))?
}
