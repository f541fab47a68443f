//! The services of the tests, started in parallel to the build.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};

use crate::broker::{free_port, wait_before_poll};
use crate::{
    a2a_clients, aimock, apt, article_pages, browser, console, cron_peers, docker, faketime,
    mcp_peers, openai_clients, openapi_peers, postgresql, process, rabbitmq, smollm2, uml,
    worker_examples,
};

/// Variable with the path of a script that provides a Kubernetes cluster: `SCRIPT up` prints
/// `export KUBECONFIG=…`, and `SCRIPT down` stops the cluster.
const CLUSTER_SCRIPT: &str = "ROCKBOT_TEST_CLUSTER_SCRIPT";
/// Variable with the kubeconfig of the tests, which takes precedence over `KUBECONFIG`.
const CLUSTER: &str = "ROCKBOT_TEST_KUBECONFIG";

/// Environment variables for the tests.
pub(crate) type Variables = Vec<(&'static str, String)>;
/// Environment variables of a service, and the guard of its server if one was started.
type Service = (Variables, Option<Box<dyn Send>>);

/// Installs files and returns their path; the argument permits downloads.
type Install = fn(bool) -> Result<PathBuf>;

/// Files of the tests that need no server, by the variables of their paths.
const INSTALLED: [(&str, Install); 10] = [
    (mcp_peers::VARIABLE, mcp_peers::install),
    (a2a_clients::VARIABLE, a2a_clients::install),
    (openai_clients::VARIABLE, openai_clients::install),
    (browser::VARIABLE, browser::install),
    (openapi_peers::VARIABLE, openapi_peers::install),
    (article_pages::VARIABLE, article_pages::install),
    (cron_peers::VARIABLE, cron_peers::install),
    (faketime::VARIABLE, faketime::find_or_install),
    (worker_examples::VARIABLE, worker_examples::install),
    (uml::VARIABLE, uml::find_or_install),
];

/// Services that are starting, each in a thread.
pub(crate) struct Starting {
    starting: Vec<JoinHandle<Result<Service>>>,
    provided: Variables,
}

/// Running services. Dropping them stops each.
pub(crate) struct Services(Vec<Service>);

impl Starting {
    /// Starts every service whose variable is neither among `provided` nor set.
    pub(crate) fn new(may_install: bool, provided: Variables) -> Result<Self> {
        let mut starting = Vec::new();
        let names: Vec<_> = provided.iter().map(|(name, _)| *name).collect();

        if !has_configured_cluster() && is_set(CLUSTER_SCRIPT) {
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
        ]);
        for (variable, install) in INSTALLED {
            starting.push(service(variable, &names, move || {
                Ok((vec![(variable, install(may_install)?.display().to_string())], None))
            })?);
        }
        Ok(Self { starting, provided })
    }

    /// Waits for all services. After an interrupt the threads are not joined; the exit of this process
    /// stops them and their servers.
    pub(crate) fn join(self) -> Result<Services> {
        let mut services = vec![(self.provided, None)];
        for starting in self.starting {
            services.push(join(starting)?);
        }
        Ok(Services(services))
    }
}

impl Services {
    /// Returns the environment variables for the tests.
    pub(crate) fn variables(&self) -> Variables {
        self.0.iter().flat_map(|(variables, _)| variables.iter().cloned()).collect()
    }

    /// Returns whether the tests have a Kubernetes cluster.
    pub(crate) fn have_cluster(&self) -> bool {
        has_configured_cluster() || self.variables().iter().any(|(name, _)| *name == CLUSTER)
    }
}

fn has_configured_cluster() -> bool {
    is_set(CLUSTER) || is_set("KUBECONFIG")
}

/// Returns whether a variable has a value. An empty variable counts as unset.
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
    console::progress("cluster", "starting a Kubernetes cluster");
    let cluster = Cluster { script };
    // The script may install packages too.
    let installing = apt::exclusive();
    let exports = match cluster.call("up") {
        Ok(exports) => exports,
        // A killed cluster can leave mounts, which prevent the next start.
        Err(_) => cluster.call("down").and_then(|_| cluster.call("up"))?,
    };
    drop(installing);
    let Some(file) = exports.lines().find_map(|line| line.strip_prefix("export KUBECONFIG="))
    else {
        bail!("{} up printed no `export KUBECONFIG=…`:\n{exports}", cluster.script)
    };
    console::progress("cluster", format_args!("ready: {file}"));
    Ok((vec![(CLUSTER, file.to_owned())], Some(Box::new(cluster))))
}

/// A cluster started by a script. Dropping it stops the cluster.
struct Cluster {
    script: String,
}

impl Cluster {
    fn call(&self, verb: &str) -> Result<String> {
        let mut command = Command::new("bash");
        // Background processes of the script may keep its standard error open.
        command.arg(&self.script).arg(verb).stderr(Stdio::inherit());
        process::stdout(&mut command).with_context(|| format!("{} {verb} failed", self.script))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.call("down") {
            console::progress("cluster", format_args!("cannot stop the cluster: {error:#}"));
        }
    }
}

/// Starts a service in a new thread, unless it is provided or its variable is set.
fn service(
    variable: &'static str,
    provided: &[&str],
    start: impl FnOnce() -> Result<Service> + Send + 'static,
) -> Result<JoinHandle<Result<Service>>> {
    let is_provided = provided.contains(&variable);
    let is_configured = is_set(variable);
    std::thread::Builder::new()
        .name(variable.to_owned())
        .spawn(move || {
            if is_provided {
                return Ok((Vec::new(), None));
            }
            if is_configured {
                console::progress("test", format_args!("{variable} is set: using that service"));
                return Ok((Vec::new(), None));
            }
            start()
        })
        .context("cannot start a thread")
}

fn join(starting: JoinHandle<Result<Service>>) -> Result<Service> {
    while !starting.is_finished() {
        process::check_interrupt()?;
        wait_before_poll();
    }
    starting
        .join()
        .map_err(|_| anyhow!("the thread that starts a service for the tests panicked"))?
}
