//! A running fleet of `deploy/compose` in a private Docker daemon.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::{Tool, additions, folder};
use crate::broker::{free_port, wait_before_poll};
use crate::images::engine::Engine;
use crate::rockbot::write_compose_secrets;
use crate::{console, process, workspace};

const PROJECT: &str = "rockbot-check";
/// The agent of the fleet.
const AGENT: &str = "assistant";
/// The port of the gateway in its container.
const GATEWAY_PORT: u16 = 8420;
/// A key of the service `web-handler`, which no other one may read.
pub(super) const GITHUB_TOKEN: &str = "not-a-real-token-6d1f0c";
/// Limit for Compose commands that start or stop containers, and for their health checks.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Limit for other commands.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);
/// Limit for HTTP requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A running fleet. Dropping it removes its containers and data.
pub(super) struct Fleet<'a> {
    engine: &'a Engine,
    tool: &'a Tool,
    /// The secrets, the environment file and the additions.
    files: TempDir,
    /// A second Compose file.
    additions: PathBuf,
    /// The published port of the gateway.
    gateway_port: u16,
}

impl<'a> Fleet<'a> {
    /// Starts a fleet with new secrets, which the program `rockbot` writes, and returns when every container is
    /// healthy.
    pub(super) fn up(engine: &'a Engine, tool: &'a Tool, rockbot: &Path) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("rockbot-compose-").tempdir()?;
        let secrets = files.path().join("secrets");
        write_compose_secrets(rockbot, &secrets)?;
        fs::write(secrets.join("github-token"), GITHUB_TOKEN)?;
        let gateway_port = free_port()?;
        let example = fs::read_to_string(folder().join(".env.example"))?;
        let environment = format!(
            "{example}\nCOMPOSE_PROJECT_NAME={PROJECT}\nSECRETS={}\nRABBITMQ_PORT={}\n\
             RABBITMQ_MANAGEMENT_PORT={}\nROCKBOT_TELEMETRY__OTLP_ENDPOINT=http://jaeger:4317\n\
             PROMETHEUS_PORT={}\nJAEGER_PORT={}\nGATEWAY_PORT={gateway_port}\n\
             ROCKBOT_GATEWAY__TOKENS={}\n{}",
            files.path().join("secrets").display(),
            free_port()?,
            free_port()?,
            free_port()?,
            free_port()?,
            additions::TOKENS,
            additions::environment(),
        );
        fs::write(files.path().join("env"), environment)?;
        let additions = additions::write(files.path(), rockbot)?;
        let fleet = Self { engine, tool, files, additions, gateway_port };
        // An earlier run that was killed may have left containers.
        fleet.down()?;
        console::progress("compose", "starting the fleet");
        let start = Instant::now();
        let up =
            process::run_captured(fleet.compose().args(["up", "-d", "--no-build"]), START_TIMEOUT);
        let healthy = up.and_then(|_| fleet.wait_until_healthy());
        if let Err(error) = healthy {
            fleet.print_logs();
            // The last lines of a run are read first.
            return Err(error.context(fleet.states().unwrap_or_default()));
        }
        let seconds = start.elapsed().as_secs();
        console::progress("compose", format_args!("every container is healthy after {seconds} s"));
        Ok(fleet)
    }

    /// Runs `rockbot` in the fleet and returns its standard output.
    pub(super) fn rockbot(&self, arguments: &[&str]) -> Result<String> {
        self.rockbot_in("cli", arguments)
    }

    /// Runs `rockbot` in the container of a service for people, and returns its standard output.
    pub(super) fn rockbot_in(&self, service: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.compose();
        command.args(["run", "--rm", "-T", service]).args(arguments);
        process::run_captured(&mut command, COMMAND_TIMEOUT)
    }

    /// Runs `rockbot` with the broker user of the service `user` and additional variables.
    pub(super) fn rockbot_as(
        &self,
        user: &str,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<String> {
        const URL_FILE: &str = "/run/broker-url-of-another";
        let url = self.files.path().join(format!("secrets/{user}-broker-url"));
        let mut command = self.compose();
        command.args(["run", "--rm", "-T", "--volume"]);
        command.arg(format!("{}:{URL_FILE}:ro", url.display()));
        // The standalone program knows the short option only.
        command.args(["-e", &format!("ROCKBOT_BUS__URL_FILE={URL_FILE}")]);
        for (name, value) in variables {
            command.args(["-e", &format!("{name}={value}")]);
        }
        process::run_captured(command.arg("cli").args(arguments), COMMAND_TIMEOUT)
    }

    /// Returns Docker's command line without arguments.
    pub(super) fn docker(&self) -> Command {
        self.engine.docker()
    }

    /// Returns the running services.
    pub(super) fn services(&self) -> Result<Vec<String>> {
        let names =
            process::run_captured(self.compose().args(["ps", "--services"]), COMMAND_TIMEOUT)?;
        let names = names.lines().map(str::trim).filter(|name| !name.is_empty());
        // The standalone program also lists services of inactive profiles.
        let names = names.filter(|name| self.container(name).is_ok());
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the container id of a service.
    pub(super) fn container(&self, service: &str) -> Result<String> {
        let id = process::run_captured(
            self.compose().args(["ps", "--quiet", service]),
            COMMAND_TIMEOUT,
        )?;
        let id = id.trim();
        ensure!(!id.is_empty(), "{service} has no container");
        Ok(id.to_owned())
    }

    /// Calls each face of the gateway with a token.
    pub(super) fn call_faces(&self) -> Result<()> {
        let address = self.address("gateway")?;
        let script = workspace::root().join("helm/rockbot/files/tests/gateway_faces.py");
        let mut python = Command::new("python3");
        python.arg(script).arg(format!("http://{address}:{GATEWAY_PORT}")).arg(AGENT);
        python.arg(self.files.path().join("token")).args(["console", "openai", "a2a", "mcp"]);
        python.env("GATEWAY_HOST", format!("127.0.0.1:{}", self.gateway_port));
        process::run_captured(&mut python, COMMAND_TIMEOUT).map(drop)
    }

    /// Inspects the container of a service with a template.
    pub(super) fn inspect(&self, service: &str, template: &str) -> Result<String> {
        let container = self.container(service)?;
        let mut command = self.docker();
        command.args(["inspect", "--format", template, &container]);
        Ok(process::run_captured(&mut command, COMMAND_TIMEOUT)?.trim().to_owned())
    }

    /// Starts a service of a profile.
    pub(super) fn start(&self, profile: &str, service: &str) -> Result<()> {
        let mut command = self.compose();
        command.args(["--profile", profile, "up", "-d", "--no-build", service]);
        process::run_captured(&mut command, START_TIMEOUT).map(drop)
    }

    /// Returns the body of an HTTP response of a service.
    pub(super) fn get(&self, service: &str, port: u16, path: &str) -> Result<String> {
        let address = SocketAddr::new(self.address(service)?, port);
        let mut stream = TcpStream::connect_timeout(&address, REQUEST_TIMEOUT)?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        // An HTTP/1.0 response is not chunked.
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {service}\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let (head, body) = response.split_once("\r\n\r\n").context("incomplete HTTP response")?;
        let status = head.lines().next().unwrap_or_default();
        ensure!(status.split(' ').nth(1) == Some("200"), "{service} returns {status} for {path}");
        Ok(body.to_owned())
    }

    fn address(&self, service: &str) -> Result<IpAddr> {
        let template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}";
        let addresses = self.inspect(service, template)?;
        let address = addresses.split_whitespace().next().context("a container has no address")?;
        Ok(address.parse()?)
    }

    /// Prints the state of all containers and the end of their logs.
    pub(super) fn print_logs(&self) {
        let logs =
            process::run_captured(self.compose().args(["logs", "--tail", "30"]), COMMAND_TIMEOUT);
        let status = process::run_captured(self.compose().args(["ps", "--all"]), COMMAND_TIMEOUT);
        for text in [status, logs] {
            console::heading(text.unwrap_or_else(|error| format!("{error:#}")));
        }
    }

    /// Describes the containers that are not healthy: their states and what their last health checks printed.
    fn states(&self) -> Result<String> {
        let ids = process::run_captured(self.compose().args(["ps", "--quiet"]), COMMAND_TIMEOUT)?;
        let mut states = String::from("containers that are not healthy:");
        for id in ids.split_whitespace() {
            let mut inspect = self.docker();
            inspect.args(["inspect", "--format", "{{.Name}} {{json .State}}", id]);
            let state = process::run_captured(&mut inspect, COMMAND_TIMEOUT)?;
            if !state.contains(r#""Status":"healthy""#) {
                states.extend(["\n", state.trim()]);
            }
        }
        Ok(states)
    }

    fn wait_until_healthy(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        for service in self.services()? {
            let container = self.container(&service)?;
            loop {
                process::check_interrupt()?;
                let mut inspect = self.docker();
                inspect.args(["inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}"]);
                let state = process::stdout(inspect.arg(&container)).unwrap_or_default();
                match state.as_str() {
                    "running healthy" => break,
                    // On a busy machine, checks of a starting program may take too long.
                    "running starting" | "running unhealthy" => {}
                    other => bail!("{service} is {other}"),
                }
                ensure!(
                    Instant::now() < deadline,
                    "{service} is not healthy after {START_TIMEOUT:?}"
                );
                wait_before_poll();
            }
        }
        Ok(())
    }

    fn compose(&self) -> Command {
        let command = self.engine.command_for(&self.tool.program);
        let mut command = self.tool.with_file(command, &self.files.path().join("env"));
        command.arg("--file").arg(&self.additions).args(["--project-name", PROJECT]);
        command
    }

    fn down(&self) -> Result<()> {
        let mut down = self.compose();
        down.args(["down", "--volumes", "--remove-orphans", "--timeout", "10"]);
        process::run_captured(&mut down, START_TIMEOUT).map(drop)
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        console::progress("compose", "removing the fleet");
        if let Err(error) = self.down() {
            console::progress("compose", format_args!("cannot remove the fleet: {error:#}"));
        }
    }
}
